"""Collections of garbage at a known rate, whatever the program did to the thresholds of Python's collector."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

_LEAST_RATIO = 100
"""A collection that took one second is followed by 100 seconds without one: it costs 1 % of the time at most."""


class GarbageCollector:
    """Collects after every `every` units of work, more rarely where that takes long. Used by one thread at a time."""

    def __init__(
        self,
        every: int,
        collect: Callable[[], object] = gc.collect,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._every = every
        self._collect = collect
        self._clock = clock
        self._done = 0
        self._not_before = 0.0

    def work_done(self) -> None:
        """One unit of work (an epoch, a task) is over; now is a good moment."""
        self._done += 1
        if self._done < self._every:
            return
        began = self._clock()
        if began < self._not_before:
            return
        self._collect()
        self._done = 0
        ended = self._clock()
        self._not_before = ended + _LEAST_RATIO * (ended - began)
