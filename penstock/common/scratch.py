"""Scratch directories of one process, for data that can be rebuilt. Processes sweep those of killed processes.

A process holds a lock on a file in its directory while it lives. Process IDs would not work: a process in another
container that shares the parent directory has a different PID namespace.
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


def scratch_directory(parent: str | None = None, prefix: str = _PREFIX) -> Path:
    """Create a directory for this user alone, below the temporary directory by default.

    `remove_scratch` removes it, or the end of this process, or after a kill the next process that creates a directory
    with this parent and prefix.
    """
    parent = tempfile.gettempdir() if parent is None else parent
    _sweep(parent, prefix)
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            lock = hold(path / _LOCK)
        except FileNotFoundError:
            lock = None
        except OSError:
            # The file system has no locks. A sweep ignores a directory without a lock file.
            lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        # The sweep of another process might remove it before it is locked.
        if lock is not None:
            _held[path] = lock
            return path


def is_scratch(path: Path) -> bool:
    """Return whether this directory of this process still exists. A cleaner of temporary files can remove it."""
    return path in _held and (path / _LOCK).exists()


def remove_scratch(path: Path) -> None:
    """Remove a directory of this process. Does nothing if it is already removed."""
    lock = _held.pop(path, None)
    if lock is not None:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _sweep(parent: str, prefix: str = _PREFIX) -> None:
    """Remove the directories of this user's dead processes. A directory without a lock file is still being created."""
    for path in Path(parent).glob(f"{prefix}*"):
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
