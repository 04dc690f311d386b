"""A driver presumed dead, on Spark: real processes, stopped and continued."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from programs import Count, expected_counts, expected_sums, words

from penstock.checkpoint.manifest import Fenced
from penstock.common import JobStatus
from penstock.common.job import JobCancelled
from penstock.connectors.generated import DataGeneratorSource
from penstock.datastream.connectors import DiscardingSink
from penstock.testing.snapshots import last_manifest, newest_lineage, read_values

pytestmark = pytest.mark.spark

LEFT, RIGHT = words(60, 3), words(60, 11)
STOPPED_IN = 4


def driver(directory: Path, name: str, retain: bool, stop: str = "") -> "subprocess.Popen[str]":
    """Start a driver process of the job, which records the epochs it commits in a separate file."""
    arguments = directory / f"{name}.json"
    parameters: dict[str, Any] = {"directory": str(directory), "left": LEFT, "right": RIGHT, "retain": retain}
    parameters["commits"] = str(directory / f"{name}-commits")
    arguments.write_text(json.dumps(parameters))
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("programs.py")), str(arguments)],
        env={**os.environ, "PENSTOCK_CRASH": stop},
        cwd=directory,
        stderr=subprocess.PIPE,
        text=True,
    )


def files_below(*roots: Path) -> dict[str, str]:
    paths = [path for root in roots for path in root.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def committed(directory: Path, name: str) -> list[int]:
    return sorted({int(line) for line in (directory / f"{name}-commits").read_text().split()})


@pytest.mark.parametrize("retain", [True, False])
def test_a_driver_stopped_before_publishing_is_fenced_when_it_continues(tmp_path: Path, retain: bool) -> None:
    """The other driver has ended the job in the meantime, and kept its checkpoints or removed them."""
    first = driver(tmp_path, "first", retain, f"stopped-driver:collected:{STOPPED_IN}:{tmp_path / 'stopped'}")
    try:
        _, status = os.waitpid(first.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), first.stderr and first.stderr.read()
        second = driver(tmp_path, "second", retain)
        _, errors = second.communicate(timeout=280)
        assert second.returncode == 0, errors
        before = files_below(tmp_path / "checkpoints", tmp_path / "replicas")
        os.kill(first.pid, signal.SIGCONT)
        _, errors = first.communicate(timeout=100)
    finally:
        first.kill()
    assert first.returncode == 1
    assert "Fenced: Checkpoint 4 of this job" in errors
    assert "another driver" in errors
    assert "Restart 1" not in errors
    assert committed(tmp_path, "first") == [1, 2, 3]
    assert committed(tmp_path, "second")[0] == 3
    job = tmp_path / "checkpoints" / "crash"
    if retain:
        assert files_below(tmp_path / "checkpoints", tmp_path / "replicas") == before
        storage = newest_lineage(job)
        assert last_manifest(storage).records == {"left": len(LEFT), "right": len(RIGHT)}
        assert read_values(storage, "count", "n", int) == expected_counts(LEFT + RIGHT)
        assert read_values(storage, "sum", "total", int) == expected_sums(LEFT + RIGHT)
    else:
        assert not any(job.rglob("manifests/*"))


def endless(make_env: Any) -> Any:
    env = make_env(checkpoints=True, execution__checkpointing__interval="50 ms")
    env.get_configuration().remove_config("execution.checkpointing.externalized-checkpoint-retention")
    numbers = env.from_source(DataGeneratorSource(lambda n: n, records_per_epoch=10)).uid("numbers")
    numbers.key_by(lambda n: n % 5).process(Count()).uid("count").sink_to(DiscardingSink()).uid("sink")
    return env


def test_one_of_two_concurrent_drivers_stops(make_env: Any, tmp_path: Path) -> None:
    clients = [endless(make_env).execute_async("both") for _ in range(2)]
    ended = threading.Event()

    def watch(client: Any) -> None:
        try:
            client.result()
        except Fenced:
            ended.set()
        except JobCancelled:
            pass

    for client in clients:
        threading.Thread(target=watch, args=(client,), daemon=True).start()
    assert ended.wait(200)
    (winner,) = [client for client in clients if not client.ended]
    assert winner.status() is JobStatus.RUNNING
    assert list((tmp_path / "checkpoints" / "both").glob("*/manifests/*"))
    winner.cancel()
    assert winner.status() is JobStatus.CANCELED
    left = [path for path in (tmp_path / "checkpoints" / "both").rglob("*") if path.is_file()]
    assert sorted(path.name for path in left) == ["000000000001.removed", "job"]


def test_a_cancelled_driver_leaves_alone_a_lineage_that_another_driver_continues(make_env: Any, tmp_path: Path) -> None:
    published, resume = threading.Event(), threading.Event()

    def hold(epoch: Any) -> None:
        published.set()
        resume.wait()

    env = endless(make_env)
    env.add_epoch_listener(hold)
    zombie = env.execute_async("zombie")
    assert published.wait(100)
    further = threading.Event()
    env = endless(make_env)
    env.add_epoch_listener(lambda epoch: further.set() if epoch.number > 3 else None)
    with env.execute_async("zombie") as other:
        assert further.wait(100)
        cancelling = threading.Thread(target=zombie.cancel)
        cancelling.start()
        while zombie.status() is not JobStatus.CANCELLING:
            time.sleep(0.01)
        resume.set()
        cancelling.join()
        assert zombie.status() is JobStatus.CANCELED
        with pytest.raises(Exception, match="was cancelled here, but its checkpoints remain"):
            zombie.result()
        further.clear()
        assert further.wait(100)
        assert other.status() is JobStatus.RUNNING
