"""Files that a process holds a lock on to show that it lives.

Process numbers do not show it: a process in another container that shares the directory has a number that means
something else here, or nothing.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["hold", "is_held", "leads_to"]


def hold(path: Path) -> int | None:
    """Make this file and lock it until the descriptor is closed; None if it was removed before it was locked.

    Raises FileExistsError if there is one, FileNotFoundError if there is no directory for it, OSError on a file system
    without locks.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        if leads_to(path, file):
            return file
    except OSError:
        # A file system without locks.
        os.close(file)
        path.unlink(missing_ok=True)
        raise
    os.close(file)
    return None


def is_held(path: Path) -> bool:
    """Whether a process that lives has made this file with `hold`. False where there is none."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        # What cannot be opened cannot be judged.
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(file)


def leads_to(path: Path, file: int) -> bool:
    """Whether this path is still that of an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except (FileNotFoundError, NotADirectoryError):
        # A path below /proc/self/fd leads anywhere once its descriptor was closed and used again.
        return False
