"""Statistics of epochs: how long they took and how much they wrote."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from penstock.driver.report_totals import ReportTotals

_STATISTICS_KEPT = 10_000
"""Epochs whose statistics the driver remembers. Bounded because a job can run for months."""


class EpochStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Duration and size of one epoch."""

    number: int
    records: int
    duration_ms: float
    """From trigger to committed sinks. With concurrent commits, this covers the commit of the previous epoch."""
    cycle_ms: float
    """From the end of the previous epoch, including the engine's work between the two epochs."""
    delta_bytes: int
    delta_entries: int
    state_bytes: int
    base_bytes: int = 0
    """Bytes of bases written concurrently since the previous epoch."""


class EpochLog:
    """Statistics of recent epochs, and the time since the last one ended."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.recent: deque[EpochStatistics] = deque(maxlen=_STATISTICS_KEPT)
        self._monotonic = monotonic
        self._ended_at = monotonic()
        self._bases_counted = 0

    def add(
        self, number: int, state_bytes: int, totals: ReportTotals, records: int, duration_ms: float, bases_written: int
    ) -> EpochStatistics:
        """Record a completed epoch.

        `state_bytes`: of all keyed state. `bases_written`: total bytes of bases that this driver has written so far.
        """
        statistics = EpochStatistics(
            number=number,
            records=records,
            duration_ms=duration_ms,
            cycle_ms=(self._monotonic() - self._ended_at) * 1000,
            delta_bytes=totals.delta_bytes,
            delta_entries=totals.delta_entries,
            state_bytes=state_bytes,
            base_bytes=bases_written - self._bases_counted,
        )
        self._bases_counted = bases_written
        self._ended_at = self._monotonic()
        self.recent.append(statistics)
        return statistics

    def pause_left(self, min_pause_ms: int) -> float:
        """Return the seconds left until `min_pause_ms` have passed since the last epoch; 0 before the first epoch."""
        if not self.recent:
            return 0
        return self._ended_at + min_pause_ms / 1000 - self._monotonic()

    def forget_clock(self) -> None:
        """Measure the time since the last epoch from now on, because the clock was replaced."""
        self._ended_at = self._monotonic()
