"""Run the garbage collector at a known rate, or not at all for a moment, whatever thresholds the program has set."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LEAST_RATIO = 100
"""After a collection of one second, wait at least 100 seconds: collections take at most 1 % of the time."""


class CollectionPause:
    """A pause of the collector. `lifted` interrupts it for code of the user."""

    def __init__(self) -> None:
        self._enabled = gc.isenabled()

    def begin(self) -> None:
        """Collect nothing from now on."""
        gc.disable()

    def end(self) -> None:
        """Collect again, unless the program had disabled the collector."""
        if self._enabled:
            gc.enable()

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Collect garbage inside the context, unless the program or another pause had disabled the collector.

        The objects that were created during the pause do not count: the collector runs once there are as many new ones.
        It would otherwise begin with a visit to all of them.
        """
        if not self._enabled:
            yield
            return
        with _thresholds.raised(2 * gc.get_count()[0]):
            gc.enable()
            try:
                yield
            finally:
                gc.disable()


class _Thresholds:
    """Raises the first threshold of the collector. Several drivers of one process can do so at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._raising = 0
        self._before = self._now = gc.get_threshold()

    @contextmanager
    def raised(self, more: int) -> Iterator[None]:
        """Raise the threshold inside the context. Zero, which turns the collector off, stays zero."""
        with self._lock:
            if not self._raising:
                self._before = gc.get_threshold()
            self._raising += 1
            first, *others = self._before
            gc.set_threshold(first + more if first else 0, *others)
            self._now = gc.get_threshold()
        try:
            yield
        finally:
            with self._lock:
                self._raising -= 1
                # Code in the context might have set others.
                if not self._raising and gc.get_threshold() == self._now:
                    gc.set_threshold(*self._before)


_thresholds = _Thresholds()


@contextmanager
def collection_paused() -> Iterator[CollectionPause]:
    """Collect no garbage inside the context, for work that creates many objects and no cycles.

    While thousands of objects are created and kept, Python visits all that are alive over and over: decoding the
    reports of 5,000 tasks took 13 µs each instead of 4. Let these objects go out of scope before the context ends.
    """
    pause = CollectionPause()
    pause.begin()
    try:
        yield pause
    finally:
        pause.end()


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
