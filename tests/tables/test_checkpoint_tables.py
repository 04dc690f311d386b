"""Retained checkpoints read as savepoints are, one key over all of them, and the same from the command line."""

import json
import shutil

import pytest
from table_jobs import everything, rows
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.epoch_settings import Settings
from penstock.errors import PenstockError
from penstock.state.storage import MissingObject
from penstock.tables import Checkpoint, OperatorTransformation, Savepoint, SavepointWriter, history
from penstock.tables.checkpoint import NotACheckpoint, open_snapshot
from penstock.testing import JobHarness

EPOCHS = [[("a", 1), ("b", 2)], [("a", 3)], [], [("a", 4), ("c", 5)]]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The directory of a job's run with four checkpoints, a savepoint of the second, and the harness."""
    directory = tmp_path_factory.mktemp("run")
    with JobHarness(everything(), backend="filesystem", settings=Settings(retained=10), parallelism=2) as job:
        job.set_clock(1_000_000)
        for number, records in enumerate(EPOCHS):
            job.push(*records).epoch()
            job.set_clock(1_000_000 + 1000 * (number + 1))
            if number == 1:
                job.savepoint(directory / "savepoints")
        last = job.savepoint(directory / "last")
        shutil.copytree(job.storage.root, directory / "checkpoints" / "job" / "lineage")
    return directory, last


def tables(snapshot):
    return {(info.uid, info.name): rows(snapshot.state(info.uid, info.name)) for info in snapshot.states()}


class TestACheckpoint:
    def test_is_read_as_a_savepoint_of_it_is(self, run):
        directory, last = run
        found = Checkpoint.load(directory / "checkpoints" / "job")
        assert found.manifest.id == 4
        assert tables(found) == tables(Savepoint.load(last))

    def test_is_found_by_job_run_file_or_number(self, run):
        job = run[0] / "checkpoints" / "job"
        second = Checkpoint.load(job, 2)
        assert rows(second.state("all", "count")) == [("a", 2), ("b", 1)]
        assert Checkpoint.load(job / "lineage", 2).version == second.version
        assert Checkpoint.load(job / "lineage" / "manifests" / "000000000002").version == second.version
        assert [each.manifest.id for each in Checkpoint.list(job)] == [1, 2, 3, 4]
        with pytest.raises(NotACheckpoint, match=r"no checkpoint 7 in .*; there are 1 to 4"):
            Checkpoint.load(job, 7)
        with pytest.raises(NotACheckpoint, match="no checkpoints in"):
            Checkpoint.load(run[0] / "last")

    def test_of_a_job_with_several_runs_is_that_of_the_last(self, run, tmp_path):
        for name in ("001-first", "002-second"):
            shutil.copytree(run[0] / "checkpoints" / "job" / "lineage", tmp_path / "job" / name)
        (tmp_path / "job" / "001-first" / "manifests" / "000000000004").unlink()
        assert Checkpoint.load(tmp_path / "job").manifest.id == 4
        (tmp_path / "job" / "lineages").mkdir()
        (tmp_path / "job" / "lineages" / "000000000009").write_text("001-first")
        assert Checkpoint.load(tmp_path / "job").manifest.id == 3
        assert len(Checkpoint.list(tmp_path / "job")) == 7

    def test_is_not_listed_when_what_it_stands_on_is_gone(self, run, tmp_path):
        shutil.copytree(run[0] / "checkpoints" / "job" / "lineage", tmp_path / "run")
        (tmp_path / "run" / "manifests" / "000000000002").unlink()
        assert [each.manifest.id for each in Checkpoint.list(tmp_path / "run")] == [1]

    def test_or_a_savepoint_is_opened_by_its_path(self, run):
        directory, last = run
        assert isinstance(open_snapshot(last), Savepoint)
        assert isinstance(open_snapshot(directory / "checkpoints" / "job"), Checkpoint)
        with pytest.raises(PenstockError, match="No savepoint found in"):
            open_snapshot(directory)


