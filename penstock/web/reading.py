"""One read of state: how far it has come, and whether the viewer has stopped it."""

from __future__ import annotations


class ReadStopped(Exception):
    """The viewer stopped a read of state."""


class Reading:
    """Shared by the thread that reads and the page that shows the progress."""

    def __init__(self) -> None:
        self.count = 0
        self.share = 0.0
        self._stopped = False

    def stop(self) -> None:
        """End the read at its next step."""
        self._stopped = True

    def step(self, count: int, share: float) -> None:
        """Note the progress: rows or keys so far, and the share of the state. Raises ReadStopped."""
        self.count, self.share = count, share
        if self._stopped:
            raise ReadStopped(f"Stopped after {count:,} rows.")

    @property
    def text(self) -> str:
        """The progress in words."""
        return f"Reading … {self.count:,} rows, {self.share:.0%}" if self.count else "Reading …"
