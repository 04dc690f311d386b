"""What a replica of one block can do, whichever engine holds it: ordered bytes → bytes, at a position."""

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
    """A replica cannot be opened, read or advanced. Nothing committed is lost: replicas are caches.

    Operator action: what the message says; deleting the replica's directory is always safe.
    """


class Reader(ABC):
    """What a replica held at one moment, whatever is applied meanwhile by whatever process.

    Made by `Engine.reader`, used by the process that made it, for one task: a reader that stays open makes an engine
    keep what was overwritten since.
    """

    position: bytes | None
    """The position the replica stood at in that moment."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None: ...

    @abstractmethod
    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries whose key starts with this prefix, sorted by key. Ends with the reader."""

    @abstractmethod
    def between(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """The entries with `start` <= key < `end`, or all from `start` on where `end` is None, sorted by key; costs
        what it gives. Ends with the reader."""


class Engine(ABC):
    """One replica of one block. Keys, prefixes and values have any length, none included.

    A task that wants a version asks `position`, applies what is missing, and reads; where `apply` says that another
    process was faster, it starts over; at its end it calls `release`. Nothing but `apply`, `reset`, `drop` and
    `compact` changes a replica. Threads may share an engine. A thread that applies to a replica it is reading leaves
    its reader as it is, or is refused.
    """

    @abstractmethod
    def position(self) -> bytes | None:
        """What was given as position to the last `apply`; None for a replica that is new or was reset."""

    @abstractmethod
    def apply(self, expect: bytes | None, changes: Iterable[GroupChanges], position: bytes) -> bool:
        """Apply the changes in their order and stand at `position`, all or nothing.

        False, and nothing is changed, where the replica does not stand at `expect`. What `changes` raises goes
        through, and nothing is changed. An engine may need to go through the changes twice: an iterator is read into
        a list first, so for very large changes pass something that can be iterated again.
        """

    @abstractmethod
    def reset(self) -> None:
        """Empty the replica, position included, all or nothing."""

    @abstractmethod
    def reader(self) -> AbstractContextManager[Reader]:
        """A consistent view, open within the `with` block."""

    @abstractmethod
    def drop(self, expect: bytes, keys: list[bytes]) -> bool:
        """Delete entries that nobody can see any more, and stay at the position, all or nothing.

        False, and nothing is changed, where the replica does not stand at `expect`.
        """

    def compact(self, keep: Callable[[bytes, bytes], bool] | None = None) -> int:
        """Drop the entries that `keep` refuses by key and value, give back their space, and say how many they were.

        `keep` may refuse only what nobody can see any more, for every version whose replay might start from here. Ends
        early where another process advances the replica meanwhile. Takes memory for a part of the keys at a time.
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
        """The task that used this replica is over: what another process would wait for is let go."""

    @abstractmethod
    def size_bytes(self) -> int:
        """About what the replica takes, of memory or of disk."""

    @abstractmethod
    def close(self) -> None:
        """This object is not used any more. A replica on disk stays, one in memory goes."""


def _refused(reader: Reader, start: bytes, keep: Callable[[bytes, bytes], bool]) -> Iterator[tuple[bytes, bytes]]:
    return (entry for entry in reader.between(start, None) if not keep(*entry))
