"""Which worker processes live: each holds a lock on a file named by its pid, which goes with it however it dies.

Unlike a pid alone, the lock cannot belong to a stranger that got the number of a dead worker.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

_held: dict[Path, IO[bytes]] = {}


def announce(folder: Path) -> None:
    """Called in a worker, as often as it likes."""
    path = folder / str(os.getpid())
    if path not in _held:
        file = path.open("wb")
        fcntl.flock(file, fcntl.LOCK_EX)
        _held[path] = file


def present(folder: Path) -> list[int]:
    """The pids of the workers that live."""
    return [int(path.name) for path in sorted(folder.iterdir()) if is_present(folder, int(path.name))]


def is_present(folder: Path, pid: int) -> bool:
    with (folder / str(pid)).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
