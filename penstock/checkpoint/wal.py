"""Write-ahead log: records that writers stage for the driver to send at commit, in content-named files per epoch.

The files of an epoch are needed until a later manifest is published, because a new driver commits the last epoch again.
A driver removes the files it has read once the next epoch is committed. The retention sweep removes all other files of
earlier epochs: those of failed attempts, and those that a driver died before removing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from penstock.state.storage import Storage, StorageError

WAL = "wal/"
FORMER_WAL = "ahead/"
"""Folder used by versions up to 0.1. A manifest names its files, so they are read from either folder."""


def wal_name(epoch: int, digest: str) -> str:
    return f"{WAL}{epoch:012d}/{digest}.log"


class WriteAheadLog:
    """The driver's view of the files, shared by all sinks, which might have staged identical files."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._read: dict[str, int] = {}

    def __reduce__(self) -> Any:
        # Tasks have copies of the sink but do not commit.
        return type(None), ()

    def noted(self, epoch: int, name: str) -> None:
        """Record that the driver reads this file to commit an epoch, or lets another reader use it."""
        self._read[name] = epoch

    def committed(self, epoch: int) -> None:
        """Remove files of earlier epochs, once `epoch` is published and all its sinks have committed."""
        for name in [name for name, when in self._read.items() if when < epoch]:
            del self._read[name]
            # The sweep retries failed deletions and reports their cause.
            with suppress(StorageError, OSError):
                self.storage.delete(name)
