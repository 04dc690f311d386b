"""Processing time: the machine's clock, made fit for a job that outlives its corrections."""

from __future__ import annotations

import threading
from collections.abc import Callable

_PACE_WHILE_AHEAD = 0.5
"""How fast processing time passes while it is ahead of the machine's clock: timers still fire, within twice their time,
and after a clock that went back by an hour both agree again two hours later."""

_LEAST_JUMP_MS = 1000
"""Smaller differences are those of clocks that are corrected slowly, or of a busy machine."""


class ProcessingClock:
    """Follows the machine's clock forward, also over a jump, and never goes back.

    A clock that went back (a time server, an operator, a machine that was moved) must not stop timers and idle sources
    until it has caught up. So processing time then goes on, at half the pace, from where it was.
    """

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        """Both give seconds; only `wall` can jump."""
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._reached = float("-inf")
        self._reached_at = monotonic()

    def reach(self, milliseconds: int) -> None:
        """Do not show less than this from now on: a driver before this one has been here."""
        with self._lock:
            self._reached = max(self._reached, milliseconds)

    def forget(self) -> None:
        with self._lock:
            self._reached, self._reached_at = float("-inf"), self._monotonic()

    def now(self) -> int:
        """Milliseconds since 1970."""
        with self._lock:
            at = self._monotonic()
            passed = max(0.0, at - self._reached_at) * 1000
            self._reached = max(self._wall() * 1000, self._reached + passed * _PACE_WHILE_AHEAD)
            self._reached_at = at
            return int(self._reached)


class StepsBack:
    """Notices that the machine's clock was set back."""

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        """Both give seconds; only `wall` can jump."""
        self._wall = wall
        self._monotonic = monotonic
        self._lead = self._look()

    def seconds(self) -> float:
        """By how much it went back since the last call; 0 if it did not."""
        before, self._lead = self._lead, self._look()
        return max(0.0, before - self._lead)

    def _look(self) -> float:
        return self._wall() - self._monotonic()


class Jumps:
    """Finds by how much processing time jumped forward between two epochs: silence that was not there."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last: tuple[int, float] | None = None

    def forget(self) -> None:
        """The epoch before was another driver's, or is unknown."""
        self._last = None

    def since_last(self, timestamp: int) -> int:
        """Milliseconds that the clock moved and that did not pass, up to an epoch that begins now."""
        if self._last is None:
            return 0
        before, at = self._last
        jumped = int(timestamp - before - (self._monotonic() - at) * 1000)
        return jumped if jumped >= _LEAST_JUMP_MS else 0

    def completed(self, timestamp: int, began: float) -> None:
        """The epoch of this timestamp, which began at this monotonic time, is published."""
        self._last = timestamp, began


class DriverClocks:
    """The clocks of a driver. `wall` and `monotonic` give seconds; only `wall` can jump."""

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self.monotonic = monotonic
        self.processing = ProcessingClock(wall, monotonic)
        self.jumps = Jumps(monotonic)

    def now_ms(self) -> int:
        """The machine's time, for people."""
        return int(self._wall() * 1000)

    def ticks(self) -> int:
        """Milliseconds by the monotonic clock."""
        return int(self.monotonic() * 1000)

    def elapsed_ms(self, started: float) -> int:
        """Milliseconds since `started`, in seconds by the monotonic clock."""
        return int((self.monotonic() - started) * 1000)

    def forget(self, last: int | None) -> None:
        """Start over: the clocks were replaced. `last`: processing time of the last checkpoint."""
        self.processing.forget()
        self.jumps.forget()
        if last is not None:
            self.processing.reach(last)
