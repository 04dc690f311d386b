"""Processing time: the machine's clock, protected against corrections while a job runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

_PACE_WHILE_AHEAD = 0.5
"""How fast processing time passes while it is ahead of the machine's clock. Timers still fire, within twice their
delay. After the machine's clock is set back by an hour, the two agree again two hours later."""

_LEAST_JUMP_MS = 1000
"""Smaller differences come from gradual clock corrections or a busy machine."""


class ProcessingClock:
    """Follow the machine's clock forward, including jumps, but never backward.

    A clock can be set back by a time server, an operator or a machine migration. Timers and idle sources must not
    stall until it catches up, so processing time continues from its last value at half the pace.
    """

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        """Both callables return seconds; only `wall` can jump."""
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._reached = float("-inf")
        self._reached_at = monotonic()

    def reach(self, milliseconds: int) -> None:
        """Never return less than `milliseconds` from now on, because an earlier driver already reached it."""
        with self._lock:
            self._reached = max(self._reached, milliseconds)

    def forget(self) -> None:
        with self._lock:
            self._reached, self._reached_at = float("-inf"), self._monotonic()

    def now(self) -> int:
        """Return milliseconds since 1970."""
        with self._lock:
            at = self._monotonic()
            passed = max(0.0, at - self._reached_at) * 1000
            self._reached = max(self._wall() * 1000, self._reached + passed * _PACE_WHILE_AHEAD)
            self._reached_at = at
            return int(self._reached)


class StepsBack:
    """Detect that the machine's clock was set back."""

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        """Both callables return seconds; only `wall` can jump."""
        self._wall = wall
        self._monotonic = monotonic
        self._lead = self._look()

    def seconds(self) -> float:
        """Return by how much the clock went back since the last call, or 0."""
        before, self._lead = self._lead, self._look()
        return max(0.0, before - self._lead)

    def _look(self) -> float:
        return self._wall() - self._monotonic()


class Jumps:
    """Find by how much processing time jumped forward between two epochs. Channels were not silent for that time."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last: tuple[int, float] | None = None

    def forget(self) -> None:
        """Drop the previous epoch: another driver ran it, or it is unknown."""
        self._last = None

    def since_last(self, timestamp: int) -> int:
        """Return the milliseconds by which the clock jumped ahead of elapsed time, up to an epoch that begins now."""
        if self._last is None:
            return 0
        before, at = self._last
        jumped = int(timestamp - before - (self._monotonic() - at) * 1000)
        return jumped if jumped >= _LEAST_JUMP_MS else 0

    def completed(self, timestamp: int, began: float) -> None:
        """Record that the epoch with this timestamp was published; it began at the monotonic time `began`."""
        self._last = timestamp, began


class DriverClocks:
    """The clocks of a driver. `wall` and `monotonic` return seconds; only `wall` can jump."""

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self.monotonic = monotonic
        self.processing = ProcessingClock(wall, monotonic)
        self.jumps = Jumps(monotonic)

    def now_ms(self) -> int:
        """Return the machine's time, for display."""
        return int(self._wall() * 1000)

    def ticks(self) -> int:
        """Return milliseconds on the monotonic clock."""
        return int(self.monotonic() * 1000)

    def elapsed_ms(self, started: float) -> int:
        """Return the milliseconds since `started`, which is in seconds on the monotonic clock."""
        return int((self.monotonic() - started) * 1000)

    def forget(self, last: int | None) -> None:
        """Reset after the clocks were replaced. `last` is the processing time of the last checkpoint."""
        self.processing.forget()
        self.jumps.forget()
        if last is not None:
            self.processing.reach(last)
