"""Open RocksDB replicas of a process: one process writes, any number read, and none is used across a fork.

A replica's directory contains a `guard` file, whose lock the writer holds, and one database in a directory named after
the boot of the host and a random number. Names are never reused: a process with a deleted or replaced database open
never writes to its successor.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

import rocksdict

from penstock.common.held import hold, is_held, leads_to
from penstock.state.engines.base import EngineError
from penstock.state.engines.boot import boot_id
from penstock.state.engines.rocksdb_database import (
    LockedDatabase,
    ReplicaRecord,
    RocksDbOptions,
    UnusableDatabase,
    close_database,
    open_database,
    translating,
)

__all__ = ["Database", "Slot", "slot"]

# How long an apply waits for another process that holds a replica without advancing it. That process was stopped, or
# belongs to an abandoned attempt.
_WAIT_SECONDS = 2.0
_WAIT_STEP = 0.01

_PRIVATE, _OWNER = "private-", "owner"


class Database:
    """One open database: for writing, or read-only in the state in which it was opened."""

    def __init__(self, path: Path, db: rocksdict.Rdict, writable: bool) -> None:
        self.path = path
        self.db = db
        self.writable = writable
        self.record = ReplicaRecord.read(db)
        self.pins = 0
        self._retired = False

    def is_current(self) -> bool:
        """Return whether the database is still in use and its directory exists."""
        return not self._retired and os.path.exists(self.path)

    def let_go(self) -> None:
        """Close the database, now or when its last reader ends. Like `unpin`, called with the slot's lock held."""
        self._retired = True
        if not self.pins:
            close_database(self.db)

    def unpin(self) -> None:
        """End a reader, and close the database if it is retired and this was the last one."""
        self.pins -= 1
        if self._retired and not self.pins:
            close_database(self.db)

    def remove(self) -> None:
        """Delete the files. Processes that have them open keep using them."""
        self._retired = True
        gone = self.path.with_name(f"gone-{uuid.uuid4().hex}")
        try:
            os.rename(self.path, gone)
        except OSError:
            # Another process was faster, which has the same effect; a failed rename shows up at the next opening.
            return
        shutil.rmtree(gone, ignore_errors=True)


class Slot:
    """The replica of one directory in this process. All methods are called with its lock held."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.lock = threading.RLock()
        self._database: Database | None = None
        # Held while the database is open for writing, and while another one replaces it.
        self._guard: int | None = None
        self._release = False
        # Whether the view of a database that another process writes was used already.
        self._seen = True
        self._private: _PrivatePlace | None = None

    def look(self, options: RocksDbOptions, *, again: bool = False) -> Database:
        """Return the current database, for writing unless another process has it open for writing.

        With `again`, the call can return the read-only view that the previous call opened.
        """
        self._release = False
        database = self._database
        if database is not None and database.is_current() and (database.writable or (again and not self._seen)):
            self._seen = True
            return database
        self.forget()
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            self._database = self._open(options)
            self._seen = again
            if self._database is not None:
                return self._database
            # A database that cannot be read while another process writes it might be readable a moment later.
            self._wait(deadline)

    def writing(self, options: RocksDbOptions, expect: bytes | None) -> Database | None:
        """Return the database for writing, or None if its position is not `expect` or another process keeps it.

        In the latter case, the next `look` returns that process's changes or a private replica of this process.
        """
        database = self.look(options, again=True)
        deadline = time.monotonic() + _WAIT_SECONDS
        while database.record.position == expect:
            if database.writable:
                return database
            if not self._wait(deadline):
                return None
            database = self.look(options)
        return None

    def _wait(self, deadline: float) -> bool:
        if time.monotonic() < deadline:
            time.sleep(_WAIT_STEP)
            return True
        if self._private is None:
            self._private = _PrivatePlace(Path(self.directory))
        self.forget()
        return False

    def replace(self, database: Database, built: Path) -> None:
        """Replace a database with one that was built next to it."""
        os.rename(built, built.with_name(_new_name()))
        self.discard(database)

    def discard(self, database: Database) -> None:
        """Delete a database's files; the next look finds an empty one."""
        database.remove()
        if database is self._database:
            self.forget()

    def forget(self) -> None:
        """Close the database and release the guard."""
        if self._database is not None:
            self._database.let_go()
            self._database = None
        if self._guard is not None:
            os.close(self._guard)
            self._guard = None

    def unpin(self, database: Database) -> None:
        """End a reader, and complete a pending release."""
        database.unpin()
        if self._release:
            self.release()

    def release(self) -> None:
        """Let other processes write, now or when the last reader ends."""
        self._release = self._database is not None and self._database.pins > 0
        if not self._release:
            self.forget()

    def abandon(self) -> None:
        """Leave the database open in a forked child: closing would wait for threads that only the parent has."""
        if self._database is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._database.db))
        if self._guard is not None:
            # The lock belongs to the open file, which the parent still has.
            os.close(self._guard)
        if self._private is not None:
            os.close(self._private.owner)

    def _open(self, options: RocksDbOptions) -> Database | None:
        opened = self._open_for_writing(Path(self.directory), options)
        if opened is not None:
            if self._private is not None:
                self._private.remove()
                self._private = None
            return opened
        if self._private is not None:
            return self._open_for_writing(self._private.path, options)
        return self._open_for_reading(options)

    def _open_for_writing(self, place: Path, options: RocksDbOptions) -> Database | None:
        """Open the database of a place, created if missing or damaged; None if another process holds it."""
        try:
            os.makedirs(place, exist_ok=True)
            self._guard = _lock(place)
            if self._guard is None:
                return None
            try:
                path = _sweep(place)
                try:
                    return _open(path, options, self.directory)
                except UnusableDatabase:
                    shutil.rmtree(path, ignore_errors=True)
                    return _open(place / _new_name(), options, self.directory)
            except BaseException:
                os.close(self._guard)
                self._guard = None
                raise
        except LockedDatabase:
            return None
        except (OSError, UnusableDatabase) as error:
            raise EngineError(
                f"Cannot open the replica in {self.directory}: {error}. Make sure that the directory is writable; "
                f"deleting it is safe."
            ) from error

    def _open_for_reading(self, options: RocksDbOptions) -> Database | None:
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return None
        for name in names:
            if name.startswith(boot_id() + "."):
                try:
                    return _open(Path(self.directory, name), options, self.directory, read_only=True)
                except UnusableDatabase:
                    # The writer might have replaced files that this process was about to open.
                    continue
        return None


