"""How long the epochs took and how much they wrote."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from penstock.checkpoint.manifest import Manifest
from penstock.runtime.report import Report

_STATISTICS_KEPT = 10_000
"""Epochs whose statistics the driver remembers; a job may run for months."""


class EpochStatistics(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    records: int
    duration_ms: float
    """From trigger to committed sinks, where they commit beside the next epoch those of the one before."""
    cycle_ms: float
    """From the end of the epoch before, with what the engine does between two epochs."""
    delta_bytes: int
    delta_entries: int
    state_bytes: int
    base_bytes: int = 0
    """Of bases made since the epoch before, beside the epochs."""


class EpochLog:
    """The statistics of the last epochs, and the time since the end of the last one."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.recent: deque[EpochStatistics] = deque(maxlen=_STATISTICS_KEPT)
        self._monotonic = monotonic
        self._ended_at = monotonic()
        self._bases_counted = 0

    def add(
        self, manifest: Manifest, reports: Iterable[Report], records: int, duration_ms: float, bases_written: int
    ) -> EpochStatistics:
        """Note a completed epoch. `bases_written`: the bytes of all bases that this driver has made so far."""
        deltas = [delta for report in reports for part in report.operators for delta in part.deltas]
        statistics = EpochStatistics(
            number=manifest.id,
            records=records,
            duration_ms=duration_ms,
            cycle_ms=(self._monotonic() - self._ended_at) * 1000,
            delta_bytes=sum(delta.size for delta in deltas),
            delta_entries=sum(delta.entries for delta in deltas),
            state_bytes=sum(manifest.state_bytes(uid) for uid in manifest.keyed()),
            base_bytes=bases_written - self._bases_counted,
        )
        self._bases_counted = bases_written
        self._ended_at = self._monotonic()
        self.recent.append(statistics)
        return statistics

    def pause_left(self, min_pause_ms: int) -> float:
        """Seconds until this much time has passed since the last epoch ended; 0 before the first epoch."""
        if not self.recent:
            return 0
        return self._ended_at + min_pause_ms / 1000 - self._monotonic()

    def forget_clock(self) -> None:
        """Count the time since the last epoch from now on: the clock has been replaced."""
        self._ended_at = self._monotonic()
