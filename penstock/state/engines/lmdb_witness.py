"""Files next to an LMDB file that show whether to trust it, because LMDB has no page checksums."""

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
    """Modification time, size and inode after the last legitimate write, which reveal writes by other programs. A
    writer that is killed between its commit and its stamp costs the replica."""

    _FORMAT = struct.Struct(">QQQ")

    def __init__(self, path: Path) -> None:
        self._data = path / "data.mdb"
        self._file = os.open(path / "stamp", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def verify(self) -> None:
        """Raise CorruptedError unless the file is unchanged since its last legitimate write."""
        if self._is_right():
            return
        # Another process might be between its commit and its stamp.
        fcntl.flock(self._file, fcntl.LOCK_SH)
        try:
            if not self._is_right():
                raise lmdb.CorruptedError(f"{self._data}: changed by another program, or its writer was killed")
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock while the file is written, and stamp it afterwards. One process at a time."""
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
        # A missing file does not count as changed.
        return current is None or os.pread(self._file, self._FORMAT.size, 0) == current

    def _current(self) -> bytes | None:
        try:
            status = os.stat(self._data)
        except FileNotFoundError:
            return None
        return self._FORMAT.pack(status.st_mtime_ns, status.st_size, status.st_ino)


class Marker:
    """Records that this process is reading, and which version. A damaged page can kill a process with a signal, and
    every other process that tries again. One dead reader proves nothing, because processes get killed; two dead readers
    of the same version make it suspect."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid = os.getpid()
        file = None
        while file is None:
            self._name = path / f"{_READING}{uuid.uuid4().hex}"
            file = hold(self._name)
        self._file = file

    def set(self, version: int) -> None:
        """Mark this process as a reader of a version."""
        os.pwrite(self._file, _MARK.pack(True, version), 0)

    def clear(self) -> None:
        """Mark this process as not reading."""
        os.pwrite(self._file, _MARK.pack(False, 0), 0)

    def judge(self, version: int) -> None:
        """Raise CorruptedError if this version might have killed its readers; otherwise delete stale markers."""
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
            # Skip this in a forked child, and if the marker belongs to a replica that replaced this one.
            if self._pid == os.getpid() and leads_to(self._name, self._file):
                self._name.unlink()
        except FileNotFoundError:
            pass
        os.close(self._file)


def is_read(path: Path) -> bool:
    """Return whether a process has the file in this directory open."""
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
