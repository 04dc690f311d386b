"""How a process may hold a replica open: one process writes, any number read, none across a fork.

A replica's place is a directory with a `guard` file, whose lock its writer holds, and one database in a directory that
is named after the boot of the host and a random number. Nothing is ever made anew under an old name: who has a
database open that was deleted or replaced never writes into its successor.
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

# How long an apply waits for another process that holds a replica and does not advance it. Such a one was stopped, or
# belongs to an attempt that was given up.
_WAIT_SECONDS = 2.0
_WAIT_STEP = 0.01

_PRIVATE, _OWNER = "private-", "owner"


class Database:
    """One open database: for writing, or as it was when it was opened."""

    def __init__(self, path: Path, db: rocksdict.Rdict, writable: bool) -> None:
        self.path = path
        self.db = db
        self.writable = writable
        self.record = ReplicaRecord.read(db)
        self.pins = 0
        self._retired = False

    def is_current(self) -> bool:
        return not self._retired and os.path.exists(self.path)

    def let_go(self) -> None:
        """Close it, now or when its last reader ends. Called with the slot's lock, as `unpin` is."""
        self._retired = True
        if not self.pins:
            close_database(self.db)

    def unpin(self) -> None:
        self.pins -= 1
        if self._retired and not self.pins:
            close_database(self.db)

    def remove(self) -> None:
        """Delete the files. Who has them open goes on with them, alone."""
        self._retired = True
        gone = self.path.with_name(f"gone-{uuid.uuid4().hex}")
        try:
            os.rename(self.path, gone)
        except OSError:
            # Someone was faster, which is as good; what cannot be renamed is met again when it is opened.
            return
        shutil.rmtree(gone, ignore_errors=True)


class Slot:
    """The replica of one directory in this process. Everything here is called with its lock held."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.lock = threading.RLock()
        self._database: Database | None = None
        # Held as long as the database is open for writing, and when another takes its place.
        self._guard: int | None = None
        self._release = False
        # Whether the view of a database that another process writes was looked at.
        self._seen = True
        self._private: _PrivatePlace | None = None

    def look(self, options: RocksDbOptions, *, again: bool = False) -> Database:
        """The database as it stands now, for writing where no other process has it so. `again`: who has just looked
        may get the same view of another process's."""
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
            # What cannot be read while another process writes it may be read a moment later.
            self._wait(deadline)

    def writing(self, options: RocksDbOptions, expect: bytes | None) -> Database | None:
        """The database, for writing. None where it stands elsewhere than `expect`, or another process keeps it: then
        the next look shows what that one made of it, or a replica of this process's own."""
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
        """Put a database that was built beside this one in its place."""
        os.rename(built, built.with_name(_new_name()))
        self.discard(database)

    def discard(self, database: Database) -> None:
        """Delete a database's files; the next look finds a new one."""
        database.remove()
        if database is self._database:
            self.forget()

    def forget(self) -> None:
        if self._database is not None:
            self._database.let_go()
            self._database = None
        if self._guard is not None:
            os.close(self._guard)
            self._guard = None

    def unpin(self, database: Database) -> None:
        database.unpin()
        if self._release:
            self.release()

    def release(self) -> None:
        """Let other processes write, now or when the last reader ends."""
        self._release = self._database is not None and self._database.pins > 0
        if not self._release:
            self.forget()

    def abandon(self) -> None:
        """In a forked child: closing would wait for threads that only the parent has."""
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
        """The database of a place, made if there is none or a damaged one; None while another process has it."""
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
                f"Cannot open the replica in {self.directory}: {error}. See that the directory may be written; "
                f"deleting it does no harm."
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
                    # Its writer may just have replaced files that this one was about to open.
                    continue
        return None


class _PrivatePlace:
    """Where a process keeps a replica of its own, because another process has the shared one. Held while it lives."""

    def __init__(self, shared: Path) -> None:
        owner = None
        while owner is None:
            self.path = shared / f"{_PRIVATE}{uuid.uuid4().hex}"
            os.makedirs(self.path)
            # A sweep may take it for what a dead process left, until it is held.
            with suppress(FileNotFoundError):
                owner = hold(self.path / _OWNER)
        self.owner = owner

    def remove(self) -> None:
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
        # Someone may have deleted the directory in between.
        if leads_to(path, guard):
            return guard
        os.close(guard)


def _sweep(place: Path) -> Path:
    """The one database of this place, or where to make it; what else is there goes. Called with the guard."""
    databases = []
    for name in os.listdir(place):
        if name in ("guard", _OWNER) or (name.startswith(_PRIVATE) and is_held(place / name / _OWNER)):
            continue
        if name.startswith(boot_id() + ".") and (place / name / "CURRENT").exists():
            databases.append(name)
            continue
        _delete(place / name)
    # Two, where a writer was killed after it had put a new one beside the old: either is whole.
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
    """The replica of this directory, as this process has it."""
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
