"""Detection of live worker processes. Each holds a lock on a file named after its pid until it dies.

Unlike a pid alone, the lock cannot belong to an unrelated process that reuses the pid of a dead worker.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

_held: dict[Path, IO[bytes]] = {}


def announce(folder: Path) -> None:
    """Register this worker process. Repeated calls have no effect."""
    path = folder / str(os.getpid())
    if path not in _held:
        file = path.open("wb")
        fcntl.flock(file, fcntl.LOCK_EX)
        _held[path] = file


def present(folder: Path) -> list[int]:
    """Return the pids of the live workers."""
    return [int(path.name) for path in sorted(folder.iterdir()) if is_present(folder, int(path.name))]


def is_present(folder: Path, pid: int) -> bool:
    with (folder / str(pid)).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
