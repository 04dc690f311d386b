"""A server in its own process, which tests and the rigs can kill, pause and restart."""

from __future__ import annotations

import signal
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, Self

_WATCHER = 'read over || kill -9 "$0"'
"""Kills the server when the process that created it is gone, for whatever reason."""


class ServerDied(Exception):
    pass


class ServerProcess(ABC):
    """Order of calls: `start`, then `kill` or `stop` and `start` again any number of times."""

    stop_signal = signal.SIGTERM

    def __init__(self, directory: Path | str) -> None:
        """Create a server that is not running and keeps its data in `directory`."""
        self.directory = Path(directory)
        self._process: subprocess.Popen[str] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start(self) -> Self:
        """Start the server and wait until it answers."""

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        return self._running.pid

    def kill(self) -> None:
        """Send SIGKILL. The data stay, and `start` continues with them."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the server; does nothing if it is not running."""
        if self.running:
            self._end(self.stop_signal)

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open but unanswered until `resume`."""
        self._running.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running.send_signal(signal.SIGCONT)

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the server is not running"
        return self._process

    def _launch(
        self, command: list[str], *, stdout: int | IO[bytes], stderr: int | IO[bytes] | None = None
    ) -> subprocess.Popen[str]:
        assert self._process is None, "the server is already running"
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, text=True)
        self._watcher = subprocess.Popen(
            ["sh", "-c", _WATCHER, str(self._process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        return self._process

    def _end(self, number: signal.Signals) -> None:
        process = self._running
        assert self._watcher is not None
        self._watcher.communicate(b"\n")
        process.send_signal(number)
        process.wait()
        self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()
