"""`make run`: count requests per URL in an access log, kill a worker and the driver, and verify the counts.

This process has no JVM. It starts the driver (`demo_job`) as a child process, kills it, starts it again on the same
checkpoints, and finally compares the job's output with the log.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from penstock.checkpoint.lineages import Lineages
from penstock.checkpoint.manifest import latest
from penstock.cli.access_log import count_urls, write_access_log
from penstock.cli.demo_job import NAME, Page, Work
from penstock.cli.driver import Driver
from penstock.cli.ledger import Audit, audit, read_ledger
from penstock.cli.presence import is_present, present
from penstock.cli.progress import Progress
from penstock.driver.epoch_statistics import EpochStatistics
from penstock.errors import PenstockError
from penstock.state.local_storage import LocalStorage

EPOCHS = 20
KILL_WORKER_IN = 6
KILL_DRIVER_IN = 13

_SECONDS_TO_DIE = 5.0

_NEXT = """\
Next steps
  make test                                      run the tests
  make bench                                     compare the speed with Spark's own state API
  .venv/bin/penstock run examples/url_count.py   run the same count as a regular program
  docs/internals/architecture.md                 read how it works"""


class DemoFailed(PenstockError):
    """The demo failed; the message says at which step.

    Operator action: run `make run` again; if it fails at the same step, read the driver's output in the message.
    """


@dataclass
class Kill:
    """A planned crash of `what` in the middle of epoch `epoch`."""

    what: str
    epoch: int
    due: float | None = None
    """The time by the monotonic clock, set when the preceding epoch ends."""


class Supervisor:
    """Runs the job to completion through every crash. `run` returns when the driver exits successfully."""

    def __init__(self, work: Work, progress: Progress, kills: list[Kill]) -> None:
        self._work = work
        self._progress = progress
        self._kills = list(kills)
        self._killed_at: float | None = None
        self._done_before = 0
        """The number of records processed up to the last completed epoch."""

    def run(self) -> None:
        while True:
            self._progress.doing = "starting Spark"
            with Driver(self._work) as driver:
                self._progress.note(f"driver {driver.pid} started")
                died_of_us = self._follow(driver)
                code = driver.wait()
            if code == 0:
                return
            if not died_of_us or code != -signal.SIGKILL:
                raise DemoFailed(f"the driver ended with {_code(code)}. Its last output:\n{driver.words}")
            self._crashed(f"driver {driver.pid} was killed by {_code(code)}")
            self._read_checkpoint()

    def _follow(self, driver: Driver) -> bool:
        """Show the epochs of one driver until it ends. Return whether the demo killed it."""
        while True:
            kill = self._kills[0] if self._kills else None
            if kill is not None and kill.due is not None and time.monotonic() >= kill.due:
                if kill.what == "driver":
                    self._kills.pop(0)
                    self._announce(f"kill -9 {driver.pid}, the driver, in epoch {kill.epoch}")
                    driver.kill()
                    return True
                if self._kill_worker(kill):
                    self._kills.pop(0)
            try:
                event = driver.next_event(timeout=0.05)
            except queue.Empty:
                self._progress.show()
                continue
            if event is None:
                return False
            if isinstance(event, Page):
                self._progress.note(f"page: {event.url}")
            else:
                self._completed(event.epoch)

    def _completed(self, epoch: EpochStatistics) -> None:
        progress = self._progress
        self._done_before += epoch.records
        progress.done = self._done_before
        progress.epoch = epoch.number
        progress.state_bytes = epoch.state_bytes
        progress.doing = "counting"
        if epoch.records:
            progress.rate = epoch.records / epoch.cycle_ms * 1000
        if self._killed_at is not None:
            seconds = time.monotonic() - self._killed_at
            progress.note(f"recovered: epoch {epoch.number} completed {seconds:.1f} s after the kill", "green")
            self._killed_at = None
        progress.show()
        if self._kills and self._kills[0].epoch == epoch.number + 1:
            # The middle of the next epoch, assuming that it takes as long as this one.
            self._kills[0].due = time.monotonic() + epoch.cycle_ms / 2000

    def _kill_worker(self, kill: Kill) -> bool:
        workers = present(self._work.workers)
        if not workers:
            return False
        self._announce(f"kill -9 {workers[0]}, a Python worker, in epoch {kill.epoch}")
        os.kill(workers[0], signal.SIGKILL)
        deadline = time.monotonic() + _SECONDS_TO_DIE
        while is_present(self._work.workers, workers[0]):
            if time.monotonic() > deadline:
                raise DemoFailed(f"worker {workers[0]} is still running {_SECONDS_TO_DIE:.0f} s after kill -9")
            time.sleep(0.01)
        self._crashed(f"worker {workers[0]} is gone")
        return True

    def _announce(self, text: str) -> None:
        self._progress.note(text, "bold red")
        self._progress.doing = "recovering"
        self._progress.rate = 0
        self._killed_at = time.monotonic()

    def _crashed(self, text: str) -> None:
        self._progress.crashes += 1
        self._progress.note(text)

    def _read_checkpoint(self) -> None:
        """Read the progress from the last checkpoint, because the dead driver's last report might be lost."""
        lineages = Lineages(LocalStorage(self._work.checkpoints / NAME))
        lineage = lineages.newest()
        found = None if lineage is None else latest(lineages.storage_of(lineage))
        if found is None:
            raise DemoFailed("the driver died before its first checkpoint")
        manifest, _ = found
        self._done_before = self._progress.done = sum(manifest.records.values())
        self._progress.epoch = manifest.id
        self._progress.note(f"its last checkpoint is {manifest.id}, with {self._done_before:,} records")


