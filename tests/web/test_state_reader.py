"""State as the page reads it: real checkpoints and savepoints of a job in the harness."""

import csv
import io

import pyarrow.parquet
import pytest

from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import PenstockError
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness
from penstock.web import state_reader
from penstock.web.state_reader import NEWEST
from penstock.web.state_view import changes, history_view, key_view, rows_view, tree

HOSTILE = "<script>alert(1)</script>"


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", int))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield value


@pytest.fixture
def job(tmp_path):
    env = StreamExecutionEnvironment.get_execution_environment()
    words = env.from_collection([]).uid("words")
    counts = words.key_by(lambda word: word).process(Count()).name("count").uid("count")
    with JobHarness(
        counts, parallelism=2, backend="filesystem", storage=LocalStorage(tmp_path / "checkpoints")
    ) as harness:
        yield harness


def test_a_key_is_found_with_its_owner_and_equals_the_state_table(job, tmp_path):
    job.push("a", "b", "a").epoch()
    snapshot = job.snapshot()
    opened = state_reader.open_moment(snapshot, NEWEST)
    found = state_reader.look_up(opened, "count", "seen", "a", snapshot)
    assert found.rows == opened.state("count", "seen").get("a")
    assert [row["value"] for row in found.rows] == [2]
    assert found.owner is not None
    assert found.owner.subtask in (0, 1)
    html = key_view("a", found)
    assert f"Key group {found.owner.group}" in html
    assert "<code>2</code>" in html


def test_a_checkpoint_that_is_removed_while_it_is_read_is_read_again(job, monkeypatch):
    job.push("a").epoch()
    snapshot, answers = job.snapshot(), [set(), {1}]
    monkeypatch.setattr(state_reader, "_readable", lambda job, moment: answers.pop(0))
    rows = state_reader.read_moment(snapshot, NEWEST, lambda opened: opened.state("count", "seen").get("a"))
    assert [row["value"] for row in rows] == [1]
    assert answers == []


def test_a_checkpoint_that_is_always_removed_names_the_setting_that_keeps_more(job, monkeypatch):
    job.push("a").epoch()
    monkeypatch.setattr(state_reader, "_readable", lambda job, moment: set())
    with pytest.raises(PenstockError, match="removed the checkpoint") as caught:
        state_reader.read_moment(job.snapshot(), NEWEST, lambda opened: None)
    assert "execution.checkpointing.num-retained" in caught.value.fix


def test_a_checkpoint_that_is_there_is_read_once(job):
    job.push("a").epoch()
    read = []
    state_reader.read_moment(job.snapshot(), NEWEST, lambda opened: read.append(opened.manifest.id))
    assert read == [1]


def test_a_key_without_a_value_is_reported_as_such(job):
    job.push("a").epoch()
    snapshot = job.snapshot()
    found = state_reader.look_up(state_reader.open_moment(snapshot, NEWEST), "count", "seen", "z", snapshot)
    assert "no value in this state" in key_view("z", found)


def test_rows_are_paged_and_searched(job):
    job.push(*(f"word-{number}" for number in range(120))).epoch()
    opened = state_reader.open_moment(job.snapshot(), NEWEST)
    first = state_reader.page_of(opened, "count", "seen")
    last = state_reader.page_of(opened, "count", "seen", 100)
    assert (len(first.rows), first.more) == (50, True)
    assert (len(last.rows), last.more) == (20, False)
    assert "Rows 101 to 120, the last one" in rows_view(last)
    keys = {row["key"] for offset in (0, 50, 100) for row in state_reader.page_of(opened, "count", "seen", offset).rows}
    assert len(keys) == 120
    (row,) = state_reader.page_of(opened, "count", "seen", containing="word-77").rows
    assert row["key"] == "word-77"
    none = state_reader.page_of(opened, "count", "seen", containing="word-999")
    assert "120 rows searched" in rows_view(none)


