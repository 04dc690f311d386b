"""Storage for durable objects: manifests, deltas and bases. Names are relative POSIX paths, contents are bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import BinaryIO

import pyarrow as pa

from penstock.common.durable_files import TEMPORARY
from penstock.errors import PenstockError
from penstock.state.files import RESTORE

__all__ = [
    "AlreadyPublished",
    "MissingObject",
    "Storage",
    "StorageError",
    "StorageUnreachable",
    "checked",
    "checked_prefix",
]


class StorageError(PenstockError):
    """A storage operation failed: an invalid name or URI, a full disk, a file system without hard links.

    Operator action: correct the name or URI, or free space on the disk; the message names the storage.
    """


class AlreadyPublished(StorageError):
    """The name exists: another process published it first.

    Operator action: none if a second driver took over because this one was considered dead; the losing driver stops by
    itself. Otherwise look for a second driver that runs the same job.
    """

    def __init__(self, name: str, where: str) -> None:
        super().__init__(
            f"'{name}' is already published in {where}: another driver of this job got there first.",
            fix="Make sure that only one driver is running.",
        )
        self.name = name


class MissingObject(StorageError):
    """A named object does not exist.

    Operator action: a manifest references this file, so restore it from a backup of the checkpoint directory, or start
    from an older checkpoint or a savepoint that does not need it. Make sure that no other program deletes files from
    that directory. If the storage is a driver's memory, the driver has restarted: restart the job.
    """

    retryable = False

    def __init__(self, name: str, where: str, whose: str = "") -> None:
        super().__init__(
            f"'{name}'{whose and f', {whose},'} is missing in {where}.",
            fix=RESTORE,
        )
        self.name = name


class StorageUnreachable(StorageError):
    """The driver that serves its memory does not answer, or rejects this client's secret.

    Operator action: none while the job restarts, because tasks of a dead driver fail like this. Otherwise make sure
    that executors can reach the driver's host and port.
    """


class Storage(ABC):
    """Storage for immutable objects. The driver publishes and deletes; tasks in many processes write and read.

    A name is a relative POSIX path without `.` and `..`; any other raises StorageError. Objects never change: published
    objects keep their content, and written objects are named by their content.
    """

    far = False
    """Whether reads wait for a network, which makes concurrent reads worthwhile."""
    in_memory = False
    """Whether objects live in the driver's memory: tasks cannot write, and the total size must stay small."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The URI from which `open_storage` in another process opens the same objects."""

    @property
    @abstractmethod
    def where(self) -> str:
        """The storage's location for people to read; never contains a secret."""

    @abstractmethod
    def publish(self, name: str, data: bytes) -> None:
        """Put an object if its name is absent; durable on return.

        Of all callers with the same name, across processes, exactly one returns; the others get AlreadyPublished. No
        two callers can pass the same bytes: an object store compares them to find out whether the winner of a retried
        request was the request itself.
        """

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Put an object named by its content; durable on return. Repeated and concurrent writes are harmless."""

    def write_file(self, name: str, file: BinaryIO) -> None:
        """Write an open file from its current position to its end, piece by piece if the storage supports it."""
        self.write(name, file.read())

    @abstractmethod
    def read(self, name: str, at_most: int | None = None) -> bytes:
        """Return the complete object.

        Raises:
            MissingObject: The object does not exist.
            StorageError: The object is larger than `at_most` bytes.
        """

    def view(self, name: str) -> pa.Buffer:
        """Return the object for `read_changes`, memory-mapped if the storage can, so that a partial read is cheap."""
        return pa.py_buffer(self.read(name))

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Return whether the object exists."""

    def folders(self, prefix: str) -> list[str]:
        """Return the sorted first path components of all names that start with `prefix` and contain a slash."""
        return sorted({name.partition("/")[0] for name in self.list(prefix) if "/" in name})

    @abstractmethod
    def list(self, prefix: str) -> list[str]:
        """Return the sorted names that start with `prefix`, without incomplete files."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove the object if it exists."""

    def delete_all(self, names: Iterable[str]) -> None:
        """Remove the objects that exist, in any order."""
        for name in names:
            self.delete(name)

    def delete_below(self, directory: str) -> None:
        """Remove every object below a directory, and incomplete files."""
        for name in self.list(f"{directory}/"):
            self.delete(name)

    def check(self) -> None:
        """Raise an error if this storage is unusable. The driver calls it before anything depends on the storage."""

    def close(self) -> None:
        """Release resources; this instance is not used afterwards. Stored objects are kept."""

    def _too_large(self, name: str, size: int, at_most: int) -> StorageError:
        return StorageError(
            f"'{name}' in {self.where} has {size:,} bytes, but such a file has at most {at_most:,}.",
            fix="Restore the file from a copy. Nothing was changed.",
        )


def checked(name: str) -> str:
    """Return the object name, or raise StorageError if it is invalid."""
    if "\0" in name or any(part in ("", ".", "..") or part.startswith(TEMPORARY) for part in name.split("/")):
        raise StorageError(f"{name!r} is not a valid name: use a relative path with '/' and without '.' and '..'.")
    return name


def checked_prefix(prefix: str) -> str:
    """Return the prefix of object names, or raise StorageError if it is invalid."""
    checked(prefix + "x")
    return prefix
