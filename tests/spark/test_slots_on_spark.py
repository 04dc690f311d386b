"""Jobs that need more slots than Spark has: with a fixed number of threads, and after the loss of an executor."""

import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from programs import Count, expected_counts
from slots_job import RECORDS

from penstock.common.job import JobCancelled
from penstock.driver.slots import TooFewSlots, TooFewSlotsToRescale
from penstock.testing.snapshots import last_manifest, newest_lineage, read_values

pytestmark = pytest.mark.spark

WORDS = ["a", "b", "a", "c", "a", "b"]
COUNTED = Counter([("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1)])


def counted(env: Any) -> Any:
    return env.from_collection(WORDS).uid("words").key_by(lambda word: word).process(Count()).uid("count")


class Waiting(logging.Handler):
    """Notices that the job has begun to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "It waits" in record.getMessage():
            self.begun.set()


@pytest.fixture
def waiting() -> Any:
    handler = Waiting()
    logging.getLogger("penstock").addHandler(handler)
    yield handler.begun
    logging.getLogger("penstock").removeHandler(handler)


def test_tasks_take_turns_on_fewer_threads(make_env: Any, caplog: pytest.LogCaptureFixture) -> None:
    with counted(make_env(parallelism=5, records=2)).execute_and_collect("wide") as results:
        assert Counter(results) == COUNTED
        metrics = results._client.get_metrics()
        reason = results._client._job.snapshot().reason
    assert reason == "The job needs 5 slots, but Spark has 2. Its tasks take turns."
    assert (metrics.slots_needed, metrics.slots_available) == (5, 2)
    logged = [record.getMessage() for record in caplog.records if "slots" in record.getMessage()]
    assert len(logged) == 1, "the warning is logged once, not with each epoch"
    assert re.match(r"Job 'wide' needs 5 slots, for '.*' \(uid 'count'\), but Spark has 2\. It continues", logged[0])


def test_a_job_that_waited_too_long_for_threads_fails(make_env: Any) -> None:
    env = make_env(parallelism=5, penstock__slots__wait="true", slot__request__timeout="50 ms")
    counted(env).print()
    with pytest.raises(TooFewSlots, match=r"waited 0\.05 s .* needs 5 slots, .* Spark has 2\..* penstock\.slots\.wait"):
        env.execute("wide")


def test_a_waiting_job_can_be_rescaled_to_the_available_slots(make_env: Any, waiting: threading.Event) -> None:
    results = counted(make_env(parallelism=5, penstock__slots__wait="true")).execute_and_collect("wide")
    assert waiting.wait(60)
    with pytest.raises(TooFewSlotsToRescale, match=r"would need 4, .* but Spark has 2"):
        results._client.rescale(4)
    results._client.rescale(2)
    with results:
        assert Counter(results) == COUNTED


def test_a_waiting_job_can_be_stopped_with_a_savepoint_or_cancelled(
    make_env: Any, waiting: threading.Event, tmp_path: Path
) -> None:
    stopped = counted(make_env(parallelism=5, penstock__slots__wait="true")).execute_and_collect("wide")
    assert waiting.wait(60)
    path = stopped._client.stop_with_savepoint(False, str(tmp_path)).result()
    assert list(stopped) == []
    again = {"penstock.slots.wait": "true", "execution.state-recovery.path": path}
    waiting.clear()
    cancelled = counted(make_env(parallelism=5, checkpoints=True, **again)).execute_and_collect("again")
    assert waiting.wait(60)
    cancelled._client.cancel().result()
    with pytest.raises(JobCancelled):
        cancelled._client.result()


def test_jobs_of_one_session_run_concurrently_and_each_has_all_slots(make_env: Any) -> None:
    both_in_an_epoch = threading.Barrier(2)
    jobs = []
    for name in ("one", "other"):
        env = make_env(parallelism=2, penstock__slots__wait="true")
        env.add_epoch_listener(lambda epoch: both_in_an_epoch.wait(60) if epoch.number == 1 else None)
        jobs.append(counted(env).execute_and_collect(name))
    for results in jobs:
        with results:
            assert Counter(results) == COUNTED


@pytest.mark.slow
def test_a_job_waits_for_the_replacement_of_a_lost_executor(tmp_path: Path) -> None:
    script = Path(__file__).with_name("slots_job.py")
    root = str(script.parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "said.json").read_text())
    waits, continues = said["logged"]
    assert re.match(r"Job 'slots' needs 2 slots, for '.*' \(uid 'count'\), but Spark has 1\. It waits", waits)
    assert continues == "Job 'slots' now has the 2 slots it needs."
    assert said["restarts"] == 0
    assert set(map(tuple, said["seen"])) == {(2, 2)}, "no epoch ran with fewer"
    storage = newest_lineage(tmp_path / "checkpoints" / "slots")
    assert last_manifest(storage).ended
    assert read_values(storage, "count", "n", int) == expected_counts(RECORDS)
