"""A standalone Spark cluster on this host."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pyspark

from chaos.servers.ports import free_port

ROOT = Path(__file__).parents[2]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
START_S = 90


class Standalone:
    """A master, and workers that have Penstock and its dependencies, and nothing of the program."""

    def __init__(self, home: Path) -> None:
        port = free_port()
        self.address = f"spark://127.0.0.1:{port}"
        self._home, self._log = home, home / "log"
        self._started: list[subprocess.Popen[bytes]] = []
        self._start("Master", "--port", str(port))
        self._wait_for("I have been elected leader")

    def add_worker(self, cores: int) -> None:
        place = str(self._home / "work")
        self._start("Worker", "--cores", str(cores), "--memory", "2g", "--work-dir", place, self.address)
        self._wait_for("Successfully registered with master")

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()

    def _start(self, role: str, *arguments: str) -> None:
        name = f"org.apache.spark.deploy.{role.lower()}.{role}"
        command = [str(SPARK_CLASS), name, "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        own = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT), "SPARK_DAEMON_MEMORY": "256m"}
        with open(self._log, "ab") as output:
            process = subprocess.Popen(
                command,
                cwd=self._home,
                env={**os.environ, **own},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._started.append(process)

    def _wait_for(self, text: str) -> None:
        deadline = time.monotonic() + START_S
        while text not in self._log.read_text(errors="replace"):
            assert time.monotonic() < deadline, self._log.read_text(errors="replace")
            assert all(process.poll() is None for process in self._started), self._log.read_text(errors="replace")
            time.sleep(0.1)
