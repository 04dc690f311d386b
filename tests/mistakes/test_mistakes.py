"""Common mistakes, each as a user's program, and the error output of each.

The output starts with the user's file and line and ends with the fix. It has at most fifteen lines and no frames of
Penstock or Spark. `programs/` holds the programs, `inputs/` their input, and `golden/` their expected output. MISTAKES
describes each mistake.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from job_lines import without_job_lines

import penstock
from penstock.common.error_format import short_form
from penstock.errors import PenstockError
from penstock.graph.logical import GraphError

HERE = Path(__file__).parent
PROGRAMS, GOLDEN = HERE / "programs", HERE / "golden"
ROOT = str(Path(penstock.__file__).parent.parent)

MISTAKES = {
    "keyed_state_without_key_by": "a function uses keyed state on a stream without keys",
    "function_that_holds_a_lock": "a function uses a lock of the driver, which cannot be pickled",
    "unknown_setting": "the key of a setting is misspelled",
    "same_uid_twice": "two operators have the same uid",
    "class_instead_of_an_object": "map(Double) instead of map(Double())",
    "parallelism_of_zero": "set_parallelism(0)",
    "forward_to_another_parallelism": "forward() connects operators of different parallelism",
    "remote_checkpoint_directory": "checkpoints go to an object store whose package is not installed",
    "unwritable_checkpoint_directory": "the checkpoint directory is below a path that is not a directory",
    "store_without_conditional_puts": "checkpoints go to a store without conditional puts",
    "delta_that_is_missing": "a file of a checkpoint was deleted",
    "delta_that_is_damaged": "a file of a checkpoint was truncated",
    "manifest_of_a_newer_version": "a newer version of Penstock wrote the checkpoint",
    "manifest_that_is_damaged": "a manifest was truncated",
    "async_function_in_map": "an async function is passed to map",
    "union_of_two_environments": "streams of two environments are merged",
    "program_without_a_source": "execute() is called on an environment without streams",
    "flat_map_that_returns_a_string": "flat_map returns a string instead of a list or a generator",
    "exception_in_a_function": "the user's function raises for one record",
    "another_output_type": "a result is not of the declared output_type",
    "dict_as_a_key": "the key is a dict",
    "state_of_another_type": "a state is declared with another type than in its checkpoint",
    "operator_state_of_another_kind": "an operator state is declared as another kind than in its checkpoint",
    "rule_written_by_a_record": "broadcast state is written where it is read-only",
    "join_without_times": "an interval join reads streams without timestamps",
    "join_without_windows": "apply is called on a join without windows",
    "windows_without_times": "event-time windows group a stream without timestamps",
    "windows_of_no_size": "sliding windows have a slide of 0 seconds",
    "broken_line_of_json": "a file has a line of invalid JSON",
    "unread_dead_letters": "dead letters are enabled but never read",
    "savepoint_into_a_bad_directory": "a savepoint is taken below a path that is not a directory",
    "open_that_is_misspelled": "open() is misspelled and never runs",
    "open_without_the_context": "open() does not take the runtime context",
    "sys_exit_in_a_function": "a function calls sys.exit()",
    "function_that_holds_the_session": "a function uses the Spark session",
    "queryable_state_that_is_not_enabled": "a state is queryable, but queryable-state.enable is not set",
    "queryable_state_that_is_decided_at_runtime": "a function makes a state queryable under a condition, but "
    "queryable-state.enable is not set",
    "value_of_another_type_than_its_state": "a state is updated with a value of another type than declared",
}
ON_SPARK = {"exception_on_spark": "the user's function raises in a Spark worker"}

NOT_FOR_USERS = re.compile(r"Traceback|py4j|org\.apache|java\.lang|site-packages|/penstock/|\tat ")


def run(program: str, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command, f"{program}.py"],
        cwd=PROGRAMS,
        env={**os.environ, "PYTHONPATH": ROOT, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


def check(program: str, printed: str) -> None:
    printed = printed.replace(f"{HERE}/", "/data/")
    # Content-addressed names change with the layout of the content.
    printed = re.sub(r"\b[0-9a-f]{32}\b", "0123abcd", printed)
    assert printed == (GOLDEN / f"{program}.txt").read_text()
    lines = printed.splitlines()
    assert len(lines) <= 15
    assert re.match(rf"{program}\.py:\d+: ", lines[0])
    assert lines[-1].startswith("Fix: ")
    assert not NOT_FOR_USERS.search(printed)


@pytest.mark.parametrize("program", MISTAKES)
def test_a_mistake_is_reported_with_the_users_line_and_a_fix(program):
    done = run(program)
    assert (done.returncode, done.stdout) == (1, "")
    check(program, done.stderr)


@pytest.mark.spark
@pytest.mark.parametrize("program", ON_SPARK)
def test_a_mistake_in_a_spark_worker_is_reported_the_same_way(program):
    done = run(program)
    assert (done.returncode, done.stdout) == (1, "")
    check(program, without_job_lines(done.stderr))


def test_every_program_has_a_test_and_a_golden_file():
    assert {path.stem for path in PROGRAMS.glob("*.py")} == {*MISTAKES, *ON_SPARK}
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {*MISTAKES, *ON_SPARK}


@pytest.mark.parametrize("program", ["class_instead_of_an_object", "exception_in_a_function"])
def test_penstock_run_prints_the_same_error(program):
    done = run(program, "-m", "penstock.cli.main", "run")
    assert done.returncode == 1
    check(program, done.stderr)


@pytest.mark.parametrize("command", [(), ("-m", "penstock.cli.main", "run")])
def test_the_full_traceback_is_printed_on_request(command):
    done = run("parallelism_of_zero", *command, PENSTOCK_TRACEBACK="full")
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert "logical.py" in done.stderr
    assert done.stderr.endswith("at least 1, not 0. Pass such a number, or remove the call.\n")


def test_other_exceptions_are_printed_as_usual():
    text = "from penstock.datastream import StreamExecutionEnvironment as E; E(); sys = 1 / 0"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_a_previously_installed_hook_still_receives_other_exceptions():
    text = (
        "import sys; sys.excepthook = lambda *error: print('theirs', error[1])\n"
        "from penstock.datastream import StreamExecutionEnvironment as E\n"
        "E(); E()\n"
        "raise ValueError('mine')"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("theirs mine\n", "")


class TestTheShortForm:
    def raised(self, depth, error):
        try:
            self.deep(depth, error)
        except PenstockError as caught:
            return short_form(caught).splitlines()

    def deep(self, depth, error):
        if depth == 0:
            raise error
        self.deep(depth - 1, error)

    def test_the_short_form_limits_deep_stacks_and_long_messages(self):
        lines = self.raised(100, GraphError("\n".join(f"line {n}" for n in range(100)), fix="Do\nthis."))
        assert len(lines) <= 15
        assert lines[0].endswith(": GraphError: line 0")
        assert lines[1] == "    raise error"
        assert "… and 96 more lines" in lines
        assert lines[-1] == "Fix: Do this."

    def test_an_error_without_a_fix_ends_with_its_message(self):
        lines = self.raised(0, GraphError("first\nsecond"))
        assert lines[-1] == "second"

    def test_an_error_that_was_never_raised_has_no_line(self):
        assert short_form(GraphError("wrong", fix="Right it.")) == "GraphError: wrong\nFix: Right it."

    def test_str_returns_the_complete_message(self):
        assert str(GraphError("It is wrong.", fix="Right it.")) == "It is wrong. Right it."
