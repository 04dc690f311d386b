"""What lies beside an LMDB file, which has no checksums of its pages, and tells when it is not to be trusted."""

from __future__ import annotations

import fcntl
import os
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from penstock.common.held import hold, is_held, leads_to

__all__ = ["Marker", "Stamp", "is_read"]

_MARK = struct.Struct(">?Q")
_SUSPECT_AFTER = 2
_READING = "reading-"


class Stamp:
    """When the file was last written by one who may, and how large it was: whoever else writes to it gives himself
    away. A writer that is killed between its commit and its stamp costs the replica."""

    _FORMAT = struct.Struct(">QQQ")

    def __init__(self, path: Path) -> None:
        self._data = path / "data.mdb"
        self._file = os.open(path / "stamp", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def verify(self) -> None:
        if self._is_right():
            return
        # Another process may be between its commit and its stamp.
        fcntl.flock(self._file, fcntl.LOCK_SH)
        try:
            if not self._is_right():
                raise lmdb.CorruptedError(f"{self._data}: changed by another program, or its writer was killed")
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Around what writes the file. One process at a time."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            try:
                os.pwrite(self._file, self._current() or b"", 0)
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._file)

    def _is_right(self) -> bool:
        current = self._current()
        # A file that is gone is not a changed one.
        return current is None or os.pread(self._file, self._FORMAT.size, 0) == current

    def _current(self) -> bytes | None:
        try:
            status = os.stat(self._data)
        except FileNotFoundError:
            return None
        return self._FORMAT.pack(status.st_mtime_ns, status.st_size, status.st_ino)


class Marker:
    """That this process is reading, and which version: a damaged page may end it by a signal, and every other that
    tries again. One dead reader says nothing, for processes are killed; two of one version make it suspect."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid = os.getpid()
        file = None
        while file is None:
            self._name = path / f"{_READING}{uuid.uuid4().hex}"
            file = hold(self._name)
        self._file = file

    def set(self, version: int) -> None:
        os.pwrite(self._file, _MARK.pack(True, version), 0)

    def clear(self) -> None:
        os.pwrite(self._file, _MARK.pack(False, 0), 0)

    def judge(self, version: int) -> None:
        """Raise CorruptedError where this version may have killed its readers; forget what the dead left otherwise."""
        suspicious = []
        for name in os.listdir(self._path):
            if name.startswith(_READING) and name != self._name.name and not is_held(self._path / name):
                if _marked_version(self._path / name) == version:
                    suspicious.append(name)
                else:
                    (self._path / name).unlink(missing_ok=True)
        if len(suspicious) >= _SUSPECT_AFTER:
            raise lmdb.CorruptedError(f"{self._path}: {len(suspicious)} processes died while they were reading it")

    def close(self) -> None:
        try:
            # Not in a forked child, and not that of the replica that was made in this one's place.
            if self._pid == os.getpid() and leads_to(self._name, self._file):
                self._name.unlink()
        except FileNotFoundError:
            pass
        os.close(self._file)


def is_read(path: Path) -> bool:
    """Whether a process has the file in this directory open."""
    try:
        return any(name.startswith(_READING) and is_held(path / name) for name in os.listdir(path))
    except OSError:
        return False


def _marked_version(marker: Path) -> int | None:
    try:
        is_set, version = _MARK.unpack(marker.read_bytes())
    except (OSError, struct.error):
        return None
    return version if is_set else None
