"""Credits in the harness: from the driver to the sources, in one process."""

from __future__ import annotations

from collections.abc import Callable


class Credits:
    """`backlog(uid)` says what waits in a source."""

    def __init__(self, backlog: Callable[[str], int | None]) -> None:
        self.backlog = backlog
        self.granted: dict[str, int] = {}
        """By uid, for the next epoch; empty in a program without flow control."""

    def grant(self, uid: str, records: int) -> None:
        """Set how many records an epoch can take from a source."""
        self.granted[uid] = records
