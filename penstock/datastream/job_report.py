"""Log lines for the start, progress and end of a running job."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.checkpoint.manifest import Manifest
from penstock.common.console import Console
from penstock.common.job import JobStatus
from penstock.driver.epoch_statistics import EpochStatistics
from penstock.runtime.metrics import BACKLOG
from penstock.runtime.watermarks import GREATEST, LEAST

if TYPE_CHECKING:
    from penstock.spark.job import Job

_SECONDS_BETWEEN_STATUS = 1.0
_SECONDS_BETWEEN_LINES = 60.0
"""Without a terminal: often enough to see that a job makes progress, rarely enough for a log file."""
_SECONDS_OF_RATE = 10.0

_logger = logging.getLogger("penstock")


class JobReport:
    """Reports the progress of a job.

    Call ``started`` once the job has recovered, ``completed`` after each epoch, and ``ended`` at its end. The methods
    run in the job's threads, so they never raise or block.
    """

    def __init__(self, job: Job, console: Console | None, quiet: bool = False) -> None:
        self._job = job
        self._console = console if console is not None and console.takes_status and not quiet else None
        self._begun = time.monotonic()
        self._epochs = 0
        self._records = 0
        self._last: EpochStatistics | None = None
        self._recent: deque[tuple[float, int]] = deque()
        """The completion times and record counts of recent epochs."""
        self._announced = False
        self._over = threading.Event()

    def started(self, last: Manifest | None) -> None:
        """Log the start line and begin to show progress. ``last`` is the checkpoint that the job resumes from."""
        if self._announced:
            return
        self._announced = True
        _logger.info("%s", self._start_line(last))
        threading.Thread(target=self._show, name="penstock-progress", daemon=True).start()

    def completed(self, statistics: EpochStatistics) -> None:
        """Count a completed epoch."""
        self._epochs += 1
        self._records += statistics.records
        self._last = statistics
        now = time.monotonic()
        self._recent.append((now, statistics.records))
        while self._recent[0][0] < now - _SECONDS_OF_RATE:
            self._recent.popleft()

    def ended(self) -> None:
        """Stop showing progress and log the end line."""
        self._over.set()
        if self._console is not None:
            self._console.show_status("")
        failed = self._job.status() is JobStatus.FAILED
        _logger.log(logging.ERROR if failed else logging.INFO, "%s", self._end_line())

    def _start_line(self, last: Manifest | None) -> str:
        job, spec = self._job, self._job.spec
        if last is None:
            begins = "starts from scratch"
        elif spec.restore is not None and not last.parent:
            begins = f"starts from the savepoint {spec.restore.path}"
        else:
            begins = f"resumes from checkpoint {last.id}"
        parts = [f"Job '{spec.name}' ({job.id}) {begins}", f"parallelism {spec.parallelism}", self._checkpoints()]
        if job.web_ui is not None:
            parts.append(f"Spark UI {job.web_ui}")
        return ", ".join(parts) + "."

    def _checkpoints(self) -> str:
        spec = self._job.spec
        if not spec.checkpointing or spec.single_epoch:
            return "no checkpoints"
        where = "the driver's memory" if spec.checkpoint_root is None else spec.checkpoint_root.where
        return f"checkpoints every {_seconds(spec.interval_ms / 1000)} in {where}"

    def _end_line(self) -> str:
        job, name = self._job, self._job.spec.name
        did = {
            JobStatus.FINISHED: "finished" if job.savepoint_at_end is None else "stopped",
            JobStatus.FAILED: "failed",
            JobStatus.CANCELED: "was cancelled",
        }.get(job.status(), "stopped")
        parts = [
            f"Job '{name}' {did} after {_seconds(time.monotonic() - self._begun)}: "
            f"{_count(self._epochs, 'epoch')}, {_count(self._records, 'record')}."
        ]
        if job.savepoint_at_end is not None:
            parts.append(f"Resume it with: penstock run -s {job.savepoint_at_end} PROGRAM")
        elif job.status() not in (JobStatus.FINISHED, JobStatus.CANCELED):
            parts.append(self._how_to_resume())
        return " ".join(parts)

    def _how_to_resume(self) -> str:
        spec, last = self._job.spec, self._job.driver.last
        if not spec.checkpointing or spec.checkpoint_root is None:
            return "Its checkpoints do not outlive it, so the next start is from scratch."
        if last is None:
            return "It has no checkpoint yet, so the next start is from scratch."
        return f"Last checkpoint: {last.id}. Start the program again to resume from it."

    # -- progress --------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        shown = None
        while not self._over.wait(_SECONDS_BETWEEN_LINES if self._console is None else _SECONDS_BETWEEN_STATUS):
            if self._console is None:
                if self._last is not shown:
                    shown = self._last
                    _logger.info("Job '%s': %s.", self._job.spec.name, self.figures())
                continue
            self._console.show_status(f"{self._job.spec.name}: {self.figures()}")
            if self._over.is_set():
                self._console.show_status("")

    def figures(self) -> str:
        """Return a one-line summary of the job's progress."""
        job, last = self._job, self._last
        if last is None:
            return f"{job.status().name.lower()}, no epoch complete yet"
        parts = [f"epoch {last.number}", f"{self._rate():,.0f} records/s"]
        backlog = self._backlog()
        if backlog is not None:
            parts.append(f"backlog {backlog:,.0f}")
        watermark = _watermark(job.driver.last)
        if watermark is not None:
            parts.append(f"watermark {watermark}")
        parts.append(f"state {_size(last.state_bytes)}")
        if job.status() is not JobStatus.RUNNING:
            parts.append(job.status().name.lower())
        return ", ".join(parts)

    def _rate(self) -> float:
        now = time.monotonic()
        recent = [(at, records) for at, records in list(self._recent) if at >= now - _SECONDS_OF_RATE]
        seconds = min(_SECONDS_OF_RATE, now - self._begun)
        return sum(records for _, records in recent) / seconds if recent and seconds > 0 else 0.0

    def _backlog(self) -> float | None:
        flow = self._job.driver.flow
        waiting = [] if flow is None else [value for (_, name), value in flow.gauges().items() if name == BACKLOG]
        return sum(waiting) if waiting else None


def _watermark(last: Manifest | None) -> str | None:
    """Return the lowest watermark of all operators as a timestamp, or None if no operator has one."""
    if last is None:
        return None
    marks = [
        mark
        for time in last.times.values()
        for mark in [*time.subtasks, *(channel.watermark for channel in time.channels.values() if not channel.idle)]
    ]
    least = min(marks, default=LEAST)
    if least in (LEAST, GREATEST):
        return None
    try:
        return datetime.fromtimestamp(least / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(least)


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _size(count: int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000  # type: ignore[assignment]
    return f"{count:,.1f} TB"
