"""Run the garbage collector at a known rate, independent of the thresholds the program has set."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

_LEAST_RATIO = 100
"""After a collection of one second, wait at least 100 seconds: collections take at most 1 % of the time."""


class GarbageCollector:
    """Collects after `every` units of work, less often if collections are slow. Not thread-safe."""

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
        """Report that a unit of work (an epoch, a task) is done, and collect if it is time to."""
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
