"""`python -m bench.interval [--plot FILE]`: run the same stream at several checkpoint intervals, with kills.

For every interval it reports the share of time spent in epochs (the cost of checkpoints), the bytes written per second,
and, for a `kill -9` at a random moment, the number of records that arrived since the last checkpoint: the work that the
job has to do or repeat to catch up.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.interval.plot import chart

INTERVALS_MS = (250, 500, 1000, 2000, 4000, 8000)
RATE = 20_000


@dataclass
class Point:
    interval_ms: int
    epochs: int
    busy: float
    """Share of the time that the job spent in epochs."""
    bytes_per_second: float
    behind: float
    """Records that arrived between the last checkpoint and a kill; the mean of all kills."""


class _Job:
    """The job of one interval in its own process. After a kill, another one resumes from the last checkpoint."""

    def __init__(self, work: Path, interval: int, began: float) -> None:
        command = [sys.executable, "-m", "bench.interval.job", "--work", str(work), "--interval", str(interval)]
        self._process = subprocess.Popen(
            [*command, "--began", str(began), "--rate", str(RATE)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._records = 0

    def epochs(self, seconds: float, at_least: int) -> list[dict[str, Any]]:
        """Return the next epochs, at least this many over at least this time, without the initial backlog."""
        assert self._process.stdout is not None
        seen: list[dict[str, Any]] = []
        for line in self._process.stdout:
            if line.startswith("{"):
                seen.append(self._note(line))
            if len(seen) > at_least + 2 and time.time() - seen[2]["at"] > seconds:
                return seen[2:]
        raise SystemExit("the job ended unexpectedly")

    def kill(self) -> int:
        """Kill the process and return the number of records in its checkpoints."""
        os.killpg(self._process.pid, signal.SIGKILL)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{") and line.endswith("}\n"):
                self._note(line)
        self._process.wait()
        return self._records

    def _note(self, line: str) -> dict[str, Any]:
        epoch: dict[str, Any] = json.loads(line)
        self._records += epoch["records"]
        return epoch


def measure(interval: int, directory: Path, seconds: float, kills: int, dice: random.Random) -> Point:
    work = Path(tempfile.mkdtemp(dir=directory))
    began = time.time()
    behind = []
    checkpointed = 0
    seen: list[dict[str, Any]] = []
    for _ in range(kills):
        job = _Job(work, interval, began)
        epochs = job.epochs(0 if seen else seconds, 3)
        seen = seen or epochs
        time.sleep(dice.uniform(0, interval / 1000))
        came = int((time.time() - began) * RATE)
        checkpointed += job.kill()
        behind.append(came - checkpointed)
    elapsed = seen[-1]["at"] - seen[0]["at"]
    return Point(
        interval,
        len(seen),
        sum(epoch["ms"] for epoch in seen[1:]) / 1000 / elapsed,
        sum(epoch["bytes"] for epoch in seen[1:]) / elapsed,
        sum(behind) / len(behind),
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.interval", description=__doc__)
    parser.add_argument("--plot", type=Path, help="write the chart to this SVG file")
    parser.add_argument("--seconds", type=float, default=12, help="how long to observe each interval")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    dice = random.Random(chosen.seed)
    points = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        for interval in INTERVALS_MS:
            points.append(measure(interval, Path(directory), chosen.seconds, chosen.kills, dice))
            print(points[-1], file=sys.stderr)
    table = Table(title=f"{RATE:,} records a second, counted over 100,000 keys, FileSystem backend, local[2]")
    for heading in ("interval", "time in epochs", "bytes written", "behind after a kill"):
        table.add_column(heading, justify="right")
    for point in points:
        table.add_row(
            f"{point.interval_ms / 1000:g} s",
            f"{point.busy:.0%}",
            f"{point.bytes_per_second / 1e6:.2f} MB/s",
            f"{point.behind:,.0f} records",
        )
    Console(width=120).print(table)
    if chosen.plot:
        chosen.plot.write_text(
            chart(
                f"{RATE:,} records/s, FileSystem backend, local[2]",
                [f"{point.interval_ms / 1000:g} s" for point in points],
                ("time in epochs, %", [point.busy * 100 for point in points]),
                ("records since the last checkpoint at a kill", [point.behind for point in points]),
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
