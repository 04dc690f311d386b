"""Where durable things live: manifests, deltas, bases. Names are relative posix paths, contents are bytes."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.state.files import RESTORE, map_file
from penstock.state.serving import ObjectServer, client_for

__all__ = [
    "AlreadyPublished",
    "DriverStorage",
    "LocalStorage",
    "MissingObject",
    "RemoteDriverStorage",
    "Storage",
    "StorageError",
    "StorageUnreachable",
    "checked",
    "checked_prefix",
    "open_storage",
]


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


def open_storage(uri: str) -> Storage:
    """Open, in any process, the storage whose `uri` this is. Opening touches neither disk nor network."""
    parts = urlsplit(uri)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return LocalStorage(unquote(parts.path))
    if parts.scheme == _NOT_SYNCED and not parts.netloc and parts.path.startswith("/"):
        return LocalStorage(unquote(parts.path), synced=False)
    if parts.scheme == "driver":
        return RemoteDriverStorage(uri)
    if "://" in uri and parts.scheme not in ("", "file"):
        from penstock.state.object_storage import ObjectStorage

        return ObjectStorage.from_uri(uri)
    # Only the scheme: the rest of a mistyped driver uri holds a secret.
    raise StorageError(f"No storage for a uri with scheme '{parts.scheme}'.", fix="Use an absolute file:///... uri.")


_NOT_SYNCED = "scratch"
_TEMP = ".tmp-"
_HERE = "the driver's memory"


def checked(name: str) -> str:
    if "\0" in name or any(part in ("", ".", "..") or part.startswith(_TEMP) for part in name.split("/")):
        raise StorageError(f"{name!r} is not a name: use a relative path with '/' and without '.' and '..'.")
    return name


def checked_prefix(prefix: str) -> str:
    checked(prefix + "x")
    return prefix


# Errors by which file systems (FAT, some FUSE and network mounts) say that they have no hard links.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}

# How often a write starts over because a delete in another process removed the directory, empty until then.
_PRUNED_RETRIES = 20

# What is copied at once of a file that is written piece by piece.
_PIECE = 1 << 20


class LocalStorage(Storage):
    """A directory on a file system that every process of the job sees and that has hard links."""

    def __init__(self, root: str | os.PathLike[str], *, synced: bool = True) -> None:
        """`synced`: whether what is written survives a crash of the host. Not needed of what ends with the driver: then
        the directory must be there, and a task that writes when the driver has removed it fails."""
        self._root = Path(os.path.abspath(root))
        self._synced = synced
        self._durable: set[Path] = set()

    def __repr__(self) -> str:
        return f"LocalStorage({str(self._root)!r})"

    @property
    def root(self) -> Path:
        return self._root

    def below(self, name: str) -> LocalStorage:
        """The storage of what has this name and a slash in front."""
        return LocalStorage(self._root / checked(name), synced=self._synced)

    @property
    def uri(self) -> str:
        return self._root.as_uri() if self._synced else f"{_NOT_SYNCED}://{quote(str(self._root))}"

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
                f"Nothing can be written to {self.where}: {_reason(self._root, error.__cause__)}.",
                fix="Set state.checkpoints.dir to a directory that this user may write, on a disk that is not full.",
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
                raise too_large(name, self.uri, size, at_most)
            try:
                with open(descriptor, "rb", closefd=False) as file:
                    return file.read()
            except MemoryError:
                raise StorageError(
                    f"Cannot read '{name}' from {self.uri}: it has {size:,} bytes, more than memory takes."
                ) from None

    def view(self, name: str) -> pa.Buffer:
        with self._opened(name) as (descriptor, _):
            return map_file(f"{_DESCRIPTORS}/{descriptor}")

    @contextmanager
    def _opened(self, name: str) -> Iterator[tuple[int, int]]:
        """The descriptor and size of a regular file. Nothing else is read: a FIFO or a device may never end."""
        path = self._root / checked(name)
        try:
            # O_NONBLOCK: a FIFO is opened without a writer, and then refused.
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
            f"Cannot read '{name}' from {self.uri}: {error.strerror or error}. See that the disk or mount is well and "
            f"that the file may be read; nothing was changed."
        )

    def exists(self, name: str) -> bool:
        try:
            return (self._root / checked(name)).is_file()
        except OSError as error:
            raise self._unreadable(name, error) from error

    def folders(self, prefix: str) -> list[str]:
        """Without a look into them: one that cannot be read hides no other."""
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
        names = []
        try:
            for directory, _, files in os.walk(start, onerror=_raise_unless_gone):
                base = Path(directory).relative_to(self._root)
                names += [(base / file).as_posix() for file in files if not file.startswith(_TEMP)]
        except OSError as error:
            raise self._not_listed(error) from error
        return sorted(name for name in names if name.startswith(prefix))

    def _not_listed(self, error: OSError) -> StorageError:
        return StorageError(
            f"Cannot list {error.filename or self._root}: {error.strerror or error}.",
            fix="See that this user may read the directory. Nothing was changed.",
        )

    def link_among(self, *names: str) -> str | None:
        """The first of these names that is a link; None if none is."""
        return next((name for name in names if (self._root / checked(name)).is_symlink()), None)

    def delete(self, name: str) -> None:
        path = self._root / checked(name)
        try:
            path.unlink(missing_ok=True)
        except (IsADirectoryError, NotADirectoryError):
            return
        # Deltas live in a directory per epoch, and epochs are many.
        for directory in path.parents:
            if directory == self._root:
                return
            try:
                directory.rmdir()
            except OSError:
                return
            self._durable.discard(directory)

    def delete_below(self, directory: str) -> None:
        path = self._root / checked(directory)
        self._durable.clear()
        added = 0
        # Another driver may sweep the same leftovers.
        while path.exists():
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                # A task that was told to stop had a last file in hand.
                added += 1
                if error.errno == errno.ENOTEMPTY and added < _PRUNED_RETRIES:
                    continue
                raise StorageError(
                    f"Cannot delete '{directory}' in {self.uri}: {error.strerror or error}.",
                    fix="See that this user may delete there, and that nothing else writes there.",
                ) from error

    def _put(self, name: str, data: bytes | BinaryIO, settle: Callable[[Path, Path], None]) -> None:
        start = 0 if isinstance(data, bytes) else data.tell()
        path = self._root / checked(name)
        temp = path.with_name(f"{_TEMP}{os.getpid()}-{secrets.token_hex(8)}")
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
                    _fsync_directory(path.parent)
                return
            except OSError as error:
                # mkdir says "exists" of a directory that is gone when it looks again.
                pruned = isinstance(error, (FileNotFoundError, FileExistsError))
                if pruned and attempt < _PRUNED_RETRIES - 1:
                    self._durable.clear()
                    continue
                raise StorageError(
                    f"Cannot write '{name}' to {self.uri}: {_reason(path.parent, error)}.",
                    fix="See that the directory exists, has free space and may be written (state.checkpoints.dir).",
                ) from error

    def _link(self, temp: Path, path: Path, name: str) -> None:
        try:
            os.link(temp, path)
        except FileExistsError:
            # NFS may answer a request that was sent twice with "exists" although the first one made our link.
            if os.stat(temp).st_nlink != 2:
                raise AlreadyPublished(name, self.uri) from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise StorageError(
                f"The file system of {self.uri} has no hard links, so two drivers could both believe that "
                f"they published '{name}'.",
                fix="Use a checkpoint directory on a file system that has them (state.checkpoints.dir).",
            ) from error

    def _make_directory(self, directory: Path) -> None:
        """Create it such that it survives a crash. Within the root a directory that is already there is synced too,
        once per process: the process that made it may not have come so far yet."""
        if directory in self._durable:
            return
        inside = directory != self._root and directory.is_relative_to(self._root)
        if not (self._synced or inside or directory.is_dir()):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))
        if inside or not directory.is_dir():
            self._make_directory(directory.parent)
            directory.mkdir(exist_ok=True)
            if self._synced:
                _fsync_directory(directory.parent)
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


def too_large(name: str, where: str, size: int, at_most: int) -> StorageError:
    return StorageError(
        f"'{name}' in {where} has {size:,} bytes; what belongs there has at most {at_most:,}.",
        fix="Restore the file from a copy. Nothing was changed.",
    )


def _raise_unless_gone(error: OSError) -> None:
    # A listing with holes would have garbage collection believe that files are gone.
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


def _reason(directory: Path, error: OSError) -> str:
    for path in (directory, *directory.parents):
        if path.exists() and not path.is_dir():
            return f"{path} is not a directory"
    return error.strerror or str(error)


def _fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DriverStorage(Storage):
    """The memory of the driver process: versions live as long as it does. Tasks read through its `uri`.

    Nothing listens until `uri` is asked for. The uri holds the secret that lets a client in: hand it to tasks, show
    it to nobody. `close` ends the serving; the driver itself goes on using the objects.
    """

    in_memory = True

    def __init__(self, host: str = "127.0.0.1") -> None:
        """`host` is where tasks reach the driver, and the only address it listens on."""
        self._objects: dict[str, bytes] = {}
        self._server = ObjectServer(self._objects, host)
        # One that nobody closed has a thread that would listen to the end of the process.
        weakref.finalize(self, self._server.close)
        self._publishing = threading.Lock()

    def __repr__(self) -> str:
        return f"DriverStorage({len(self._objects)} objects)"

    @property
    def uri(self) -> str:
        try:
            host, port = self._server.address()
        except OSError as error:
            raise StorageError(
                f"Tasks cannot be given the driver's memory: {error}. If the host is wrong, set the address "
                f"under which executors reach the driver."
            ) from error
        return f"driver://{host}:{port}/{self._server.secret}"

    @property
    def where(self) -> str:
        return _HERE

    def publish(self, name: str, data: bytes) -> None:
        with self._publishing:
            if checked(name) in self._objects:
                raise AlreadyPublished(name, _HERE)
            self._objects[name] = data

    def write(self, name: str, data: bytes) -> None:
        self._objects[checked(name)] = data

    def read(self, name: str, at_most: int | None = None) -> bytes:
        try:
            return self._objects[checked(name)]
        except KeyError:
            raise MissingObject(name, _HERE) from None

    def exists(self, name: str) -> bool:
        return checked(name) in self._objects

    def list(self, prefix: str) -> list[str]:
        checked_prefix(prefix)
        return sorted(name for name in self._objects.copy() if name.startswith(prefix))

    def delete(self, name: str) -> None:
        self._objects.pop(checked(name), None)

    def close(self) -> None:
        """Stop serving and hang up on clients. May be called again."""
        self._server.close()


class RemoteDriverStorage(Storage):
    """A driver's memory as tasks in other processes see it: they read, everything else is a StorageError."""

    in_memory = True

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        secret = parts.path.removeprefix("/")
        if parts.scheme != "driver" or host is None or port is None or not secret:
            raise StorageError("Not the uri of a driver's memory. Pass on DriverStorage.uri as it is.")
        self._uri = uri
        self._address = (host, port)
        self._secret = secret
        self._where = f"the memory of the driver at {host}:{port}"

    def __repr__(self) -> str:
        return f"RemoteDriverStorage({self._address[0]}:{self._address[1]})"

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def where(self) -> str:
        return self._where

    def read(self, name: str, at_most: int | None = None) -> bytes:
        checked(name)
        try:
            data = client_for(self._address, self._secret).read(name)
        except OSError as error:
            raise StorageUnreachable(
                f"Cannot read '{name}' from {self._where}: {error}. Is it running, and reachable from here?"
            ) from None
        if data is None:
            raise MissingObject(name, self._where)
        return data

    def publish(self, name: str, data: bytes) -> None:
        raise self._read_only()

    def write(self, name: str, data: bytes) -> None:
        raise self._read_only()

    def exists(self, name: str) -> bool:
        raise self._read_only()

    def list(self, prefix: str) -> list[str]:
        raise self._read_only()

    def delete(self, name: str) -> None:
        raise self._read_only()

    def _read_only(self) -> StorageError:
        return StorageError(f"Tasks only read from {self._where}. Set a checkpoint directory to write files.")
