"""A program in another process, and the terminal commands that list, save, rescale and stop it."""

import ast
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.generated import DataGeneratorSource
from penstock.datastream import Savepoint
from penstock.spark.job import Job

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEYS = 10
PROGRAM = f"""
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors import Source
from penstock.datastream.state import ValueStateDescriptor


class Numbers(Source):
    bounded = False

    def start(self, parallelism):
        return {{"only": 0}}

    def advance(self, positions, limit):
        return {{"only": positions["only"] + 7}}

    def read(self, split, start, end):
        return range(start, end)


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))
        self.subtasks = runtime_context.get_number_of_parallel_subtasks()

    def process_element(self, value, ctx):
        n = self.n.value() or 0
        self.n.update(n + 1)
        yield value, n, self.subtasks


env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(Numbers()).uid("numbers")
numbers.key_by(lambda n: n % {KEYS}).process(Count()).uid("count").print().uid("print")
env.execute("counts")
"""


class Program:
    """`penstock run` in a separate process, whose output is read as it arrives."""

    def __init__(self, folder: Path, checkpoints: str, *options: str) -> None:
        settings = {
            "spark.master": "local[2]",
            "state.checkpoints.dir": str(folder / checkpoints),
            "execution.checkpointing.interval": "100 ms",
            "state.savepoints.dir": str(folder / "savepoints"),
            "penstock.control.dir": str(folder / "control"),
        }
        (folder / "job.py").write_text(PROGRAM)
        given = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
        self.errors = (folder / f"{checkpoints}-errors.txt").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", "run", *options, *given, str(folder / "job.py")],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.results: list[tuple[int, int, int]] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.results.append(ast.literal_eval(line.rpartition("> ")[2]))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def until(self, seen: Callable[[list[tuple[int, int, int]]], Any]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: seen(self.results), 120), self.said()

    def end(self) -> int:
        code = self.process.wait(120)
        self._reader.join()
        return code

    def said(self) -> str:
        self.errors.seek(0)
        return self.errors.read()


@pytest.fixture
def run(tmp_path: Path) -> Any:
    programs: list[Program] = []

    def run(*arguments: str) -> Program:
        programs.append(Program(tmp_path, *arguments))
        return programs[-1]

    yield run
    for program in programs:
        program.process.kill()
        program.end()


@pytest.fixture
def penstock(tmp_path: Path) -> Callable[..., str]:
    def penstock(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", *arguments, "-D", f"penstock.control.dir={tmp_path}/control"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    return penstock


def only_job(penstock: Callable[..., str]) -> dict[str, Any]:
    (job,) = json.loads(penstock("list", "--json"))
    return dict(job)


def test_a_job_is_listed_saved_rescaled_stopped_resumed_and_cancelled(
    run: Callable[..., Program], penstock: Callable[..., str], tmp_path: Path
) -> None:
    first = run("first", "-p", "2")
    first.until(lambda results: len(results) > 20)
    job = only_job(penstock)
    assert (job["name"], job["status"], job["pid"], job["restarts"]) == ("counts", "RUNNING", first.process.pid, 0)
    assert job["parallelism"] == {"count": 2}
    assert job["epochs"] >= 3

    live = Savepoint.load(penstock("savepoint", "counts")).metadata
    assert live.checkpoint >= job["epochs"]
    read = live.sources["numbers"].records
    first.until(lambda results: len(results) > read)

    penstock("rescale", job["id"][:8], "count=3")
    first.until(lambda results: results[-1][2] == 3)
    assert only_job(penstock)["parallelism"] == {"count": 3}

    path = penstock("stop", "counts", "-p", "kept")
    assert Path(path).parent == tmp_path / "kept", "a relative path is relative to the command's working directory"
    assert first.end() == 0
    assert json.loads(penstock("list", "--json")) == []

    second = run("second", "-p", "1", "-s", path)
    second.until(lambda results: len(results) > 20)
    saved = Savepoint.load(penstock("cancel", "-s", "counts")).metadata
    assert second.end() == 0, "a cancelled job is not a failed program"
    start, removed, end = second.said().splitlines()
    assert removed.startswith("Removed the checkpoints of a finished job: ")
    assert re.match(rf"Job 'counts' \([0-9a-f]{{32}}\) starts from the savepoint {path}, parallelism 1, ", start)
    assert re.match(r"Job 'counts' was cancelled after .*: \d+ epochs, \d+ records\. Resume it with: .*", end)
    together = sorted(first.results + second.results)
    assert [value for value, _, _ in together] == list(range(saved.sources["numbers"].records))
    assert all(n == value // KEYS for value, n, _ in together)
    assert {subtasks for _, _, subtasks in second.results} == {1}


def test_a_savepoint_requested_before_recovery_holds_the_recovered_state(
    make_env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command can find the driver before it has recovered."""
    awaited = threading.Event()

    class Recovered(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            awaited.set()
            return super().wait(timeout)

    class LateJob(Job):
        """Starts when the savepoint request waits for it, or after a timeout."""

        def _run_to_the_end(self) -> None:
            awaited.wait(20)
            super()._run_to_the_end()

        def start(self) -> None:
            self._recovered = Recovered()
            super().start()

    def start(**settings: str) -> Any:
        env = make_env(parallelism=1, checkpoints=True, **settings)
        source = DataGeneratorSource(lambda number: number, records_per_epoch=7)
        env.from_source(source).uid("numbers").key_by(lambda n: n % KEYS).reduce(max).uid("most").print().uid("print")
        env.add_epoch_listener(lambda epoch: three.set() if epoch.number >= 3 else None)
        return env.execute_async("counts")

    three = threading.Event()
    job = start()
    assert three.wait(120)
    first = job.stop_with_savepoint(False, str(tmp_path)).result()
    monkeypatch.setattr("penstock.spark.job.Job", LateJob)
    job = start(**{"execution.state-recovery.path": first})
    second = job.trigger_savepoint(str(tmp_path)).result()
    job.cancel()
    held, after = Savepoint.load(first).metadata, Savepoint.load(second).metadata
    assert after.checkpoint >= held.checkpoint >= 3
    assert after.sources["numbers"].records >= held.sources["numbers"].records > 0
