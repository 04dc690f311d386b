"""Files that a process keeps locked to show that it is alive.

Process ids cannot show this: in another container that shares the directory, the same id belongs to a different
process or to none.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["hold", "is_held", "leads_to"]


def hold(path: Path) -> int | None:
    """Create this file and lock it until the descriptor is closed. Return None if it was removed before the lock.

    Raises FileExistsError if the file exists, FileNotFoundError if its directory does not, and OSError on a file
    system without locks.
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
    """Return whether a live process holds this file (see `hold`). False if the file does not exist."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        # Assume that a file we cannot open is held.
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(file)


def leads_to(path: Path, file: int) -> bool:
    """Return whether this path still refers to an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except (FileNotFoundError, NotADirectoryError):
        # A path below /proc/self/fd can refer to anything once its descriptor has been closed and reused.
        return False
