"""What writers put aside for the driver to send at commit: files of the lineage, by epoch, named by their content.

Those of an epoch are needed until a later manifest is published, for a new driver commits the last one again. So a
driver removes what it has read when the next epoch is committed, and retention's sweep whatever else of earlier epochs
it finds: what failed attempts left, and what a driver did not live to remove.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from penstock.state.storage import Storage, StorageError

WAL = "wal/"
FORMER_WAL = "ahead/"
"""Where versions up to 0.1 wrote these files. A manifest names its own, so they are read wherever they are."""


def wal_name(epoch: int, digest: str) -> str:
    return f"{WAL}{epoch:012d}/{digest}.log"


class WriteAheadLog:
    """The files as the driver has them: one for all sinks, which may have put the same aside."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._read: dict[str, int] = {}

    def __reduce__(self) -> Any:
        # Copies of a sink are in tasks, which do not commit.
        return type(None), ()

    def noted(self, epoch: int, name: str) -> None:
        """The driver has this file to commit an epoch, or lets somebody read it."""
        self._read[name] = epoch

    def committed(self, epoch: int) -> None:
        """The manifest of `epoch` is published and all its sinks have committed: earlier ones are not asked for."""
        for name in [name for name, when in self._read.items() if when < epoch]:
            del self._read[name]
            # The sweep comes to what is left, and says what keeps it.
            with suppress(StorageError, OSError):
                self.storage.delete(name)
