"""How long a job's tasks take, as a test says: on a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from penstock.graph.physical import PhysicalGraph
from penstock.runtime.metrics import decode_metrics, encode_metrics


class Pace:
    """Without any pace, tasks take the time they take. With one, only what it says: the rest takes none."""

    def __init__(self, wait: Callable[[float], None]) -> None:
        """`wait` moves the clock."""
        self._wait = wait
        self._seconds: dict[str, float] = {}
        self._longest = 0.0

    def set(self, uid: str, seconds: float) -> None:
        """From now on each record that comes to this operator or source takes so long."""
        self._seconds[uid] = seconds

    def of_task(self, graph: PhysicalGraph, measured: bytes) -> bytes:
        """What a task measured, with the time that it is to have taken."""
        if not self._seconds:
            return measured
        task = decode_metrics(measured)
        chain = graph.chains[task.chain]
        uids = [operator.uid for operator in chain.operators] + [chain.source_uid or ""]
        seconds = task.records_in * sum(self._seconds.get(uid, 0.0) for uid in uids)
        self._longest = max(self._longest, seconds)
        return encode_metrics(replace(task, busy_ms=seconds * 1000))

    def end_stage(self) -> None:
        """The tasks of a stage run beside each other."""
        if self._seconds:
            self._wait(self._longest)
            self._longest = 0.0
