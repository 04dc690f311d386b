"""The clock of a harness: the system clock, or one that the test controls."""

from __future__ import annotations

import time


class HarnessClock:
    """A clock in milliseconds. Once a test sets it, only the test advances it."""

    def __init__(self) -> None:
        self.shown: int | None = None
        """The wall-clock time set by the test. None means the system clock."""
        self._passed = 0.0
        """The time elapsed on the test's clock, not counting jumps."""

    def now(self) -> float:
        """Return the wall-clock time."""
        return time.time() * 1000 if self.shown is None else self.shown

    def elapsed(self) -> float:
        """Return the time of the monotonic clock."""
        return time.monotonic() * 1000 if self.shown is None else self._passed

    def wait(self, seconds: float) -> None:
        """Advance the test's clock without waiting."""
        if self.shown is not None:
            self.shown += round(seconds * 1000)
            self._passed += seconds * 1000

    def pass_until(self, milliseconds: int) -> bool:
        """Let time pass until the clock reaches a value. Return whether this is the first call that sets the clock."""
        if self.shown is not None:
            self._passed += max(0, milliseconds - self.shown)
        return self.jump(milliseconds)

    def jump(self, milliseconds: int) -> bool:
        """Set the clock without letting time pass. Return whether this is the first call that sets the clock."""
        first, self.shown = self.shown is None, milliseconds
        if first:
            self._passed = milliseconds
        return first
