"""Open LMDB files of a process: each open once, never used across a fork, and never if damaged."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import lmdb

from penstock.state.engines.base import EngineError
from penstock.state.engines.boot import boot_id, pid_namespace
from penstock.state.engines.lmdb_witness import Marker, Stamp, is_read

__all__ = ["MAP_SIZE", "UNUSABLE", "LmdbEnvironment", "close_unused", "discard", "forget", "pinned"]

T = TypeVar("T")

# Initial map size. It is only address space, but YARN counts that too, so it is not simply enormous.
MAP_SIZE = 64 << 20

# Errors that LMDB raises on damaged or foreign files. It has no checksums: a damaged page in the middle of a file can
# also go unnoticed or abort the process.
UNUSABLE = (
    lmdb.InvalidError,
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
    lmdb.IncompatibleError,
    lmdb.BadDbiError,  # the file was truncated or replaced while it was open
    SystemError,  # raised by py-lmdb around another error, from a cursor that deletes
)

_CANNOT_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

# Each takes five file descriptors, of often 1,024 per process.
_KEPT_OPEN = 128

# How long a map that must grow waits for other threads of this process to close their readers.
_RESIZE_SECONDS = 60.0

# Room for 1,000 readers, far more than a host has workers.
_LOCK_FILE_BYTES = 64 << 10

_FORMAT_KEY, _FORMAT = b"format", b"penstock 2"


class LmdbEnvironment:
    """One open LMDB file, shared by all threads of this process. Only `pinned` creates it."""

    def __init__(self, directory: str, path: Path, map_size: int) -> None:
        self.directory = directory
        self.pins = 0
        self.retired = False
        self._closed = False
        self._path = path
        self._data = path / "data.mdb"
        self.pid = os.getpid()
        self._writing = threading.Lock()
        self._ended = threading.Condition()
        self._readers: dict[lmdb.Transaction[bytes], int] = {}
        self._stamp = Stamp(path)
        self._marker = Marker(path)
        try:
            self._open(map_size)
        except BaseException:
            self._stamp.close()
            self._marker.close()
            raise

    def _open(self, map_size: int) -> None:
        # Before anything in the file is read.
        new = not self._data.exists()
        if not new:
            self._stamp.verify()
        size = 0 if new else self._data.stat().st_size
        self._lmdb = lmdb.open(
            str(self._path),
            map_size=max(map_size, 2 * size),
            sync=False,
            metasync=False,
            writemap=False,
            lock=True,
            max_dbs=3,
            # The format of LMDB 0.9, regardless of this process's environment variables.
            lib_version=0,
            mode=0o600,
        )
        try:
            # First, because reading a truncated page would cause a SIGBUS.
            self._check_length()
            self._lmdb.reader_check()
            self._marker.judge(self._lmdb.info()["last_txnid"])
            self._open_databases()
            if new:
                with self._stamp.changing():
                    pass
        except BaseException:
            self._lmdb.close()
            raise
        self._identity = _identity(self._data)

    def _open_databases(self) -> None:
        with self._lmdb.begin() as txn:
            new = txn.stat()["entries"] == 0
        # In a write transaction even if nothing is written: databases opened in a read transaction are closed with it.
        with self._lmdb.begin(write=True) as txn:
            # NotFoundError means another program's file, or one of a Penstock version with a different layout.
            try:
                self.entries = self._lmdb.open_db(b"entries", txn=txn, create=new)
                self.odd = self._lmdb.open_db(b"odd", txn=txn, create=new)
                self.meta = self._lmdb.open_db(b"meta", txn=txn, create=new)
            except lmdb.NotFoundError as error:
                raise lmdb.InvalidError(f"{self._path}: not a replica") from error
            if new:
                txn.put(_FORMAT_KEY, _FORMAT, db=self.meta)
            if txn.get(_FORMAT_KEY, db=self.meta) != _FORMAT:
                raise lmdb.InvalidError(f"{self._path}: a replica of another version")

    @contextmanager
    def reading(self) -> Iterator[lmdb.Transaction[bytes]]:
        """Open a read transaction, by default on `entries`."""
        txn = self._begin_read()
        try:
            yield txn
        finally:
            # In a forked child this would end the parent's transaction in shared memory.
            if self.pid == os.getpid():
                with self._ended:
                    del self._readers[txn]
                    txn.abort()
                    if not self._readers:
                        self._marker.clear()
                    self._ended.notify_all()

    def _begin_read(self) -> lmdb.Transaction[bytes]:
        while True:
            with self._ended:
                try:
                    txn = self._lmdb.begin(db=self.entries)
                    if not self._readers:
                        self._marker.set(txn.id())
                    self._readers[txn] = threading.get_ident()
                    return txn
                except lmdb.MapResizedError:
                    pass
            with self._writing:
                self._resize(0)

    def write(self, work: Callable[[lmdb.Transaction[bytes]], T]) -> T:
        """Run `work` in a write transaction and commit. If the map is too small, it grows and `work` runs again."""
        # A failed attempt can have written pages too, so it is stamped as well.
        with self._writing, self._stamp.changing():
            while True:
                try:
                    # A worker that was killed while reading would keep freed pages from being reused.
                    self._lmdb.reader_check()
                    with self._lmdb.begin(write=True) as txn:
                        result = work(txn)
                    break
                except lmdb.MapFullError:
                    self._resize(2 * self._lmdb.info()["map_size"])
                except lmdb.MapResizedError:
                    # Another process enlarged it; 0 adopts its size.
                    self._resize(0)
                except lmdb.Error as error:
                    if error.code not in _CANNOT_WRITE:
                        raise
                    self.retired = True
                    raise _disk_error(self.directory, error) from error
            self._pad()
            return result

    def _resize(self, size: int) -> None:
        """Resize the map, with `_writing` held. LMDB drops all readers of this process, so there must not be any."""
        with self._ended:
            if threading.get_ident() in self._readers.values():
                raise EngineError(
                    f"The map of the replica in {self.directory} must grow, but the same thread is reading from "
                    f"it. Close the reader before applying changes."
                )
            if not self._ended.wait_for(lambda: not self._readers, _RESIZE_SECONDS):
                raise EngineError(
                    f"The map of the replica in {self.directory} must grow, but {len(self._readers)} readers of "
                    f"this process were not closed within {_RESIZE_SECONDS:.0f} s. Keep a reader for one task only."
                )
            self._lmdb.set_mapsize(size)

    def size_bytes(self) -> int:
        """Return the size of the file."""
        return self._data.stat().st_size

    def _expected_length(self) -> int:
        return (self._lmdb.info()["last_pgno"] + 1) * self._lmdb.stat()["psize"]

    def _check_length(self) -> None:
        if self._data.stat().st_size < self._expected_length():
            raise lmdb.CorruptedError(f"{self._data}: truncated")

    def _pad(self) -> None:
        """Extend the file to the length that `_check_length` expects: LMDB does not write a last page that was
        allocated and freed within one transaction (once in a thousand random ones)."""
        if not self.is_current() or self._data.stat().st_size >= self._expected_length():
            return
        try:
            # With the write lock, in order not to truncate another process's growth. By path, because closing a
            # descriptor could release LMDB's locks.
            with self._lmdb.begin(write=True):
                if self._data.stat().st_size < self._expected_length():
                    os.truncate(self._data, self._expected_length())
        except lmdb.MapResizedError:
            # Another process has written since, beyond this page.
            pass

    def verify(self) -> None:
        """Raise CorruptedError if another program changed the file since it was last written."""
        self._stamp.verify()

    def is_current(self) -> bool:
        """Return whether the directory still contains the open file."""
        return not self.retired and self._identity == _identity(self._data)

    def remove_files(self) -> None:
        """Delete the files, with the guard held exclusively. Processes that have them open keep using them."""
        if self._identity == _identity(self._data):
            _remove(self._path)

    def close(self) -> None:
        """Close the file. Calling it again has no effect."""
        if not self._closed:
            self._closed = True
            self._lmdb.close()
            self._stamp.close()
            self._marker.close()


class _Open:
    """The open environments of this process, least recently used first."""

    def __init__(self, inherited: dict[str, LmdbEnvironment]) -> None:
        self.lock = threading.Lock()
        self.environments: OrderedDict[str, LmdbEnvironment] = OrderedDict()
        # A forked child must not use its parent's environments. It keeps references, because collecting them would end
        # the parent's transactions.
        self.inherited = inherited


_open = _Open({})


def _after_fork() -> None:
    global _open
    _open = _Open({**_open.inherited, **_open.environments})


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def pinned(directory: str, map_size: int) -> Iterator[LmdbEnvironment]:
    """Yield the environment of this replica, opened if necessary, and keep it open within the `with` block."""
    with _open.lock:
        environment = _current(directory, map_size)
        environment.pins += 1
    try:
        yield environment
    finally:
        # In a forked child it stays pinned, as in the parent.
        if environment.pid == os.getpid():
            with _open.lock:
                environment.pins -= 1
                if environment.retired and not environment.pins:
                    environment.close()


def forget(directory: str) -> None:
    """Close a replica that this process has open. Users that have it pinned can finish."""
    with _open.lock:
        environment = _open.environments.pop(directory, None)
        if environment is not None:
            environment.retired = True
            if not environment.pins:
                environment.close()


def close_unused(directory: str) -> None:
    """Close a replica of this process that nothing uses at this moment. The next use opens it."""
    with _open.lock:
        environment = _open.environments.get(directory)
        if environment is not None and not environment.pins:
            del _open.environments[directory]
            environment.close()


def discard(environment: LmdbEnvironment) -> None:
    """Delete the files of a damaged replica. Users that have it pinned can finish."""
    environment.retired = True
    try:
        with _guard(environment.directory, fcntl.LOCK_EX):
            environment.remove_files()
    except FileNotFoundError:
        # The complete directory was deleted, which has the same effect.
        pass


def _current(directory: str, map_size: int) -> LmdbEnvironment:
    environments = _open.environments
    environment = environments.get(directory)
    if environment is not None:
        if environment.is_current():
            environments.move_to_end(directory)
            return environment
        del environments[directory]
        environment.retired = True
        if not environment.pins:
            environment.close()
    inherited = _open.inherited.get(directory)
    if inherited is not None:
        if inherited.pins:
            raise EngineError(
                f"This process was forked while its parent was using the replica in {directory}, and cannot "
                f"open it. Fork before reading state, or start new processes (multiprocessing 'spawn')."
            )
        inherited.close()
        del _open.inherited[directory]
    environment = environments[directory] = _opened(directory, map_size)
    for name in [name for name, each in environments.items() if not each.pins][:-1]:
        if len(environments) <= _KEPT_OPEN:
            break
        environments.pop(name).close()
    return environment


def _opened(directory: str, map_size: int) -> LmdbEnvironment:
    # LMDB identifies readers by process id, which is unique only within a PID namespace.
    boot, namespace = boot_id(), pid_namespace()
    path = Path(directory, f"{boot}-{namespace}" if namespace else boot)
    lock_file = path / "lock.mdb"
    try:
        os.makedirs(directory, exist_ok=True)
        if lock_file.exists():
            # Prevents the files from being replaced while they are opened one after the other.
            with _guard(directory, fcntl.LOCK_SH):
                if lock_file.exists():
                    try:
                        return LmdbEnvironment(directory, path, map_size)
                    except UNUSABLE:
                        pass
        with _guard(directory, fcntl.LOCK_EX):
            for other in os.listdir(directory):
                place = Path(directory, other)
                if other not in ("guard", path.name) and not (other.startswith(boot) and is_read(place)):
                    shutil.rmtree(place, ignore_errors=True)
            try:
                return _made(directory, path, lock_file, map_size)
            except UNUSABLE:
                _remove(path)
                return _made(directory, path, lock_file, map_size)
    except (OSError, lmdb.Error) as error:
        number = error.code if isinstance(error, lmdb.Error) else error.errno
        if number in _CANNOT_WRITE:
            raise _disk_error(directory, error) from error
        raise EngineError(
            f"Cannot open the replica in {directory}: {error}. Make sure that the directory is writable; deleting "
            f"it is safe."
        ) from error


def _made(directory: str, path: Path, lock_file: Path, map_size: int) -> LmdbEnvironment:
    path.mkdir(exist_ok=True)
    if not lock_file.exists():
        # LMDB would create a sparse file and map it: a full disk would then cause a SIGBUS instead of an error.
        with open(lock_file, "xb", opener=_for_this_user) as file:
            os.posix_fallocate(file.fileno(), 0, _LOCK_FILE_BYTES)
    return LmdbEnvironment(directory, path, map_size)


@contextmanager
def _guard(directory: str, how: int) -> Iterator[None]:
    """Lock the directory: shared while LMDB opens its files, exclusive while they are created or removed."""
    with open(Path(directory, "guard"), "ab", opener=_for_this_user) as file:
        fcntl.flock(file, how)
        yield


def _for_this_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _remove(path: Path) -> None:
    gone = path.with_name(f"gone-{uuid.uuid4().hex}")
    os.rename(path, gone)
    shutil.rmtree(gone, ignore_errors=True)


def _identity(data: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(data)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _disk_error(directory: str, error: Exception) -> EngineError:
    return EngineError(
        f"Cannot write the replica in {directory}: {error}. Free space on its disk, or set state.backend.local-dir to "
        f"a larger one; no committed state is lost."
    )