def test_examples_are_keys_that_can_be_looked_up(job):
    job.push("a", "b").epoch()
    snapshot = job.snapshot()
    opened = state_reader.open_moment(snapshot, NEWEST)
    examples = state_reader.examples(opened, "count", "seen")
    assert sorted(examples) == ["a", "b"]
    assert all(state_reader.look_up(opened, "count", "seen", each, snapshot).rows for each in examples)


def test_a_savepoint_is_a_moment_and_the_history_compares_them(job, tmp_path):
    job.push("a").epoch()
    path = str(job.savepoint(tmp_path / "savepoints"))
    job.push("a", "b").epoch()
    snapshot = job.snapshot()
    assert path in state_reader.moments(snapshot)
    saved = state_reader.open_moment(snapshot, path)
    assert [row["value"] for row in state_reader.look_up(saved, "count", "seen", "a", snapshot).rows] == [1]
    newest = state_reader.open_moment(snapshot, NEWEST)
    values = [version.value for version in state_reader.versions(snapshot, newest, "count", "seen", "a")]
    assert values[0] == 1
    assert values[-1] == 2
    assert "History of" in history_view("a", state_reader.versions(snapshot, newest, "count", "seen", "a"))


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_an_export_has_all_rows(job, form):
    job.push("a", "b", "a").epoch()
    data = state_reader.exported(state_reader.open_moment(job.snapshot(), NEWEST), "count", "seen", form)
    if form == "csv":
        rows = [(row["key"], int(row["value"])) for row in csv.DictReader(io.StringIO(data.decode()))]
    else:
        table = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
        rows = [(row["key"], row["value"]) for row in table]
    assert sorted(rows) == [("a", 2), ("b", 1)]


def test_a_job_without_stored_checkpoints_says_which_setting_helps():
    env = StreamExecutionEnvironment.get_execution_environment()
    words = env.from_collection([]).uid("words").key_by(lambda word: word).process(Count()).uid("count")
    with JobHarness(words, backend="memory") as harness:
        snapshot = harness.snapshot()
        assert state_reader.moments(snapshot) == {}
        with pytest.raises(PenstockError, match="memory of its driver") as caught:
            state_reader.open_moment(snapshot, NEWEST)
        assert "state.checkpoints.dir" in caught.value.fix


def test_a_path_without_a_savepoint_is_an_error(job, tmp_path):
    with pytest.raises(PenstockError):
        state_reader.open_moment(job.snapshot(), str(tmp_path / "nothing"))


def test_one_retained_checkpoint_names_the_setting_that_keeps_more():
    assert "execution.checkpointing.num-retained" in state_reader.retention_note({NEWEST: "", "checkpoint:1": ""})
    assert state_reader.retention_note({NEWEST: "", "checkpoint:1": "", "checkpoint:2": ""}) == ""


def test_hostile_keys_and_values_are_shown_as_text(job):
    job.push(HOSTILE).epoch()
    snapshot = job.snapshot()
    opened = state_reader.open_moment(snapshot, NEWEST)
    found = state_reader.look_up(opened, "count", "seen", HOSTILE, snapshot)
    versions = state_reader.versions(snapshot, opened, "count", "seen", HOSTILE)
    for html in (
        key_view(HOSTILE, found),
        rows_view(state_reader.page_of(opened, "count", "seen")),
        history_view(HOSTILE, versions),
        tree({HOSTILE: [HOSTILE, {HOSTILE: None}]}),
        changes({HOSTILE: 1, "x": HOSTILE}, {HOSTILE: HOSTILE}),
    ):
        assert HOSTILE not in html
        assert "&lt;script&gt;" in html


def test_a_large_value_is_cut():
    assert "… 900 more items" in tree(list(range(1000)))
    assert "10,001 characters" in tree("x" * 10_001)


def test_changes_mark_what_differs():
    html = changes({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5, "d": 4})
    assert "<del>2</del> <ins>5</ins>" in html
    assert "<del>c: 3</del>" in html
    assert "<ins>4</ins>" in html
    assert html.count("<ins>") == 2
