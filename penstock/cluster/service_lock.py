"""The lock of the Dispatcher's directory: one service per directory, and commands find its process through it."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.cluster.processes import Identity, state_of, this_process
from penstock.cluster.supervision import Process
from penstock.errors import PenstockError

_TAKE_S = 2.0
"""How long a service tries to take the lock, which commands hold for moments when they look at it."""


class AlreadyRunning(PenstockError):
    """A service already runs in this directory.

    Operator action: use that one, stop it with `penstock cluster stop`, or set another `cluster.dir`.
    """

    retryable = False


class ServiceLock:
    """Held from construction until `close`, or until the process ends. Child processes do not inherit it."""

    def __init__(self, path: Path) -> None:
        """Take the lock. Raises AlreadyRunning if another process has it."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        deadline = time.monotonic() + _TAKE_S
        while not _taken(self._descriptor, fcntl.LOCK_EX):
            holder = _written(path)
            if holder is not None or time.monotonic() > deadline:
                os.close(self._descriptor)
                process = "" if holder is None else f" as process {holder.pid}"
                raise AlreadyRunning(
                    f"A service already runs in {path.parent}{process}.",
                    fix="Stop it with `penstock cluster stop`, or set another cluster.dir.",
                )
            # A command looks at the lock, or another service starts or ends.
            time.sleep(0.02)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, msgspec.json.encode(this_process()), 0)

    def close(self) -> None:
        """Give the lock back."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def is_held(path: Path) -> bool:
    """Return whether a service has the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        # Shared: two commands that look at the same time do not take each other for a service.
        return not _taken(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def holder_of(path: Path) -> Identity | None:
    """Return the process of the service that has the lock; None without one, or while it starts or ends."""
    return _written(path) if is_held(path) else None


def _taken(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _written(path: Path) -> Identity | None:
    """Return the living process that the file names. A killed service leaves its name behind."""
    try:
        holder = msgspec.json.decode(path.read_bytes(), type=Identity)
    except (OSError, msgspec.MsgspecError):
        return None
    return holder if state_of(holder) is Process.ALIVE else None


def send_signal(holder: Identity, number: signal.Signals) -> bool:
    """Send a signal to a service. Return False if it has ended. A later process with the same id gets no signal."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(holder.pid)
        try:
            if state_of(holder) is Process.ALIVE:
                signal.pidfd_send_signal(descriptor, number)
                return True
        finally:
            os.close(descriptor)
    return False
