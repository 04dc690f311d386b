"""Where durable things live: manifests, deltas, bases. Names are relative posix paths, contents are bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import BinaryIO

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.state.files import RESTORE

__all__ = [
    "TEMPORARY",
    "AlreadyPublished",
    "MissingObject",
    "Storage",
    "StorageError",
    "StorageUnreachable",
    "checked",
    "checked_prefix",
]

TEMPORARY = ".tmp-"
"""The prefix of files that are still being written. No object has a name with it."""


class StorageError(PenstockError):
    """A storage cannot do what was asked: a bad name or uri, a full disk, a file system without links."""


class AlreadyPublished(StorageError):
    """The name exists: someone else published it first.

    Operator action: none where one of two drivers of a job was thought dead, for the loser stops by itself. Otherwise
    look for a second driver that runs the same job.
    """

    def __init__(self, name: str, where: str) -> None:
        super().__init__(
            f"'{name}' is already published in {where}: another driver of this job got there first.",
            fix="See that only one is running.",
        )
        self.name = name


class MissingObject(StorageError):
    """A named object is not there.

    Operator action: a manifest names this file, so it must come back: restore it from a backup of the checkpoint
    directory, or start from an older checkpoint or a savepoint that does not need it. See that no other program
    cleans that directory. If the storage is a driver's memory, that driver has restarted: restart the job.
    """

    retryable = False

    def __init__(self, name: str, where: str, whose: str = "") -> None:
        super().__init__(
            f"'{name}'{whose and f', {whose},'} is missing in {where}.",
            fix=RESTORE,
        )
        self.name = name


class StorageUnreachable(StorageError):
    """The driver that serves its memory does not answer, or does not know this client's secret.

    Operator action: none while the job restarts, for the tasks of a driver that is gone fail like this. Otherwise see
    that executors can reach the driver's host and port.
    """


class Storage(ABC):
    """One place for durable objects. The driver publishes and deletes, tasks write and read, from many processes.

    A name is a relative posix path without `.` or `..`; any other is a StorageError. No object is ever changed: what
    is published stays, what is written is named by its content.
    """

    far = False
    """Whether a read waits for a network, so that several at once are faster."""
    in_memory = False
    """Whether the objects live in the driver's memory: tasks cannot write there, and all of it must stay small."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """What `open_storage` in another process turns into a storage on the same objects."""

    @property
    @abstractmethod
    def where(self) -> str:
        """The storage in words for people: never with a secret."""

    @abstractmethod
    def publish(self, name: str, data: bytes) -> None:
        """Put if absent, durable on return. Of all callers with one name exactly one returns, in whatever process;
        the others get AlreadyPublished. No two callers may give the same bytes: an object store tells by them whether
        a request that it got twice was the one that won."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Put a content-named object, durable on return. Writing it again, also at the same time, is harmless."""

    def write_file(self, name: str, file: BinaryIO) -> None:
        """As `write`, of an open file from where it stands to its end; piece by piece where the storage can."""
        self.write(name, file.read())

    @abstractmethod
    def read(self, name: str, at_most: int | None = None) -> bytes:
        """The whole object; MissingObject if there is none, StorageError if it has more than `at_most` bytes."""

    def view(self, name: str) -> pa.Buffer:
        """The object for `read_changes`, mapped instead of read where the storage can: a part costs a part."""
        return pa.py_buffer(self.read(name))

    @abstractmethod
    def exists(self, name: str) -> bool: ...

    def folders(self, prefix: str) -> list[str]:
        """The first parts of names that have several and start with this string, sorted."""
        return sorted({name.partition("/")[0] for name in self.list(prefix) if "/" in name})

    @abstractmethod
    def list(self, prefix: str) -> list[str]:
        """The names that start with this string, sorted; what is half written is never among them."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove the object if it is there."""

    def delete_below(self, directory: str) -> None:
        """Remove every object whose name starts with this one and a slash; what is half written too."""
        for name in self.list(f"{directory}/"):
            self.delete(name)

    def check(self) -> None:
        """Raise what keeps this storage from being used. Called by the driver before anything depends on it."""

    def close(self) -> None:
        """This object is not used any more. The objects stay where they are."""

    def _too_large(self, name: str, size: int, at_most: int) -> StorageError:
        return StorageError(
            f"'{name}' in {self.where} has {size:,} bytes; what belongs there has at most {at_most:,}.",
            fix="Restore the file from a copy. Nothing was changed.",
        )


def checked(name: str) -> str:
    if "\0" in name or any(part in ("", ".", "..") or part.startswith(TEMPORARY) for part in name.split("/")):
        raise StorageError(f"{name!r} is not a name: use a relative path with '/' and without '.' and '..'.")
    return name


def checked_prefix(prefix: str) -> str:
    checked(prefix + "x")
    return prefix
