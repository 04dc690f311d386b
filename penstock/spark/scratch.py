"""Directories of one driver process, for what can be made again. Those of killed drivers are swept by the next one.

A driver holds a lock on a file in its directory as long as it lives. Process numbers say nothing about that: a driver
in another container that shares the temporary directory has a number that means nothing here.
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
"""The directories of this process, and the locks on them."""


def scratch_directory() -> Path:
    """A new directory. Removed by `remove_scratch`, when this process ends, or by a later driver if it is killed."""
    _sweep()
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        try:
            lock = hold(path / _LOCK)
        except FileNotFoundError:
            lock = None
        except OSError:
            # A file system without locks: no sweep touches a directory that has no file to lock.
            lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        # A sweep of another driver may take it before it is locked.
        if lock is not None:
            _held[path] = lock
            return path


def remove_scratch(path: Path) -> None:
    """Remove a directory of this process. Does nothing if it was removed before."""
    lock = _held.pop(path, None)
    if lock is not None:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _sweep() -> None:
    """Remove the directories of this user's drivers that are gone. One without a lock file is being made."""
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
    # They belong to the parent, and go when it ends.
    for lock in _held.values():
        os.close(lock)
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)
