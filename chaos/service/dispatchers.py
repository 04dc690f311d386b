"""The process of a Dispatcher, as a rig or a benchmark starts, kills and asks it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from penstock.common.tokens import read_token
from penstock.rest.client import RestClient
from penstock.rest.token_file import token_file

_START_S = 60.0
_ROOT = Path(__file__).resolve().parent.parent.parent


class NodeDied(Exception):
    """The process of a Dispatcher ended by itself, or does not answer."""


class DispatcherProcess:
    """One Dispatcher. Order of calls: `start`, then `kill` or `stop` and `start` again any number of times."""

    def __init__(
        self, settings: Mapping[str, str], environment: Mapping[str, str] | None = None, host: str = ""
    ) -> None:
        """With `host`, it and its jobs run under this host name, in their own UTS namespace. That needs root."""
        self.settings = dict(settings)
        self._host = host
        self.directory = Path(settings["cluster.dir"])
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the Dispatcher is not running"
        return self._process.pid

    @property
    def log(self) -> Path:
        return self.directory / "dispatcher.log"

    def start(self, *, wait: bool = True) -> DispatcherProcess:
        """Start the process. With `wait`, return once it answers."""
        assert not self.running, "the Dispatcher is already running"
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.directory / "address").unlink(missing_ok=True)
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [*self._on_host(), sys.executable, "-m", "penstock.rest.dispatcher_service"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **self._environment},
                # The signals of a terminal are for the rig, which ends the Dispatcher itself.
                start_new_session=True,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(self.settings))
        self._process.stdin.close()
        if wait:
            self.wait()
        return self

    def _on_host(self) -> list[str]:
        # Each of these programs executes the next one, so the process keeps its id.
        return ["unshare", "--uts", "sh", "-c", f'hostname {self._host} && exec "$@"', "sh"] if self._host else []

    def wait(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + _START_S
        while not (self.directory / "address").exists():
            if not self.running or time.monotonic() > deadline:
                raise NodeDied(self.log.read_text(errors="replace")[-4000:])
            time.sleep(0.02)

    def client(self, timeout_s: float = 15.0) -> RestClient:
        """Return a client of its REST interface."""
        address = urlsplit((self.directory / "address").read_text().strip())
        assert address.hostname is not None
        assert address.port is not None
        return RestClient(
            address.hostname, address.port, token=read_token(token_file(self.settings)), timeout_s=timeout_s
        )

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it if it runs, paused or not. Its jobs keep running."""
        if self.running:
            self.resume()
            self._end(signal.SIGTERM)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None, "the Dispatcher is not running"
        self._process.send_signal(number)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> DispatcherProcess:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()


def can_name_hosts() -> bool:
    """Return whether this process can give others a host name."""
    try:
        return os.geteuid() == 0 and subprocess.run(["unshare", "--uts", "true"], check=False).returncode == 0
    except FileNotFoundError:
        return False
