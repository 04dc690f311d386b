"""Real signals to real programs, sent to the process group as a terminal or a service manager does: the job finishes
its epoch, keeps its checkpoints regardless of retention, and the next run resumes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
import time
from pathlib import Path
from penstock.common import Configuration
from penstock.connectors.source import Source
from penstock.datastream import StreamExecutionEnvironment

HERE = Path(__file__).parent

class Numbers(Source):
    replayable, why, bounded = True, "counts", False

    def start(self, parallelism):
        return {"0": 0}

    def advance(self, positions, limit):
        end = 10_000 if not (HERE / "total").exists() else int((HERE / "total").read_text())
        return {"0": min(positions["0"] + 5, end)}

    def read(self, split, start, end):
        return iter(range(start, end))

    def close(self):
        pass

def slow(value):
    if (HERE / "slow").exists() and value % 5 == 0:
        (HERE / "within").touch()
        time.sleep(1)
    return value

env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({
    "state.checkpoints.dir": str(HERE / "checkpoints"),
    "state.backend.local-dir": str(HERE / "replicas"),
    "execution.checkpointing.interval": "50 ms",
    "execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION",
    "spark.master": "local[2]",
    "parallelism.default": "1",
}))
env.add_epoch_listener(lambda epoch: print("epoch", epoch.number, flush=True))
sums = (
    env.from_source(Numbers(), source_name="numbers").uid("numbers").map(slow).uid("slow")
    .key_by(lambda value: value % 2).reduce(lambda a, b: a + b).uid("sums")
)
sums.print()
"""
EXECUTE = "env.execute('numbers')\n"
ASYNC = """
with env.execute_async('numbers') as client:
    while True:
        time.sleep(60)
"""


class Program:
    """A program in a separate process group."""

    def __init__(self, path: Path, *command: str) -> None:
        self._process = subprocess.Popen(
            [*command, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=path.parent,
        )
        self.lines: list[str] = []

    def epoch(self, number: int) -> None:
        """Read output until this epoch is complete."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.strip())
            if line.startswith("epoch ") and int(line.split()[1]) >= number:
                return
        raise AssertionError(f"The program ended early: {self.end()}")

    def signal(self, number: int) -> None:
        os.killpg(self._process.pid, number)

    def end(self) -> tuple[int, str]:
        out, errors = self._process.communicate(timeout=120)
        self.lines += out.splitlines()
        return self._process.returncode, errors

    def epochs(self) -> list[int]:
        return [int(line.split()[1]) for line in self.lines if line.startswith("epoch ")]

    def values(self) -> list[int]:
        return [int(line) for line in self.lines if line.lstrip("-").isdigit()]

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.kill()


def expected(records: int) -> list[int]:
    sums = [0, 0]
    values = []
    for number in range(records):
        sums[number % 2] += number
        values.append(sums[number % 2])
    return values


@pytest.mark.parametrize(
    ("command", "end", "number", "codes"),
    [
        ([sys.executable, "-m", "penstock.cli.main", "run"], EXECUTE, signal.SIGINT, [130]),
        pytest.param([sys.executable], ASYNC, signal.SIGTERM, [143], marks=pytest.mark.long),
    ],
    ids=["run, Ctrl-C", "python and a JobClient, SIGTERM"],
)
def test_a_stopped_job_resumes_where_it_was(
    tmp_path: Path, programs: list[Program], command: list[str], end: str, number: int, codes: list[int]
) -> None:
    path = tmp_path / "job.py"
    path.write_text(PROGRAM + textwrap.dedent(end))
    first = Program(path, *command)
    programs.append(first)
    first.epoch(2)
    # Send the signal within an epoch.
    (tmp_path / "slow").touch()
    while not (tmp_path / "within").exists():
        time.sleep(0.05)
    first.signal(number)
    code, errors = first.end()
    assert code in codes, errors
    last = first.epochs()[-1]
    assert "stops after the epoch under way" in errors
    assert f"Nothing was removed: start the program again to resume from checkpoint {last}." in errors
    assert "Traceback" not in errors.replace('Traceback (most recent call last):\n  File "' + str(path), "")
    (tmp_path / "slow").unlink()
    (tmp_path / "total").write_text("100")
    second = Program(path, *command)
    programs.append(second)
    second.epoch(20)
    second.signal(signal.SIGKILL)
    second.end()
    assert second.epochs()[0] == last + 1, "the job continues with the next epoch"
    assert first.values() + second.values() == expected(100), "no record is lost or duplicated"
