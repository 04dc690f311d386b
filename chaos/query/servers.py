"""The state servers of a run: which processes they are, which one is the proxy, and the one that the rig starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from chaos.processes import Process, process

_LAUNCHED = "penstock.query.launching"
_LISTENING = "0A"


class OwnServer:
    """`penstock state-server`, which runs next to the job and starts again after it was killed."""

    def __init__(self, job: Path, settings: dict[str, str], log: Path) -> None:
        words = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
        self._command = [sys.executable, "-m", "penstock.cli.main", "state-server", str(job), *words]
        self._log = log
        self._popen: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def look(self) -> None:
        """Start it unless it runs."""
        if self._popen is not None and self._popen.poll() is None:
            return
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.starts += 1

    def process(self) -> Process | None:
        return None if self._popen is None or self._popen.poll() is not None else process(self._popen.pid)

    def stop(self) -> None:
        if self._popen is not None:
            self._popen.send_signal(signal.SIGKILL)
            self._popen.wait()


def launched(processes: Iterable[Process]) -> list[Process]:
    """Return the state servers that jobs have started."""
    return [each for each in processes if each.alive() and _LAUNCHED in each.arguments()]


def listens(server: Process, port: int) -> bool:
    """Return whether a process listens on a port of IPv4."""
    inodes = _listening(port)
    with suppress(OSError):
        for descriptor in os.scandir(f"/proc/{server.pid}/fd"):
            with suppress(OSError):
                if os.readlink(descriptor.path) in inodes:
                    return True
    return False


def _listening(port: int) -> set[str]:
    found = set()
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENING and int(words[1].rsplit(":", 1)[1], 16) == port:
                    found.add(f"socket:[{words[9]}]")
    return found
