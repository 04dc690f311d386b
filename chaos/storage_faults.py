"""Storage faults below Penstock: an audit hook delays or rejects file operations as a control file demands.

Python calls audit hooks before every open, rename, link and mkdir; a hook that raises prevents the operation. The
control file is memory-mapped, so checking it is free while storage is healthy.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import struct
import sys
import time
from pathlib import Path
from typing import Any

VARIABLE = "PENSTOCK_CHAOS_STORAGE"
"""The control file and the directories it applies to, separated by `os.pathsep`."""

WELL, FULL, FAILING, SLOW = range(4)
_CONTROL = struct.Struct("<BBH")
"""The kind of fault, the percentage of operations affected, and for SLOW the milliseconds per operation."""

_CHANGES = {"os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_installed = False


def set_storage(control: Path, what: int, percent: int = 100, delay_ms: int = 0) -> None:
    """Set the condition of storage in every process of the job. Called by the rig."""
    with control.open("r+b") as file:
        file.write(_CONTROL.pack(what, percent, delay_ms))


def create(control: Path) -> None:
    control.write_bytes(_CONTROL.pack(WELL, 0, 0))


def install() -> None:
    """Install the hook. Called in every process of the job; has no effect unless a rig has set the variable."""
    global _installed
    paths = os.environ.get(VARIABLE, "").split(os.pathsep)
    if _installed or not paths[0]:
        return
    _installed = True
    with open(paths[0], "rb") as file:
        control = mmap.mmap(file.fileno(), _CONTROL.size, prot=mmap.PROT_READ)
    roots = tuple(paths[1:])
    dice = random.Random()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if control[0] == WELL or (event != "open" and event not in _CHANGES):
            return
        path = arguments[0]
        if not isinstance(path, (str, bytes, os.PathLike)) or not os.fsdecode(path).startswith(roots):
            return
        what, percent, delay = _CONTROL.unpack(control[: _CONTROL.size])
        if dice.random() * 100 >= percent:
            return
        if what == SLOW:
            time.sleep(delay / 1000)
        elif what == FAILING:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        elif what == FULL and (event in ("os.link", "os.mkdir") or (event == "open" and arguments[2] & _WRITING)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    sys.addaudithook(hook)
