"""Real processes killed once at each step of the epoch protocol: state must equal the oracle."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import expected_counts, expected_sums, run_two_stages, two_stages, words

from penstock.checkpoint.manifest import Manifest, load
from penstock.datastream.connectors import DiscardingSink
from penstock.testing.snapshots import last_manifest, newest_lineage, read_values

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LEFT, RIGHT = words(120, 3), words(120, 11)
PER_EPOCH = 10
EPOCHS = 12

TASK_POINTS = [
    "source.processed",
    "source.snapshot",
    "source.reported",
    "level1.received",
    "level1.processed",
    "level1.snapshot",
    "level1.reported",
    "level2.received",
    "level2.processed",
    "level2.snapshot",
]
# test_file_crashes.py kills a driver at the other points, and the harness at each.
DRIVER_POINTS = ["collected", "committed"]


def plan(role: str, points: list[str], directory: Path, first_epoch: int = 2) -> tuple[str, list[Path]]:
    """Plan one crash per point, each in a separate epoch."""
    markers = [directory / f"crashed-{role}-{point}" for point in points]
    plans = [
        f"{role}:{point}:{first_epoch + index}:{marker}"
        for index, (point, marker) in enumerate(zip(points, markers, strict=True))
    ]
    return ";".join(plans), markers


def arguments_for(directory: Path) -> dict[str, Any]:
    job = {"left": LEFT, "right": RIGHT, "per_epoch": PER_EPOCH, "settings": {}}
    return {"directory": str(directory), "master": "local[2]", **job}


def run(directory: Path, crashes: str) -> subprocess.CompletedProcess[str]:
    arguments = directory / "arguments.json"
    arguments.write_text(json.dumps(arguments_for(directory)))
    return subprocess.run(
        [sys.executable, str(Path(__file__).with_name("programs.py")), str(arguments)],
        env={**os.environ, "PENSTOCK_CRASH": crashes},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=280,
    )


def check_state(directory: Path) -> None:
    storage = newest_lineage(directory / "checkpoints" / "crash")
    manifest = last_manifest(storage)
    assert manifest.ended
    assert manifest.records == {"left": len(LEFT), "right": len(RIGHT)}
    assert read_values(storage, "count", "n", int) == expected_counts(LEFT + RIGHT)
    assert read_values(storage, "sum", "total", int) == expected_sums(LEFT + RIGHT)


def test_state_is_correct_after_a_worker_is_killed_at_each_step_of_a_task(tmp_path: Path) -> None:
    """Executors are killed in test_nondeterminism.py and test_file_crashes.py."""
    crashes, markers = plan("task", TASK_POINTS, tmp_path)
    done = run(tmp_path, crashes)
    assert done.returncode == 0, done.stderr
    assert all(marker.exists() for marker in markers)
    check_state(tmp_path)
    counters = json.loads((tmp_path / "counters.json").read_text())
    names = ["left.numRecordsIn", "right.numRecordsIn", "count.seen", "count.numRecordsIn", "sum.numRecordsIn"]
    both = len(LEFT + RIGHT)
    assert [counters[name] for name in names] == [len(LEFT), len(RIGHT), both, both, both]


def test_state_is_correct_after_a_driver_is_killed_before_publishing_and_after_committing(
    session: Any, tmp_path: Path
) -> None:
    crashes, markers = plan("driver", DRIVER_POINTS, tmp_path)
    for marker in markers:
        done = run(tmp_path, crashes)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert marker.exists()
    run_two_stages(**arguments_for(tmp_path), session=session)
    check_state(tmp_path)


class Died(Exception):
    """Stands for the end of a driver, within the test process."""


def test_a_job_survives_the_loss_of_sparks_log_with_its_driver(make_env: Any, tmp_path: Path) -> None:
    """Every restart begins with an empty log, at any number of batches: before and after Spark compacts its sources."""
    restarts = 0
    while True:
        env = make_env(records=PER_EPOCH, checkpoints=True)
        stream = two_stages(env.from_collection(LEFT).uid("left"), env.from_collection(RIGHT).uid("right"))
        stream.sink_to(DiscardingSink()).uid("sink")

        def die_after(epoch: Any, restarts: int = restarts) -> None:
            if epoch.number in (1, 2, 5, 9, 10, 11, 12) and epoch.number > restarts:
                raise Died(epoch.number)

        env.add_epoch_listener(die_after)
        try:
            env.execute("crash")
            break
        except Died as died:
            restarts = died.args[0]
            assert not (tmp_path / "checkpoints" / "crash" / "spark").exists()
    assert restarts == EPOCHS
    check_state(tmp_path)


@pytest.mark.parametrize("lost", ["offsets", "sources", "commits", "metadata"])
def test_lost_entries_of_sparks_log_are_rebuilt(make_env: Any, tmp_path: Path, lost: str) -> None:
    """Entries that Spark logged for the next batch can be lost in a power failure: the manifests are authoritative."""
    from penstock.spark.log import SparkLog

    written = SparkLog(tmp_path / "log")
    manifests: dict[int, Manifest] = {}
    env = make_env(records=PER_EPOCH * 3, checkpoints=True)
    env.from_collection(LEFT).uid("left").sink_to(DiscardingSink()).uid("sink")
    env.execute("log")
    storage = newest_lineage(tmp_path / "checkpoints" / "log")
    last = last_manifest(storage)
    manifests = {number: load(storage, number)[0] for number in range(1, last.id + 1)}
    written.rewrite(last, manifests.__getitem__)
    before = {str(path.relative_to(written.root)) for path in written.root.rglob("*") if path.is_file()}
    # Add an entry of a batch that no manifest knows, and remove others.
    (written.root / "offsets" / "99").write_text("v1\n{}\n-")
    path = written.root / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    written.rewrite(last, manifests.__getitem__)
    after = {str(path.relative_to(written.root)) for path in written.root.rglob("*") if path.is_file()}
    assert after == before
    assert {"metadata", "offsets/3", "offsets/2", "commits/3", "commits/2", "sources/0/3"} <= after