class _PrivatePlace:
    """Directory of a private replica, for a process that cannot get the shared one. Locked while in use."""

    def __init__(self, shared: Path) -> None:
        owner = None
        while owner is None:
            self.path = shared / f"{_PRIVATE}{uuid.uuid4().hex}"
            os.makedirs(self.path)
            # Until it is held, a sweep might delete it as the leftover of a dead process.
            with suppress(FileNotFoundError):
                owner = hold(self.path / _OWNER)
        self.owner = owner

    def remove(self) -> None:
        """Delete the private replica."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.owner)


def _open(path: Path, options: RocksDbOptions, directory: str, *, read_only: bool = False) -> Database:
    with translating(directory):
        return Database(path, open_database(path, options, directory, read_only=read_only), not read_only)


def _lock(place: Path) -> int | None:
    path = place / "guard"
    while True:
        try:
            guard = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            os.makedirs(place, exist_ok=True)
            continue
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(guard)
            return None
        # The directory might have been deleted in between.
        if leads_to(path, guard):
            return guard
        os.close(guard)


def _sweep(place: Path) -> Path:
    """Return the path of this place's only database, or a path for a new one, and delete everything else. Called with
    the guard held."""
    databases = []
    for name in os.listdir(place):
        if name in ("guard", _OWNER) or (name.startswith(_PRIVATE) and is_held(place / name / _OWNER)):
            continue
        if name.startswith(boot_id() + ".") and (place / name / "CURRENT").exists():
            databases.append(name)
            continue
        _delete(place / name)
    # There are two if a writer was killed after it put a new one next to the old one. Both are complete.
    for name in databases[1:]:
        _delete(place / name)
    return place / (databases[0] if databases else _new_name())


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _new_name() -> str:
    return f"{boot_id()}.{uuid.uuid4().hex[:12]}"


class _Slots:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_directory: dict[str, Slot] = {}


_slots = _Slots()


def slot(directory: str) -> Slot:
    """Return this process's slot for a directory."""
    with _slots.lock:
        found = _slots.by_directory.get(directory)
        if found is None:
            found = _slots.by_directory[directory] = Slot(directory)
        return found


def _after_fork() -> None:
    global _slots
    for each in _slots.by_directory.values():
        each.abandon()
    _slots = _Slots()


os.register_at_fork(after_in_child=_after_fork)
