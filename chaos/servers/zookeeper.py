"""Local ZooKeeper servers from the jars that come with PySpark, each in its own process on loopback ports.

with ZooKeeperServer(directory) as server:
    client = KazooClient(server.address)
    server.kill()
    server.start()

with ZooKeeperEnsemble(directory) as ensemble:
    ensemble.servers[ensemble.leader()].kill()
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from pathlib import Path

import pyspark

from chaos.servers.ports import free_port
from chaos.servers.process import ServerDied, ServerProcess

_JARS = Path(pyspark.__file__).parent / "jars"
_NEEDED = ("zookeeper-*", "slf4j-api-*", "log4j-*", "metrics-core-*", "netty-*", "snappy-java-*", "commons-io-*")
_START_S = 60.0
_HOST = "127.0.0.1"
TICK_MS = 250
"""Sessions last from 2 to 20 ticks: 0.5 s to 5 s."""


class ZooKeeperServer(ServerProcess):
    """One server, alone or in an ensemble."""

    # Also if it is paused. Only a crash of the machine loses data.
    stop_signal = signal.SIGKILL

    def __init__(self, directory: Path | str, *, number: int = 0, peers: str = "") -> None:
        """Create a server that is not running.

        Args:
            directory: Its data, and `log`.
            number: Its number in an ensemble, from 1 on.
            peers: The `server.N=…` lines of the ensemble.
        """
        super().__init__(directory)
        self.port = free_port()
        self._peers = peers
        self._number = number

    @property
    def address(self) -> str:
        return f"{_HOST}:{self.port}"

    def start(self, *, wait: bool = True) -> ZooKeeperServer:
        """Start the server; with `wait`, return when it serves clients. One of an ensemble needs a majority first."""
        with open(self.directory_with_settings() / "log", "ab") as log:
            main = "quorum.QuorumPeerMain" if self._peers else "ZooKeeperServerMain"
            command = [_java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
            command += ["-Dzookeeper.admin.enableServer=false", "-Dzookeeper.4lw.commands.whitelist=srvr,ruok"]
            # Durable enough for a killed process. Only a crash of the machine could lose data.
            command += ["-Dzookeeper.forceSync=no", "-cp", _class_path(), f"org.apache.zookeeper.server.{main}"]
            self._launch([*command, str(self.directory / "zoo.cfg")], stdout=log, stderr=log)
        if wait:
            self.wait()
        return self

    def directory_with_settings(self) -> Path:
        """Write the configuration, and return the directory."""
        (self.directory / "data").mkdir(parents=True, exist_ok=True)
        (self.directory / "data" / "myid").write_text(f"{self._number}\n")
        (self.directory / "zoo.cfg").write_text(
            f"tickTime={TICK_MS}\ninitLimit=40\nsyncLimit=8\ndataDir={self.directory / 'data'}\n"
            f"clientPortAddress={_HOST}\nclientPort={self.port}\nmaxClientCnxns=0\n{self._peers}"
        )
        return self.directory

    def wait(self) -> None:
        """Wait until the server serves clients."""
        deadline = time.monotonic() + _START_S
        while self.mode() is None:
            if self._running.poll() is not None or time.monotonic() > deadline:
                raise ServerDied((self.directory / "log").read_text(errors="replace")[-4000:])
            time.sleep(0.05)

    def mode(self) -> str | None:
        """Return standalone, leader or follower; None if the server serves no clients."""
        try:
            with socket.create_connection((_HOST, self.port), timeout=2) as connection:
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        except OSError:
            return None
        return next((line.split()[1] for line in answer.splitlines() if line.startswith("Mode:")), None)


class ZooKeeperEnsemble:
    """Three servers, of which two are a majority."""

    def __init__(self, directory: Path | str) -> None:
        numbers = (1, 2, 3)
        peers = "".join(f"server.{number}={_HOST}:{free_port()}:{free_port()}\n" for number in numbers)
        self.servers = [ZooKeeperServer(Path(directory) / str(each), number=each, peers=peers) for each in numbers]

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    def start(self) -> ZooKeeperEnsemble:
        """Start every server that is not running, and wait until all of them serve clients."""
        for server in self.servers:
            if not server.running:
                server.start(wait=False)
        for server in self.servers:
            server.wait()
        return self

    def kill(self) -> None:
        """Send SIGKILL to every server that is running."""
        for server in self.servers:
            server.stop()

    def leader(self) -> int:
        """Return the index of the server that leads the ensemble."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            for index, server in enumerate(self.servers):
                if server.running and server.mode() == "leader":
                    return index
            time.sleep(0.05)
        raise ServerDied("The ensemble has elected no leader.")

    def __enter__(self) -> ZooKeeperEnsemble:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.kill()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = os.path.join(home, "bin", "java") if home else shutil.which("java")
    assert found is not None, "Java is not installed: make java"
    return found


def _class_path() -> str:
    return ":".join(str(jar) for pattern in _NEEDED for jar in sorted(_JARS.glob(f"{pattern}.jar")))
