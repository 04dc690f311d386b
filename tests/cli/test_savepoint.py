"""`penstock savepoint` describes, compares, lists and deletes savepoints."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing import JobHarness


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value: str, ctx: Any) -> Any:
        self.n.update((self.n.value() or 0) + 1)
        yield value


def call(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["savepoint", *arguments])
    return done.exit_code, done.output


@pytest.fixture
def savepoints(tmp_path: Path) -> list[str]:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).uid("words").key_by(lambda word: word).process(Count()).uid("count")
    with JobHarness(stream) as job:
        job.push("a", "b").epoch()
        first = job.savepoint(tmp_path)
        job.push("c").epoch()
        return [first, job.savepoint(tmp_path)]


def test_a_savepoint_is_described_and_two_are_compared(savepoints: list[str]) -> None:
    code, said = call("inspect", savepoints[0])
    assert code == 0
    for part in ("operator 'count'", "n: ", "source 'words'"):
        assert part in said
    assert call("diff", savepoints[0], savepoints[0]) == (0, "")
    code, said = call("diff", *savepoints)
    assert code == 1
    assert "'words'" in said
    code, said = call("diff", "--json", *savepoints)
    assert code == 1
    assert {"of": "source", "uid": "words", "what": "records", "was": 2, "now": 3} in json.loads(said)


def test_list_shows_savepoints_and_flags_incomplete_ones(savepoints: list[str], tmp_path: Path) -> None:
    (Path(savepoints[1]) / "_metadata").unlink()
    code, said = call("list", str(tmp_path))
    lines = {line.split()[0]: line for line in said.splitlines()}
    assert code == 0
    assert "harness" in lines[savepoints[0]]
    assert "not complete" in lines[savepoints[1]]


def test_a_directory_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    assert call("list", str(tmp_path)) == (0, "")
    assert call("list", str(tmp_path / "missing"))[0] == 2


def test_commands_for_savepoints_print_json(savepoints: list[str], tmp_path: Path) -> None:
    found = json.loads(call("inspect", "--json", savepoints[0])[1])
    assert (found["path"], found["job"], found["checkpoint"]) == (savepoints[0], "harness", 1)
    assert found["operators"]["count"]["states"].keys() == {"n"}
    assert found["sources"]["words"]["records"] == 2
    (Path(savepoints[1]) / "_metadata").unlink()
    listed = {each["path"]: each for each in json.loads(call("list", str(tmp_path), "--json")[1])}
    assert listed[savepoints[0]]["job"] == "harness"
    assert listed[savepoints[0]]["bytes"] == found["bytes"]
    assert "not complete" in listed[savepoints[1]]["problem"]
    assert json.loads(call("-d", savepoints[0], "--json")[1]) == {"removed": savepoints[0]}
    assert call("--json", "list", str(tmp_path))[0] == 2


def test_dispose_deletes_only_the_given_savepoint(savepoints: list[str], tmp_path: Path) -> None:
    assert call("-d", savepoints[0])[0] == 0
    assert [str(path) for path in tmp_path.iterdir()] == [savepoints[1]]
    code, said = call("-d", str(tmp_path))
    assert code == 1
    assert "No savepoint found in" in said
    assert Path(savepoints[1]).exists()


def test_savepoint_options_require_a_savepoint(tmp_path: Path) -> None:
    (tmp_path / "job.py").touch()
    done = CliRunner().invoke(app, ["run", "-n", str(tmp_path / "job.py")])
    assert done.exit_code == 2
    assert "pass one with" in " ".join(done.output.replace("│", "").split())
