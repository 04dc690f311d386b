"""Record checkpoints and savepoints with the current code, for later versions to restore in their tests.

    python tests/stored_state/record_stored_state.py 2026-11

writes `tests/data/stored_state/2026-11`. Recorded data never changes: a version that stores state in a different format
adds another directory, and `test_stored_state.py` restores all of them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from stored_state_jobs import HOUR, START, OrderV1, OrderV2, OrderV3, PowerCut, SinkCalls, deliveries, states, totals

from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.epoch_settings import Settings
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

DATA = Path(__file__).parents[1] / "data" / "stored_state"
KEPT = 100
"""More checkpoints than the jobs create, to retain all of them."""
INLINE = Settings(inline_bytes=1 << 20, base_bytes=1 << 20, retained=KEPT, asynchronous=False)
FILES = Settings(inline_bytes=0, base_bytes=1 << 20, retained=KEPT, asynchronous=False)
BASES = Settings(inline_bytes=0, base_bytes=0, retained=KEPT, asynchronous=False)


def record_states(target: Path) -> None:
    """Record one lineage of three program versions: deltas in manifests and files, bases, and two rescales."""
    storage = LocalStorage(target / "checkpoints")
    with JobHarness(states(OrderV1), storage=storage, settings=INLINE, parallelism=2, max_parallelism=4) as job:
        job.set_clock(START)
        job.push(("a", 4), ("b", 100), source="rules").epoch()
        job.push(("a", 1, 1_000), ("b", 2, 1_000), source="events")
        job.push(("a", 50, 20_000), source="others").epoch()
        job.push(("a", 3, 40_000), source="events").epoch()
    with JobHarness(states(OrderV2), storage=storage, settings=FILES, parallelism=3, max_parallelism=4) as job:
        job.set_clock(START + HOUR // 4)
        job.push(("b", 4, 50_000), ("c", 5, 50_000), source="events").epoch()
        job.push(("c", 6, 55_000), source="events").epoch()
    with JobHarness(states(OrderV2), storage=storage, settings=BASES, parallelism=3, max_parallelism=4) as job:
        job.set_clock(START + HOUR // 4)
        job.epoch()
        job.epoch()
    with JobHarness(states(OrderV3), storage=storage, settings=INLINE, parallelism=2, max_parallelism=4) as job:
        job.set_clock(START + HOUR // 3)
        job.rescale({"keep": 4})
        job.push(("d", 7, 58_000), ("a", 8, 58_000), source="events").epoch()
        job.push(("c", 60, 58_000), source="others").epoch()
        savepoint(job, target / "savepoint")


def savepoint(job: JobHarness, target: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        shutil.move(job.savepoint(directory), target)


def record_deliveries(target: Path) -> None:
    """Cut the power after the manifest is published, before any sink commits; one sink also owes an earlier epoch."""
    calls = SinkCalls()
    job = JobHarness(
        deliveries(calls),
        storage=LocalStorage(target / "uncommitted"),
        settings=FILES,
        parallelism=2,
        max_parallelism=4,
    )
    job.set_clock(START)
    calls.refuses = True
    job.push(1, 2, 3, 4, 5, 6, 7).epoch()
    calls.power_fails = True
    job.push(8, 9, 10, 11, 12, 13, 14, 15)
    try:
        job.epoch()
    except PowerCut:
        return
    raise AssertionError("No sink committed anything.")


def record_positions(target: Path) -> None:
    """Record a savepoint with the positions of a Python source."""
    with JobHarness(totals(StreamExecutionEnvironment.get_execution_environment()), max_parallelism=4) as job:
        job.set_clock(START)
        job.epoch(6)
        job.epoch(6)
        savepoint(job, target / "positions")


def record_spark(target: Path) -> None:
    """Record a Spark job that creates a savepoint and is killed later, right after it published a checkpoint."""
    program = Path(__file__).with_name("spark_totals.py")
    with tempfile.TemporaryDirectory() as directory:
        ended = subprocess.run(
            [sys.executable, program, directory],
            env={**os.environ, "PENSTOCK_CRASH": f"driver:published:8:{directory}/killed"},
        )
        assert ended.returncode == -signal.SIGKILL, ended
        shutil.move(Path(directory) / "checkpoints", target / "spark-checkpoints")
        shutil.move(next((Path(directory) / "savepoints").iterdir()), target / "spark-savepoint")


def main(name: str) -> None:
    target = DATA / name
    target.mkdir(parents=True)
    record_states(target / "states")
    record_deliveries(target / "deliveries")
    record_positions(target)
    record_spark(target)


if __name__ == "__main__":
    main(sys.argv[1])
