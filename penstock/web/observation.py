"""What the page remembers of a job between snapshots, as a snapshot alone does not show what changes or stands still.

A `Watch` takes the snapshots of one job in order. It has no clock: the times are those of the snapshots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from penstock.driver.job_snapshot import JobSnapshot, VertexSnapshot
from penstock.runtime.metrics import BACKLOG, DEAD_LETTERS, LATE_RECORDS
from penstock.web.chosen_metrics import values_of

_KEPT = 240
"""Observations kept for charts: 20 minutes at one every 5 s."""
_MOST_FOLLOWED = 40
"""Metrics of a job whose values are kept for charts that viewers chose: about 100 kB each."""
_LEAST_MS = 1000
"""Snapshots closer to the previous one than this are not kept."""


class Moment(NamedTuple):
    """A job at one time."""

    at_ms: int
    epoch: int
    backlog: dict[str, int]
    """Records that wait, by uid of the source."""
    watermark_lag_ms: int | None
    """How far the lowest watermark is behind the clock; None without watermarks."""
    rate: float
    """Records per second that the sources read."""


class Standing(NamedTuple):
    """A watermark, and since when it has this value."""

    watermark: int | None
    since_ms: int
    records: int
    """Records that the vertex had received then."""


class Watch:
    """The recent past of one job."""

    def __init__(self) -> None:
        self.moments: deque[Moment] = deque(maxlen=_KEPT)
        self.standing: dict[str, Standing] = {}
        """By id of the vertex."""
        self.increased_ms: dict[tuple[str, str], int] = {}
        """When a counter last increased, by vertex id and full name of the metric."""
        self.followed: dict[str, deque[tuple[int, dict[str, float]]]] = {}
        """Values of the metrics that viewers chose, with their times, by key. See `chosen_metrics`."""
        self._counts: dict[tuple[str, str], int] = {}
        self._attempt = (0, 0)

    def observe(self, job: JobSnapshot) -> None:
        """Add a snapshot. One that is not newer than the last is ignored."""
        if self.moments and job.taken_ms < self.moments[-1].at_ms + _LEAST_MS:
            return
        attempt = (job.attempt, job.restarts)
        if attempt != self._attempt:
            # Watermarks and backlogs begin again.
            self._attempt = attempt
            self.standing.clear()
            self.moments.clear()
        lags = [job.taken_ms - value for vertex in job.vertices if (value := watermark_of(vertex)) is not None]
        self.moments.append(
            Moment(
                at_ms=job.taken_ms,
                epoch=job.epochs,
                backlog=backlog_of(job),
                watermark_lag_ms=max(lags, default=None),
                rate=source_rate(job),
            )
        )
        for vertex in job.vertices:
            self._observe_watermark(vertex, job.taken_ms)
            self._observe_counters(vertex, job.taken_ms)

        for key, values in self.followed.items():
            values.append((job.taken_ms, values_of(job, key)))

    def follow(self, key: str) -> deque[tuple[int, dict[str, float]]]:
        """Keep the values of a metric from now on, and return those kept so far."""
        # The one that was asked for last is the last to go.
        known = self.followed.pop(key, None)
        self.followed[key] = known if known is not None else deque(maxlen=_KEPT)
        while len(self.followed) > _MOST_FOLLOWED:
            del self.followed[next(iter(self.followed))]
        return self.followed[key]

    def _observe_watermark(self, vertex: VertexSnapshot, now: int) -> None:
        watermark = watermark_of(vertex)
        before = self.standing.get(vertex.id)
        if before is None or before.watermark != watermark:
            self.standing[vertex.id] = Standing(watermark, now, vertex.totals.records_in)

    def _observe_counters(self, vertex: VertexSnapshot, now: int) -> None:
        for name, values in vertex.metrics.items():
            if not name.endswith((f".{LATE_RECORDS}", f".{DEAD_LETTERS}")):
                continue
            count = int(sum(value or 0 for value in values))
            # A restart keeps the counts; another driver begins at 0.
            if count and count != self._counts.get((vertex.id, name)):
                self.increased_ms[vertex.id, name] = now
            self._counts[vertex.id, name] = count


class Watches:
    """The watches of all jobs."""

    def __init__(self) -> None:
        self._of: dict[str, Watch] = {}

    def observe(self, jobs: Iterable[JobSnapshot]) -> None:
        """Add the snapshots of all jobs, and forget jobs that are not among them."""
        known, self._of = self._of, {}
        for job in jobs:
            watch = self._of[job.id] = known.get(job.id) or Watch()
            watch.observe(job)

    def keep(self, job: JobSnapshot) -> None:
        """Add the snapshot of one job."""
        self._of.setdefault(job.id, Watch()).observe(job)

    def of(self, job_id: str) -> Watch:
        """Return the watch of a job, which is empty if the job is new."""
        return self._of.get(job_id) or Watch()


def backlog_of(job: JobSnapshot) -> dict[str, int]:
    """Return the records that wait in each source that reports them."""
    return {
        vertex.uid: int(vertex.driver_metrics[BACKLOG]) for vertex in job.vertices if BACKLOG in vertex.driver_metrics
    }


def source_rate(job: JobSnapshot) -> float:
    """Return the records per second that the sources read in the last epoch."""
    return sum(each.records_in_rate for vertex in job.vertices if not vertex.inputs for each in vertex.subtasks)


def watermark_of(vertex: VertexSnapshot) -> int | None:
    """Return the lowest watermark of the subtasks, or None before they all have one."""
    found = [each.watermark for each in vertex.subtasks]
    return None if not found or None in found else min(value for value in found if value is not None)
