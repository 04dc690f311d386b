"""A host for real services in tests: the `penstock` command as users run it, with a directory and ports of the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.cluster.directory import ClusterDirectory
from penstock.cluster.processes import kill_tree
from penstock.cluster.records import Claim, Records
from penstock.cluster.service_lock import holder_of

SMALL = {
    "rest.port": "0",
    "spark.master": "local[2]",
    "spark.driver.memory": "512m",
    "execution.checkpointing.interval": "500 ms",
}
COUNTS = """\
import sys

from penstock.connectors.generated import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda n: (f"sensor-{n % 3}", 1), records_per_epoch=6)
ticks = env.from_source(source, source_name="ticks").uid("ticks")
ticks.key_by(lambda tick: tick[0]).sum(1).uid("count").print()
env.execute(sys.argv[1])
"""
"""A program whose argument is the name of its endless job."""


class ServiceHost:
    """Runs commands. `close` ends the service and all its jobs."""

    def __init__(self, folder: Path, settings: Mapping[str, str] = SMALL) -> None:
        self.folder = folder
        self.cluster = folder / "cluster"
        known = {"cluster.dir": self.cluster, "penstock.control.dir": folder / "control", **settings}
        self.environment = {
            **os.environ,
            "PENSTOCK_PROPERTIES": "\n".join(f"{key}: {value}" for key, value in known.items()),
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "penstock.cli.main", *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command and return its exit code and output."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )

    def said(self, *arguments: str) -> str:
        """Run a command, which has to succeed, and return its standard output."""
        done = self.run(*arguments)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout.strip()

    def json(self, *arguments: str) -> Any:
        """Run a command with --json, and return what it prints."""
        return json.loads(self.said(*arguments, "--json"))

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return the jobs that `penstock list` shows, by id."""
        return {job["id"]: job for job in self.json("list")}

    def await_running(self, *jobs: str) -> None:
        self.until(lambda: all(self.jobs()[job]["status"] == "RUNNING" for job in jobs))

    def claim(self, job: str) -> Claim:
        """Return the process of a job's last attempt."""
        last = self._records().view(job).last
        assert last is not None
        assert last.claim is not None
        return last.claim

    def until(self, holds: Callable[[], Any], seconds: float = 120.0) -> Any:
        """Wait until a condition holds, and return its result."""
        deadline = time.monotonic() + seconds
        while not (found := holds()):
            assert time.monotonic() < deadline, "the condition did not become true in time"
            time.sleep(0.2)
        return found

    def close(self) -> None:
        """Kill everything that is left."""
        holder = holder_of(self.cluster / "lock")
        if holder is not None:
            with suppress(ProcessLookupError):
                os.kill(holder.pid, signal.SIGKILL)
        if not (self.cluster / "records").exists():
            return
        records = self._records()
        for job in records.job_ids():
            for attempt in records.view(job).attempts:
                if attempt.claim is not None:
                    kill_tree(attempt.claim)

    def _records(self) -> Records:
        return Records(ClusterDirectory(self.cluster).storage({}))
