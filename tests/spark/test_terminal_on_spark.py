"""The display of a running program on a terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

PROGRAM = """
import time
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
env.from_collection(range(4)).map(lambda number: time.sleep(1) or f"number {number}").print()
env.execute("numbers")
"""


def seen_on_a_terminal(folder: Path, *options: str) -> str:
    """Return everything that the program writes to a terminal, which is its standard input, output and error."""
    (folder / "job.py").write_text(PROGRAM)
    settings = ["-D", "spark.master=local[1]", "-D", "penstock.epoch.max-records=1"]
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "penstock.cli.main", "run", *options, *settings, str(folder / "job.py")]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while data := os.read(ours, 1 << 16):
            seen += data
    except OSError:
        # Linux reports this way that the last process has closed the terminal.
        pass
    finally:
        os.close(ours)
    assert process.wait(60) == 0, seen.decode()
    return seen.decode()


def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    seen = seen_on_a_terminal(tmp_path)
    assert "Job 'numbers' (" in seen
    assert "\x1b[2K" in seen
    assert "records/s" in seen
    assert "Job 'numbers' finished after" in seen


def test_a_quiet_run_shows_only_the_output_of_the_program(tmp_path: Path) -> None:
    seen = seen_on_a_terminal(tmp_path, "--quiet")
    assert seen.split("\r\n") == [*(f"number {number}" for number in range(4)), ""]
