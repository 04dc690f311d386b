"""The clock of a harness: the machine's, or one that the test sets."""

from __future__ import annotations

import time


class HarnessClock:
    """Milliseconds. Once a test has set it, time passes only as the test says."""

    def __init__(self) -> None:
        self.shown: int | None = None
        """What the machine's clock shows; None where it is the real one."""
        self._passed = 0.0
        """What went by on the clock that the test set: a jump is not in it."""

    def now(self) -> float:
        """What the machine's clock shows."""
        return time.time() * 1000 if self.shown is None else self.shown

    def elapsed(self) -> float:
        """By a monotonic clock."""
        return time.monotonic() * 1000 if self.shown is None else self._passed

    def wait(self, seconds: float) -> None:
        """Where a driver would wait, a clock that was set goes on at once."""
        if self.shown is not None:
            self.shown += round(seconds * 1000)
            self._passed += seconds * 1000

    def pass_until(self, milliseconds: int) -> bool:
        """Let time pass until the clock shows this; True if it is the first time that the clock was set."""
        if self.shown is not None:
            self._passed += max(0, milliseconds - self.shown)
        return self.jump(milliseconds)

    def jump(self, milliseconds: int) -> bool:
        """Show this from now on, although no time passes; True if it is the first time that the clock was set."""
        first, self.shown = self.shown is None, milliseconds
        if first:
            self._passed = milliseconds
        return first
