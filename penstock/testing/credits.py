"""Credits from the driver to the sources of a harness, in one process."""

from __future__ import annotations

from collections.abc import Callable


class Credits:
    """The credits of a harness. ``backlog(uid)`` returns the number of records waiting in a source."""

    def __init__(self, backlog: Callable[[str], int | None]) -> None:
        self.backlog = backlog
        self.granted: dict[str, int] = {}
        """Credits for the next epoch by source uid. Empty without flow control."""

    def grant(self, uid: str, records: int) -> None:
        """Set how many records an epoch can read from a source."""
        self.granted[uid] = records
