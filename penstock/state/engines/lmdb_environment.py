"""LMDB files and how a process may hold them open: once, not across a fork, and not when they are damaged."""

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

__all__ = ["MAP_SIZE", "UNUSABLE", "LmdbEnvironment", "discard", "pinned"]

T = TypeVar("T")

# Where a map starts. Address space only, but YARN counts that too, so it is not simply enormous.
MAP_SIZE = 64 << 20

# What LMDB raises on files that are damaged or not its own. It has no checksums: a damaged page in the middle of a
# file may also go unnoticed, or abort the process.
UNUSABLE = (
    lmdb.InvalidError,
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
    lmdb.IncompatibleError,
    lmdb.BadDbiError,  # the file was cut off or replaced while it was open
    SystemError,  # py-lmdb's own, around one of the others, from a cursor that deletes
)

_CANNOT_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

# Each costs five file descriptors, of the 1,024 that a process often may have.
_KEPT_OPEN = 128

# How long a map that must grow waits for this process's other threads to end their readers.
_RESIZE_SECONDS = 60.0

# Room for 1,000 readers, far more than the workers of a host.
_LOCK_FILE_BYTES = 64 << 10

_FORMAT_KEY, _FORMAT = b"format", b"penstock 2"


class LmdbEnvironment:
    """One open LMDB file, shared by all threads of this process. Got from `pinned`, never made elsewhere."""

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
        # Before anything of the file is looked at.
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
            # The format of LMDB 0.9, whatever the environment of this process says.
            lib_version=0,
            mode=0o600,
        )
        try:
            # First: reading a page that was cut off would be a SIGBUS.
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
        # For writing even if nothing is: what is opened in a read transaction is closed with it.
        with self._lmdb.begin(write=True) as txn:
            # NotFoundError is another program's file, or one of a version of Penstock with another layout.
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
        """A read transaction, by default on `entries`."""
        txn = self._begin_read()
        try:
            yield txn
        finally:
            # In a forked child this would end the parent's transaction, in the memory they share.
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
        """Run `work` in a write transaction and commit. Where the map is too small, `work` is run again."""
        # An attempt that fails may have written pages too.
        with self._writing, self._stamp.changing():
            while True:
                try:
                    # A worker that was killed while reading would keep freed pages from being used again.
                    self._lmdb.reader_check()
                    with self._lmdb.begin(write=True) as txn:
                        result = work(txn)
                    break
                except lmdb.MapFullError:
                    self._resize(2 * self._lmdb.info()["map_size"])
                except lmdb.MapResizedError:
                    # Another process made it larger; 0 takes over its size.
                    self._resize(0)
                except lmdb.Error as error:
                    if error.code not in _CANNOT_WRITE:
                        raise
                    self.retired = True
                    raise _disk_error(self.directory, error) from error
            self._pad()
            return result

    def _resize(self, size: int) -> None:
        """Called with `_writing` held. LMDB drops every reader of this process, so there must be none."""
        with self._ended:
            if threading.get_ident() in self._readers.values():
                raise EngineError(
                    f"The map of the replica in {self.directory} must grow, but the same thread is reading from "
                    f"it. End the reader before applying."
                )
            if not self._ended.wait_for(lambda: not self._readers, _RESIZE_SECONDS):
                raise EngineError(
                    f"The map of the replica in {self.directory} must grow, but {len(self._readers)} readers of "
                    f"this process did not end within {_RESIZE_SECONDS:.0f} s. Readers are for one task."
                )
            self._lmdb.set_mapsize(size)

    def size_bytes(self) -> int:
        return self._data.stat().st_size

    def _expected_length(self) -> int:
        return (self._lmdb.info()["last_pgno"] + 1) * self._lmdb.stat()["psize"]

    def _check_length(self) -> None:
        if self._data.stat().st_size < self._expected_length():
            raise lmdb.CorruptedError(f"{self._data}: cut off")

    def _pad(self) -> None:
        """Keep `_check_length` honest: LMDB does not write a last page that was taken and freed within one
        transaction (once in a thousand random ones)."""
        if not self.is_current() or self._data.stat().st_size >= self._expected_length():
            return
        try:
            # With the write lock, for another process's growth must not be cut off. By path, for closing a descriptor
            # could release LMDB's locks.
            with self._lmdb.begin(write=True):
                if self._data.stat().st_size < self._expected_length():
                    os.truncate(self._data, self._expected_length())
        except lmdb.MapResizedError:
            # Another process has written since, and past this page.
            pass

    def verify(self) -> None:
        """Raise CorruptedError where anyone but a replica's writer changed the file since it was last written."""
        self._stamp.verify()

    def is_current(self) -> bool:
        """Whether its directory still leads to the file it has open."""
        return not self.retired and self._identity == _identity(self._data)

    def remove_files(self) -> None:
        """Called under the guard, exclusively. Who has the files open goes on with them, alone."""
        if self._identity == _identity(self._data):
            _remove(self._path)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._lmdb.close()
            self._stamp.close()
            self._marker.close()


class _Open:
    """The environments this process has open, least recently used first."""

    def __init__(self, inherited: dict[str, LmdbEnvironment]) -> None:
        self.lock = threading.Lock()
        self.environments: OrderedDict[str, LmdbEnvironment] = OrderedDict()
        # A forked child must not use its parent's, and keeps them from being collected, which would end the parent's
        # transactions.
        self.inherited = inherited


_open = _Open({})


def _after_fork() -> None:
    global _open
    _open = _Open({**_open.inherited, **_open.environments})


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def pinned(directory: str, map_size: int) -> Iterator[LmdbEnvironment]:
    """The environment of this replica, opened or kept from before, and not closed within the `with` block."""
    with _open.lock:
        environment = _current(directory, map_size)
        environment.pins += 1
    try:
        yield environment
    finally:
        # In a forked child it stays pinned, as it is in the parent.
        if environment.pid == os.getpid():
            with _open.lock:
                environment.pins -= 1
                if environment.retired and not environment.pins:
                    environment.close()


def discard(environment: LmdbEnvironment) -> None:
    """Delete the files of a replica that turned out damaged. Who holds a pin may finish."""
    environment.retired = True
    try:
        with _guard(environment.directory, fcntl.LOCK_EX):
            environment.remove_files()
    except FileNotFoundError:
        # Someone deleted the whole directory, which is as good.
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
    # LMDB tells readers apart by their process numbers, which are those of one namespace.
    boot, namespace = boot_id(), pid_namespace()
    path = Path(directory, f"{boot}-{namespace}" if namespace else boot)
    lock_file = path / "lock.mdb"
    try:
        os.makedirs(directory, exist_ok=True)
        if lock_file.exists():
            # The files must not be replaced between the opening of the one and the other.
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
            f"Cannot open the replica in {directory}: {error}. See that the directory may be written; deleting "
            f"it does no harm."
        ) from error


def _made(directory: str, path: Path, lock_file: Path, map_size: int) -> LmdbEnvironment:
    path.mkdir(exist_ok=True)
    if not lock_file.exists():
        # LMDB would leave holes in this file and map it: a full disk would be a SIGBUS, not an error.
        with open(lock_file, "xb", opener=_for_this_user) as file:
            os.posix_fallocate(file.fileno(), 0, _LOCK_FILE_BYTES)
    return LmdbEnvironment(directory, path, map_size)


@contextmanager
def _guard(directory: str, how: int) -> Iterator[None]:
    """Shared: while LMDB opens its files. Exclusive: while they are made or removed."""
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
        f"Cannot write the replica in {directory}: {error}. Free space on its disk, or move the replica root to "
        f"a larger one; nothing committed is lost."
    )
