"""The duration of a job's tasks, set by a test on a clock that only the test advances."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from penstock.graph.physical import PhysicalGraph
from penstock.runtime.metrics import decode_metrics, encode_metrics


class Pace:
    """Task durations. Without any pace, tasks take their real time; with one, all other work takes no time."""

    def __init__(self, wait: Callable[[float], None]) -> None:
        """Create a pace. ``wait`` advances the clock."""
        self._wait = wait
        self._seconds: dict[str, float] = {}
        self._longest = 0.0

    def set(self, uid: str, seconds: float) -> None:
        """Set the time that each record takes in an operator or source."""
        self._seconds[uid] = seconds

    def of_task(self, graph: PhysicalGraph, measured: bytes) -> bytes:
        """Return the metrics of a task with its simulated duration."""
        if not self._seconds:
            return measured
        task = decode_metrics(measured)
        chain = graph.chains[task.chain]
        uids = [operator.uid for operator in chain.operators] + [chain.source_uid or ""]
        seconds = task.records_in * sum(self._seconds.get(uid, 0.0) for uid in uids)
        self._longest = max(self._longest, seconds)
        return encode_metrics(replace(task, busy_ms=seconds * 1000))

    def end_stage(self) -> None:
        """Advance the clock by the longest task of a stage, because tasks of a stage run concurrently."""
        if self._seconds:
            self._wait(self._longest)
            self._longest = 0.0
