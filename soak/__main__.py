"""`python -m soak`: run a job for many short epochs and show that nothing grows.

Every `--every` epochs the rig runs the JVM's garbage collector and records resource usage. With `--check` it exits with
1 if a final value is more than 1.2 times the first one. A full run takes long: start it in the background
(`nohup make soak EPOCHS=5000 CHECK=1 &`) and watch `table.txt` in its directory.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from soak.measure import Jvm, measure
from soak.program import build

LIMIT = 1.2
SLACK = {"bytes": 1 << 20, "rss": 16 << 20, "heap": 8 << 20, "metaspace": 4 << 20, "files": 60, "threads": 12}
"""Smaller differences are not growth: buffers, pools and logs vary in size."""
_MB = ("heap", "metaspace", "rss", "bytes")


def grown(first: dict[str, int], last: dict[str, int]) -> list[str]:
    """Return descriptions of the values that grew too much between two rows of the table."""
    problems = []
    for name, before in first.items():
        slack = next((value for word, value in SLACK.items() if word in name), 8)
        if last[name] > LIMIT * before and last[name] - before > slack:
            problems.append(f"{name}: {before:,} at epoch {first['epoch']:,}, {last[name]:,} at {last['epoch']:,}")
    return [problem for problem in problems if not problem.startswith(("epoch", "seconds"))]


def as_table(rows: list[dict[str, int]]) -> str:
    shown = [{name: _shown(name, value) for name, value in row.items()} for row in rows]
    widths = {name: max(len(name), *(len(row[name]) for row in shown)) for name in rows[0]}
    lines = ["  ".join(name.rjust(width) for name, width in widths.items())]
    lines += ["  ".join(row[name].rjust(width) for name, width in widths.items()) for row in shown]
    return "\n".join(lines)


def _shown(name: str, value: int) -> str:
    return f"{value / 1e6:,.1f}" if any(word in name for word in _MB) else f"{value:,}"


class Soak:
    def __init__(self, directory: Path, epochs: int, every: int, settings: dict[str, str]) -> None:
        self._directory = directory
        self._epochs = epochs
        self._every = every
        self.rows: list[dict[str, int]] = []
        self._over = threading.Event()
        self._counts = directory / "counts"
        self._counts.mkdir(parents=True, exist_ok=True)
        local = directory / "spark-local"
        scratch = directory / "tmp"
        scratch.mkdir(exist_ok=True)
        tempfile.tempdir = str(scratch)
        self._directories = {"checkpoints": directory / "checkpoints", "scratch": scratch, "blocks": local}
        self._directories["replicas"] = directory / "replicas"
        self._env = StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict(
                {
                    "spark.master": "local[2]",
                    "spark.driver.memory": "1g",
                    "spark.local.dir": str(local),
                    "state.checkpoints.dir": str(directory / "checkpoints"),
                    "state.backend.local-dir": str(directory / "replicas"),
                    "execution.checkpointing.interval": "1 ms",
                    "parallelism.default": "2",
                    **settings,
                }
            )
        )
        build(self._env, str(directory / "out"), str(self._counts))
        self._env.add_epoch_listener(self._on_epoch)

    def run(self) -> None:
        self._jvm = Jvm(self._env.spark)
        self._started = time.monotonic()
        client = self._env.execute_async("soak")
        try:
            while not self._over.wait(0.5) and not client.ended:
                pass
            if not self._over.is_set():
                client.result()
        finally:
            if not client.ended:
                client.cancel().result()

    def _on_epoch(self, epoch: Any) -> None:
        if self._over.is_set():
            return
        wanted = self._counts / "wanted"
        if (epoch.number + 20) % self._every == 0:
            wanted.touch()
        if epoch.number % self._every == 0:
            wanted.unlink(missing_ok=True)
            row = {"epoch": epoch.number, "seconds": int(time.monotonic() - self._started)}
            self.rows.append(row | measure(self._jvm, self._counts, self._directories))
            print(json.dumps(self.rows[-1]), flush=True)
            (self._directory / "table.txt").write_text(as_table(self.rows) + "\n")
        if epoch.number >= self._epochs:
            self._over.set()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--epochs", type=int, default=5000)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--directory", type=Path, help="work directory; a new temporary one by default")
    parser.add_argument("--check", action="store_true", help="exit with 1 if something grew")
    parser.add_argument("-D", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    directory = (arguments.directory or Path(tempfile.mkdtemp(prefix="penstock-soak-"))).absolute()
    print(f"Running {arguments.epochs:,} epochs in {directory}.", flush=True)
    soak = Soak(directory, arguments.epochs, arguments.every, dict(each.split("=", 1) for each in arguments.settings))
    soak.run()
    print(as_table(soak.rows))
    problems = grown(soak.rows[0], soak.rows[-1])
    for problem in problems:
        print(f"GREW {problem}")
    return 1 if problems and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
