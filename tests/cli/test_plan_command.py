"""`penstock plan` shows a program's job without running it."""

import json
import sys
import textwrap

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app

PROGRAM = """
    import sys
    from penstock.datastream import StreamExecutionEnvironment

    def never(value):
        raise AssertionError("the program was run")

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    env.from_collection([1]).uid("numbers").map(never).uid("never").key_by(never).sum().uid("sum").print().uid("out")
    try:
        env.execute(sys.argv[1])
    except Exception:
        raise AssertionError("the program saw an exception")
    raise AssertionError("the program went on")
"""


@pytest.fixture
def call(invoke):
    def call(*arguments, program=PROGRAM):
        return invoke(program, "plan", *arguments[:-1], arguments=list(arguments[-1:]))

    return call


def test_plan_prints_text_by_default(call):
    result = call("my job")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "Job 'my job'",
        "  stage 0, chain 0: one task per Spark partition",
        "    Source: Collection  [uid numbers]",
        "    Map  [uid never]",
        "  stage 1, chain 1: 2 tasks",
        "    Sum  [uid sum]  keyed; hash from Map",
        "    Print to Std. Out  [uid out]",
    ]


def test_plan_prints_json(call):
    result = call("--json", "my job")
    assert [node["uid"] for node in json.loads(result.output)["nodes"]] == ["numbers", "never", "sum", "out"]


def test_plan_draws_a_picture(call, tmp_path):
    result = call("--svg", str(tmp_path / "plan.svg"), "my job")
    assert result.output == ""
    assert "Print to Std. Out" in (tmp_path / "plan.svg").read_text()


def test_plan_reports_a_program_without_a_job(call):
    result = call("my job", program="print('hello')")
    assert result.exit_code == 1
    assert "never called env.execute()" in result.output


@pytest.mark.parametrize("command", ["plan", "info"])
def test_programs_are_named_as_for_run(command, tmp_path, monkeypatch, launched):
    monkeypatch.setattr("sys.path", ["", *sys.path])
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    launched({})
    folder, helpers = tmp_path / "program", tmp_path / "elsewhere" / f"helps_{command}.py"
    folder.mkdir()
    helpers.parent.mkdir()
    helpers.write_text("NAME = 'my job'\n")
    program = textwrap.dedent(PROGRAM).replace("sys.argv[1]", "NAME").replace("env.set_parallelism(2)\n", "")
    (folder / "__main__.py").write_text(f"from {helpers.stem} import NAME\n{program}")
    options = ["--py-files", str(helpers), "-D", "parallelism.default=3", "--json"]
    done = CliRunner().invoke(app, [command, *options, str(folder)])
    assert done.exit_code == 0, done.output
    if command == "plan":
        assert {node["parallelism"] for node in json.loads(done.stdout)["nodes"]} == {None, 3}
