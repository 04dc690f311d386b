"""Common mistakes, each a program as a user would run it, and what is printed: the user's file and line first, the fix
last, at most fifteen lines, and nothing of Penstock's or Spark's own frames.

`programs/` holds the programs, `inputs/` what they read, and `golden/` what each prints; MISTAKES says what the mistake
is.
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
    "keyed_state_without_key_by": "state is asked for on a stream that has no keys",
    "function_that_holds_a_lock": "a function uses a lock of the driver, which cannot travel",
    "unknown_setting": "the name of a setting is misspelled",
    "same_uid_twice": "two operators have one uid",
    "class_instead_of_an_object": "map(Double) instead of map(Double())",
    "parallelism_of_zero": "set_parallelism(0)",
    "forward_to_another_parallelism": "forward() between operators of different parallelism",
    "remote_checkpoint_directory": "checkpoints on an object store whose package is not installed",
    "unwritable_checkpoint_directory": "a checkpoint directory below something that is no directory",
    "store_without_conditional_puts": "checkpoints on a store that cannot refuse to put an object over another",
    "delta_that_is_missing": "a file of a checkpoint was deleted",
    "delta_that_is_damaged": "a file of a checkpoint was cut off",
    "manifest_of_a_newer_version": "a checkpoint was written by a newer Penstock",
    "manifest_that_is_damaged": "a manifest was cut off",
    "async_function_in_map": "an async function in map",
    "union_of_two_environments": "streams of two environments are united",
    "program_without_a_source": "execute() of an environment in which nothing was declared",
    "flat_map_that_returns_a_string": "flat_map returns a string instead of a list or a generator",
    "exception_in_a_function": "the user's own function raises for one record",
    "another_output_type": "a result is not of the declared output_type",
    "dict_as_a_key": "the key is a dict",
    "state_of_another_type": "a state is declared with another type than its checkpoint has",
    "operator_state_of_another_kind": "an operator state is asked for as another kind than its checkpoint has",
    "rule_written_by_a_record": "broadcast state is written where it may only be read",
    "join_without_times": "an interval join of streams to which no timestamps were assigned",
    "join_without_windows": "apply of a join that was given no windows",
    "windows_without_times": "windows of event time over a stream to which no timestamps were assigned",
    "windows_of_no_size": "sliding windows that begin every 0 seconds",
    "broken_line_of_json": "a file has a line that is no JSON",
    "dead_letters_that_nobody_reads": "dead letters are asked for and read nowhere",
    "savepoint_into_a_bad_directory": "a savepoint below something that is not a directory",
    "open_that_is_misspelled": "open() has another name, so that it never runs",
    "open_without_the_context": "open() does not take the runtime context",
    "sys_exit_in_a_function": "a function calls sys.exit()",
    "function_that_holds_the_session": "a function uses the Spark session",
    "value_of_another_type_than_its_state": "a state is given a value of another type than it was declared with",
}
ON_SPARK = {"exception_on_spark": "the user's own function raises in a Spark worker"}

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
    # Names by content change with the content's layout.
    printed = re.sub(r"\b[0-9a-f]{32}\b", "0123abcd", printed)
    assert printed == (GOLDEN / f"{program}.txt").read_text()
    lines = printed.splitlines()
    assert len(lines) <= 15
    assert re.match(rf"{program}\.py:\d+: ", lines[0])
    assert lines[-1].startswith("Fix: ")
    assert not NOT_FOR_USERS.search(printed)


@pytest.mark.parametrize("program", MISTAKES)
def test_a_mistake_is_shown_by_the_users_line_and_the_fix(program):
    done = run(program)
    assert (done.returncode, done.stdout) == (1, "")
    check(program, done.stderr)


@pytest.mark.spark
@pytest.mark.parametrize("program", ON_SPARK)
def test_a_mistake_in_a_spark_worker_is_shown_the_same_way(program):
    done = run(program)
    assert (done.returncode, done.stdout) == (1, "")
    check(program, without_job_lines(done.stderr))


def test_every_program_is_run_and_every_golden_file_is_one_programs():
    assert {path.stem for path in PROGRAMS.glob("*.py")} == {*MISTAKES, *ON_SPARK}
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {*MISTAKES, *ON_SPARK}


@pytest.mark.parametrize("program", ["class_instead_of_an_object", "exception_in_a_function"])
def test_penstock_run_shows_the_same(program):
    done = run(program, "-m", "penstock.cli.main", "run")
    assert done.returncode == 1
    check(program, done.stderr)


@pytest.mark.parametrize("command", [(), ("-m", "penstock.cli.main", "run")])
def test_the_whole_traceback_is_there_for_who_asks(command):
    done = run("parallelism_of_zero", *command, PENSTOCK_TRACEBACK="full")
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert "logical.py" in done.stderr
    assert done.stderr.endswith("at least 1, not 0. Pass such a number, or remove the call.\n")


def test_other_exceptions_are_printed_as_ever():
    text = "from penstock.datastream import StreamExecutionEnvironment as E; E(); sys = 1 / 0"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_the_hook_that_was_there_still_gets_other_exceptions():
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

    def test_stays_short_however_deep_the_calls_and_long_the_message(self):
        lines = self.raised(100, GraphError("\n".join(f"line {n}" for n in range(100)), fix="Do\nthis."))
        assert len(lines) <= 15
        assert lines[0].endswith(": GraphError: line 0")
        assert lines[1] == "    raise error"
        assert "… and 96 lines more" in lines
        assert lines[-1] == "Fix: Do this."

    def test_an_error_without_a_fix_ends_with_its_message(self):
        lines = self.raised(0, GraphError("first\nsecond"))
        assert lines[-1] == "second"

    def test_an_error_that_never_was_raised_has_no_line(self):
        assert short_form(GraphError("wrong", fix="Right it.")) == "GraphError: wrong\nFix: Right it."

    def test_those_who_catch_it_read_the_whole_message(self):
        assert str(GraphError("It is wrong.", fix="Right it.")) == "It is wrong. Right it."
