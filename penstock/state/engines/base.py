"""The interface of storage engines. A replica of one block is an ordered map from bytes to bytes, at a position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice

from penstock.errors import PenstockError
from penstock.state.files import GroupChanges

__all__ = ["Engine", "EngineError", "Reader"]

_DROPPED_AT_ONCE = 10_000


class EngineError(PenstockError):
    """A replica cannot be opened, read or advanced. No committed state is lost: replicas are caches.

    Operator action: follow the message; deleting the replica's directory is always safe.
    """


class Reader(ABC):
    """A consistent view of a replica at one moment, unaffected by later changes of any process.

    Created by ``Engine.reader`` and used by the process that created it, for one task: while a reader is open, the
    engine has to keep data that was overwritten since.
    """

    position: bytes | None
    """The position of the replica at that moment."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""

    @abstractmethod
    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries whose key starts with this prefix, sorted by key. Valid until the reader is closed."""

    @abstractmethod
    def between(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with ``start`` <= key < ``end``, sorted by key.

        If ``end`` is None, the range is unbounded. The cost is proportional to the number of entries. Valid until the
        reader is closed.
        """


class Engine(ABC):
    """One replica of one block. Keys, prefixes and values can have any length, including zero.

    A task that needs a version calls ``position``, applies the missing changes, and reads. If ``apply`` reports that
    another process was faster, the task starts over. At its end the task calls ``release``. Only ``apply``, ``reset``,
    ``drop`` and ``compact`` change a replica. Engines are thread-safe. If a thread applies to a replica it is reading,
    either its reader is unaffected or the apply is rejected.
    """

    @abstractmethod
    def position(self) -> bytes | None:
        """Return the position passed to the last ``apply``, or None for a replica that is new or was reset."""

    @abstractmethod
    def apply(self, expect: bytes | None, changes: Iterable[GroupChanges], position: bytes) -> bool:
        """Apply the changes in order and move to ``position``, atomically.

        If ``changes`` raises an exception, it propagates and nothing changes. An engine might iterate over the changes
        twice, and reads an iterator into a list first. Pass very large changes as an object that can be iterated
        repeatedly.

        Returns:
            False, with nothing changed, if the replica is not at ``expect``.
        """

    @abstractmethod
    def reset(self) -> None:
        """Empty the replica and clear its position, atomically."""

    @abstractmethod
    def reader(self) -> AbstractContextManager[Reader]:
        """Return a consistent view, open within the ``with`` block."""

    @abstractmethod
    def drop(self, expect: bytes, keys: list[bytes]) -> bool:
        """Delete entries that no version can see, atomically, and stay at the position.

        Returns:
            False, with nothing changed, if the replica is not at ``expect``.
        """

    def compact(self, keep: Callable[[bytes, bytes], bool] | None = None) -> int:
        """Drop the entries that ``keep`` rejects, free their space, and return how many were dropped.

        Stops early if another process advances the replica. Only some of the keys are in memory at a time.

        Args:
            keep: Decides by key and value whether an entry stays. It can reject only entries that are not visible to
                any version whose replay could start from here.
        """
        position = self.position()
        if keep is None or position is None:
            return 0
        dropped = 0
        start: bytes | None = b""
        while start is not None:
            with self.reader() as reader:
                if reader.position != position:
                    break
                refused = [key for key, _ in islice(_refused(reader, start, keep), _DROPPED_AT_ONCE)]
            if refused and not self.drop(position, refused):
                break
            dropped += len(refused)
            start = refused[-1] + b"\0" if len(refused) == _DROPPED_AT_ONCE else None
        return dropped

    def release(self) -> None:
        """End the use of this replica by a task, and release whatever other processes would wait for."""

    def trim(self) -> None:
        """Free the memory that a large apply has left behind. Only for replicas that no other process writes."""

    @abstractmethod
    def size_bytes(self) -> int:
        """Return the approximate size of the replica in memory or on disk."""

    @abstractmethod
    def close(self) -> None:
        """Release this object, which is not used afterwards. A replica on disk is kept, one in memory is lost."""


def _refused(reader: Reader, start: bytes, keep: Callable[[bytes, bytes], bool]) -> Iterator[tuple[bytes, bytes]]:
    return (entry for entry in reader.between(start, None) if not keep(*entry))
