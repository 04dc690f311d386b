"""Where a Python worker runs: its host and executor."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from msgspec.structs import replace

from penstock.common.machine import disk_space, physical_memory, resident_memory
from penstock.runtime.metrics import WorkerPlace

_GENERATIONS = 6
"""Maximum number of processes between a worker and its executor: a daemon, and the shells that start it."""
_DRIVER = "driver"
"""Spark's name of the executor inside the driver, as on a `local` master."""


def worker_place(directories: Sequence[str] = ()) -> WorkerPlace:
    """Return the place of this process, with its memory and the disk of its replicas now: 20 µs.

    `directories`: those of the replicas. Without any, the disk is that of temporary files.
    """
    total, free = disk_space(directories[0] if directories else tempfile.gettempdir())
    return replace(_place(), resident=resident_memory(), disk_total=total, disk_free=free)


@cache
def _place() -> WorkerPlace:
    """Return what does not change. Spark does not pass the executor's id to Python workers."""
    executor, directory = _executor(), ""
    if executor != _DRIVER:
        with suppress(OSError):
            directory = os.getcwd()
    return WorkerPlace(
        host=socket.gethostname(),
        executor=executor,
        memory=physical_memory(),
        process=os.getpid(),
        directory=directory,
    )


def _executor() -> str:
    """Return the id from the command line of the executor's JVM, which is an ancestor of this process."""
    process = os.getppid()
    with suppress(OSError, ValueError, IndexError):
        for _ in range(_GENERATIONS):
            with open(f"/proc/{process}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
            if "--executor-id" in words:
                return words[words.index("--executor-id") + 1]
            with open(f"/proc/{process}/stat") as file:
                process = int(file.read().rpartition(")")[2].split()[1])
    return _DRIVER
