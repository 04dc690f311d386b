"""Scratch directories of one driver process, for data that can be rebuilt. Drivers sweep those of killed drivers.

A driver holds a lock on a file in its directory while it lives. Process IDs would not work: a driver in another
container that shares the temporary directory has a different PID namespace.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from penstock.common.held import hold, is_held

_PREFIX = "penstock-scratch-"
_LOCK = "lock"

_held: dict[Path, int] = {}
"""This process's directories and their locks."""


def scratch_directory() -> Path:
    """Create a directory. `remove_scratch`, the end of this process, or a later driver after a kill removes it."""
    _sweep()
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        try:
            lock = hold(path / _LOCK)
        except FileNotFoundError:
            lock = None
        except OSError:
            # The file system has no locks. A sweep ignores a directory without a lock file.
            lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        # Another driver's sweep might remove it before it is locked.
        if lock is not None:
            _held[path] = lock
            return path


def remove_scratch(path: Path) -> None:
    """Remove a directory of this process. Does nothing if it is already removed."""
    lock = _held.pop(path, None)
    if lock is not None:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _sweep() -> None:
    """Remove the directories of this user's dead drivers. A directory without a lock file is still being created."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        lock = path / _LOCK
        with suppress(OSError):
            if path.lstat().st_uid == os.getuid() and lock.is_file() and not is_held(lock):
                shutil.rmtree(path)


@atexit.register
def _remove_all() -> None:
    for path in list(_held):
        remove_scratch(path)


def _after_fork() -> None:
    # They belong to the parent, which removes them when it exits.
    for lock in _held.values():
        os.close(lock)
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)