def verdict(written: int, found: Audit, crashes: int) -> str:
    words = "crash" if crashes == 1 else "crashes"
    return (
        f"{written:,} in, {found.counted:,} counted, {crashes} {words}, "
        f"{found.lost.total():,} lost, {found.doubled.total():,} doubled"
    )


def differences(written: int, expected: Counter[str], found: Audit, crashes: int, planned: int) -> list[str]:
    """Return a description of each mismatch."""
    wrong = []
    if expected.total() != written:
        wrong.append(f"{written:,} lines were written to the log, but it has {expected.total():,}")
    for url, count in found.lost.most_common(10):
        wrong.append(f"{url}: {count:,} of {expected[url]:,} requests were lost")
    for url, count in found.doubled.most_common(10):
        wrong.append(f"{url}: {count:,} counts in excess of the {expected[url]:,} requests in the log")
    if found.counted != written:
        wrong.append(f"{written:,} requests produced {found.counted:,} counts")
    if crashes != planned:
        wrong.append(f"{planned} crashes were planned, {crashes} were seen")
    return wrong


def top_urls(found: Audit, expected: Counter[str]) -> Table:
    table = Table(title="The ten URLs with the most requests", title_justify="left")
    table.add_column("URL")
    table.add_column("counted by the job", justify="right")
    table.add_column("lines in the log", justify="right")
    for url, count in found.final.most_common(10):
        table.add_row(url, f"{count:,}", f"{expected[url]:,}")
    return table


def demo(
    records: Annotated[int, typer.Option(min=EPOCHS, help="Requests in the access log.")] = 1_000_000,
    no_crashes: Annotated[bool, typer.Option("--no-crashes", help="Do not kill any process.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the work directory.")] = False,
) -> None:
    """Count the requests per URL of an access log on local Spark, surviving two crashes."""
    console = Console(highlight=False)
    work = Work(Path(tempfile.mkdtemp(prefix="penstock-demo-")))
    # SIGTERM ends the driver too, like Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        agrees = _run(console, work, records, crashes=not no_crashes)
        keep = keep or not agrees
    except KeyboardInterrupt:
        console.print("Stopped.")
        raise typer.Exit(130) from None
    except BaseException as error:  # keep the work directory for diagnosis
        keep = True
        if not isinstance(error, PenstockError):
            raise
        console.print(f"The demo failed: {error}", style="red", markup=False)
        raise typer.Exit(1) from None
    finally:
        if keep:
            console.print(f"The work directory is {work.root}", soft_wrap=True)
        else:
            shutil.rmtree(work.root, ignore_errors=True)
    if not agrees:
        raise typer.Exit(1)
    console.print(_NEXT, soft_wrap=True)


def _run(console: Console, work: Work, records: int, crashes: bool) -> bool:
    """Run the demo and return whether all counts match."""
    kills = [Kill("worker", KILL_WORKER_IN), Kill("driver", KILL_DRIVER_IN)] if crashes else []
    with Progress(console, records) as progress:
        progress.doing = "writing the access log"
        work.create()
        written = write_access_log(work.log, records, EPOCHS)
        progress.note(f"wrote an access log of {written:,} requests in {EPOCHS} files")
        Supervisor(work, progress, kills).run()
        progress.doing = "counting the log again in plain Python"
        progress.note(f"the job has ended; {progress.doing}")
        expected = count_urls(work.log)
        found = audit(expected, read_ledger(work.ledger))
        seen = progress.crashes
    console.print()
    console.print(top_urls(found, expected))
    wrong = differences(written, expected, found, seen, len(kills))
    console.print(verdict(written, found, seen), style="bold red" if wrong else "bold green", soft_wrap=True)
    for difference in wrong:
        console.print(difference, style="red", markup=False, soft_wrap=True)
    console.print()
    return not wrong


def _code(code: int) -> str:
    return f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"


def _interrupt(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(demo)
    app(prog_name="python -m penstock.cli.demo")


if __name__ == "__main__":
    main()