class TestTheHistoryOfAKey:
    def test_has_its_value_at_every_checkpoint(self, run):
        found = history(run[0] / "checkpoints" / "job", "all", "count", "a")
        assert [(each.checkpoint, each.value) for each in found] == [(1, 1), (2, 2), (3, 2), (4, 3)]
        assert [each.time for each in found] == [1_000_000, 1_001_000, 1_002_000, 1_003_000]
        later = history(run[0] / "checkpoints" / "job", "all", "count", "c")
        assert [each.value for each in later] == [None, None, None, 1]

    def test_has_lists_and_maps(self, run):
        job = run[0] / "checkpoints" / "job"
        assert [each.value for each in history(job, "all", "values", "a")] == [[1], [1, 3], [1, 3], [1, 3, 4]]
        assert [each.value for each in history(job, "all", "colours", "a")][-1] == [("RED", 4)]
        assert len(history(job, "all", "timers", "a")[-1].value) == 6

    def test_goes_over_savepoints_and_checkpoints_together(self, run):
        directory = run[0]
        places = [str(directory / "checkpoints" / "job"), str(directory / "savepoints"), str(directory / "last")]
        found = history(places, "all", "count", "a")
        assert [(each.checkpoint, each.value) for each in found] == [(1, 1), (2, 2), (2, 2), (3, 2), (4, 3), (4, 3)]

    def test_leaves_out_what_a_running_job_removes_meanwhile(self, run, monkeypatch):
        job = run[0] / "checkpoints" / "job"
        read = Checkpoint.state

        def removed(self, uid, name, **options):
            if self.manifest.id == 1:
                raise MissingObject("deltas/x", "here")
            return read(self, uid, name, **options)

        monkeypatch.setattr(Checkpoint, "state", removed)
        assert [each.checkpoint for each in history(job, "all", "count", "a")] == [2, 3, 4]

    def test_of_nothing_says_so(self, tmp_path):
        with pytest.raises(NotACheckpoint, match="no checkpoints and no savepoints"):
            history(tmp_path, "all", "count", "a")


def command(*arguments, code=0):
    result = CliRunner().invoke(app, ["state", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


class TestTheCommandLine:
    def test_lists_states(self, run):
        directory, last = run
        lines = command("ls", last).splitlines()
        assert "all: Keyed Process" in lines
        assert "  count: value long" in lines
        assert "  fading: value string, time to live 60000 ms" in lines
        listed = json.loads(command("ls", directory / "checkpoints" / "job", "--json"))
        assert {
            "uid": "all",
            "operator": "Keyed Process",
            "name": "count",
            "kind": "value",
            "type": "long",
        }.items() <= (next(each for each in listed if each["name"] == "count").items())

    def test_shows_rows(self, run):
        directory, last = run
        assert sorted(command("get", last, "all", "count").splitlines()) == [
            "key=a  value=3",
            "key=b  value=1",
            "key=c  value=1",
        ]
        shown = json.loads(command("get", directory / "checkpoints" / "job", "all", "values", "a", "--json"))
        assert shown == [{"key": "a", "index": index, "value": value} for index, value in enumerate([1, 3, 4])]
        assert "There are more than 1 rows" in command("get", last, "all", "count", "--limit", 1)
        assert "has nothing in this state" in command("get", last, "all", "count", "nobody", code=1)

    def test_shows_the_history_of_a_key(self, run):
        job = run[0] / "checkpoints" / "job"
        assert command("history", job, "all", "count", "a").splitlines() == [
            "1  1000000  1",
            "2  1001000  2",
            "3  1002000  2",
            "4  1003000  3",
        ]
        shown = json.loads(command("history", job, "all", "count", "c", "--json"))
        assert [each["value"] for each in shown] == [None, None, None, 1]

    def test_takes_keys_of_any_type(self, tmp_path):
        rows = [{"n": number, "who": f"w{number}"} for number in range(3)]
        writer = SavepointWriter.new_savepoint()
        for uid, key in (("number", "n"), ("both", ["who", "n"])):
            bootstrap = OperatorTransformation.bootstrap_with(rows).key_by(key)
            writer.with_operator(uid, bootstrap.state(ValueStateDescriptor("name", str), "who"))
        path = writer.write(tmp_path / "made")
        assert command("get", path, "number", "name", 2) == "key=2  value=w2\n"
        assert command("get", path, "both", "name", '["w1", 1]') == 'key={"f0":"w1","f1":1}  value=w1\n'
        assert command("history", path, "both", "name", '["w1", 1]').endswith("  w1\n")
        assert "are of type int, and 'two' is none" in command("get", path, "number", "name", "two", code=1)
        assert "it has the 2 fields f0, f1" in command("get", path, "both", "name", '["w1"]', code=1)

    def test_says_what_is_wrong(self, run):
        last = run[1]
        assert "no state 'nothing'; it has" in command("get", last, "all", "nothing", code=1)
        assert "no operator with uid 'none'" in command("get", last, "none", "count", code=1)
        assert "No savepoint found in" in command("ls", run[0], code=1)
