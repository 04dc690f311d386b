"""Storage in a directory, with one file per object."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import pyarrow as pa

from penstock.common.durable_files import TEMPORARY, sync_directory
from penstock.state.files import map_file
from penstock.state.storage import (
    AlreadyPublished,
    MissingObject,
    Storage,
    StorageError,
    checked,
    checked_prefix,
)

__all__ = ["UNSYNCED_SCHEME", "LocalStorage"]

UNSYNCED_SCHEME = "scratch"
"""URI scheme of a directory that does not outlive the driver."""

# Errors that file systems without hard links return (FAT, some FUSE and network mounts).
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}

# Attempts of a write while deletes in other processes keep removing its directory because it is empty.
_PRUNED_RETRIES = 20

# Chunk size when a file is copied piece by piece.
_PIECE = 1 << 20


class LocalStorage(Storage):
    """A directory on a file system with hard links that every process of the job can access.

    Args:
        root: The directory.
        synced: Whether writes must survive a host crash. Data that ends with the driver does not need this; then the
            directory must exist, and tasks that write after the driver removed it fail.
    """

    def __init__(self, root: str | os.PathLike[str], *, synced: bool = True) -> None:
        self._root = Path(os.path.abspath(root))
        self._synced = synced
        self._durable: set[Path] = set()

    def __repr__(self) -> str:
        return f"LocalStorage({str(self._root)!r})"

    @property
    def root(self) -> Path:
        """The directory."""
        return self._root

    def below(self, name: str) -> LocalStorage:
        """Return the storage of all objects below a name."""
        return LocalStorage(self._root / checked(name), synced=self._synced)

    @property
    def uri(self) -> str:
        return self._root.as_uri() if self._synced else f"{UNSYNCED_SCHEME}://{quote(str(self._root))}"

    @property
    def where(self) -> str:
        return str(self._root)

    def check(self) -> None:
        name = f"probe-{secrets.token_hex(8)}"
        try:
            self.publish(name, b"")
        except StorageError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno in _NO_LINKS:
                raise
            raise StorageError(
                f"Cannot write to {self.where}: {_reason(self._root, error.__cause__)}.",
                fix="Set state.checkpoints.dir to a directory that this user can write to, on a disk with free space.",
            ) from error
        self.delete(name)

    def publish(self, name: str, data: bytes) -> None:
        self._put(name, data, lambda temp, path: self._link(temp, path, name))

    def write(self, name: str, data: bytes) -> None:
        self._put(name, data, os.replace)

    def write_file(self, name: str, file: BinaryIO) -> None:
        self._put(name, file, os.replace)

    def read(self, name: str, at_most: int | None = None) -> bytes:
        with self._opened(name) as (descriptor, size):
            if at_most is not None and size > at_most:
                raise self._too_large(name, size, at_most)
            try:
                with open(descriptor, "rb", closefd=False) as file:
                    return file.read()
            except MemoryError:
                raise StorageError(
                    f"Cannot read '{name}' from {self.uri}: it has {size:,} bytes, which do not fit into memory."
                ) from None

    def view(self, name: str) -> pa.Buffer:
        with self._opened(name) as (descriptor, _):
            return map_file(f"{_DESCRIPTORS}/{descriptor}")

    @contextmanager
    def _opened(self, name: str) -> Iterator[tuple[int, int]]:
        """Open a regular file; yield its descriptor and size. Reject all else: a FIFO or device might never end."""
        path = self._root / checked(name)
        try:
            # O_NONBLOCK opens a FIFO without waiting for a writer, so that it can be rejected.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                found = os.fstat(descriptor)
                if stat.S_ISDIR(found.st_mode):
                    raise MissingObject(name, self.uri)
                if not stat.S_ISREG(found.st_mode):
                    raise StorageError(
                        f"Cannot read '{name}' from {self.uri}: it is {_kind(found.st_mode)}, not a regular file.",
                        fix="Restore the file from a copy. Nothing was changed.",
                    )
                yield descriptor, found.st_size
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            raise MissingObject(name, self.uri) from None
        except OSError as error:
            raise self._unreadable(name, error) from error

    def _unreadable(self, name: str, error: OSError) -> StorageError:
        return StorageError(
            f"Cannot read '{name}' from {self.uri}: {error.strerror or error}. Check the disk or mount and the file's "
            f"permissions; nothing was changed."
        )

    def exists(self, name: str) -> bool:
        try:
            return (self._root / checked(name)).is_file()
        except OSError as error:
            raise self._unreadable(name, error) from error

    def folders(self, prefix: str) -> list[str]:
        """Return the directories that start with `prefix`. They are not opened: an unreadable one hides no other."""
        checked_prefix(prefix)
        try:
            with os.scandir(self._root) as entries:
                return sorted(
                    entry.name
                    for entry in entries
                    if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False)
                )
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._not_listed(error) from error

    def list(self, prefix: str) -> list[str]:
        start = self._root / checked_prefix(prefix).rpartition("/")[0]
        root = len(str(self._root))
        names = []
        try:
            for directory, _, files in os.walk(start, onerror=_raise_unless_gone):
                # Without pathlib, which would take longer than the walk.
                folder = os.fspath(directory)[root:].lstrip("/")
                names += [os.path.join(folder, file) for file in files if not file.startswith(TEMPORARY)]
        except OSError as error:
            raise self._not_listed(error) from error
        return sorted(name for name in names if name.startswith(prefix))

    def _not_listed(self, error: OSError) -> StorageError:
        return StorageError(
            f"Cannot list {error.filename or self._root}: {error.strerror or error}.",
            fix="Make sure that this user can read the directory. Nothing was changed.",
        )

    def link_among(self, *names: str) -> str | None:
        """Return the first of these names that is a symbolic link, or None."""
        return next((name for name in names if (self._root / checked(name)).is_symlink()), None)

    def delete(self, name: str) -> None:
        path = self._root / checked(name)
        try:
            path.unlink(missing_ok=True)
        except (IsADirectoryError, NotADirectoryError):
            return
        # Remove empty directories: deltas have one per epoch, and there are many epochs.
        for directory in path.parents:
            if directory == self._root:
                return
            try:
                directory.rmdir()
            except OSError:
                return
            self._durable.discard(directory)

    def delete_all(self, names: Iterable[str]) -> None:
        # A sweep of a large job deletes thousands of files per folder. With pathlib, and with an attempt to remove the
        # folder after each of them, this took twice as long.
        folders: dict[str, list[str]] = {}
        for name in names:
            folder, _, file = checked(name).rpartition("/")
            folders.setdefault(folder, []).append(file)
        root = os.fspath(self._root)
        for folder, files in folders.items():
            *others, last = files
            for file in others:
                with suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
                    os.unlink(f"{root}/{folder}/{file}")
            self.delete(f"{folder}/{last}" if folder else last)

    def delete_below(self, directory: str) -> None:
        path = self._root / checked(directory)
        self._durable.clear()
        added = 0
        # Another driver can be sweeping the same leftovers.
        while path.exists():
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                # A task that was stopping wrote one more file.
                added += 1
                if error.errno == errno.ENOTEMPTY and added < _PRUNED_RETRIES:
                    continue
                raise StorageError(
                    f"Cannot delete '{directory}' in {self.uri}: {error.strerror or error}.",
                    fix="Make sure that this user can delete files there, and that nothing else writes there.",
                ) from error

    def _put(self, name: str, data: bytes | BinaryIO, settle: Callable[[Path, Path], None]) -> None:
        start = 0 if isinstance(data, bytes) else data.tell()
        path = self._root / checked(name)
        temp = path.with_name(f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}")
        for attempt in range(_PRUNED_RETRIES):
            try:
                self._make_directory(path.parent)
                try:
                    with open(temp, "xb") as file:
                        if isinstance(data, bytes):
                            file.write(data)
                        else:
                            data.seek(start)
                            shutil.copyfileobj(data, file, _PIECE)
                        file.flush()
                        if self._synced:
                            os.fsync(file.fileno())
                    settle(temp, path)
                finally:
                    temp.unlink(missing_ok=True)
                if self._synced:
                    sync_directory(path.parent)
                return
            except OSError as error:
                # mkdir reports "exists" for a directory that is gone when it checks again.
                pruned = isinstance(error, (FileNotFoundError, FileExistsError))
                if pruned and attempt < _PRUNED_RETRIES - 1:
                    self._durable.clear()
                    continue
                raise StorageError(
                    f"Cannot write '{name}' to {self.uri}: {_reason(path.parent, error)}.",
                    fix="Make sure that the directory exists, is writable and has free space (state.checkpoints.dir).",
                ) from error

    def _link(self, temp: Path, path: Path, name: str) -> None:
        try:
            os.link(temp, path)
        except FileExistsError:
            # NFS can answer a retransmitted request with "exists" although the first one created our link.
            if os.stat(temp).st_nlink != 2:
                raise AlreadyPublished(name, self.uri) from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise StorageError(
                f"The file system of {self.uri} has no hard links, so two drivers could both believe that "
                f"they published '{name}'.",
                fix="Use a checkpoint directory on a file system with hard links (state.checkpoints.dir).",
            ) from error

    def _make_directory(self, directory: Path) -> None:
        """Create a directory durably. Existing directories below the root are synced as well, once per process: the
        process that created one might not have synced it yet."""
        if directory in self._durable:
            return
        inside = directory != self._root and directory.is_relative_to(self._root)
        if not (self._synced or inside or directory.is_dir()):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))
        if inside or not directory.is_dir():
            self._make_directory(directory.parent)
            directory.mkdir(exist_ok=True)
            if self._synced:
                sync_directory(directory.parent)
        self._durable.add(directory)


_DESCRIPTORS = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def _raise_unless_gone(error: OSError) -> None:
    # With an incomplete listing, garbage collection would assume that files are gone.
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


def _reason(directory: Path, error: OSError) -> str:
    for path in (directory, *directory.parents):
        if path.exists() and not path.is_dir():
            return f"{path} is not a directory"
    return error.strerror or str(error)
