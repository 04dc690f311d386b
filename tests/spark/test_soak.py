"""A long-running driver: resources of an epoch in the JVM and in Python are released."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.datastream import StreamExecutionEnvironment
from soak.__main__ import grown
from soak.measure import Jvm

pytestmark = pytest.mark.spark

_PLANS = "org.apache.spark.sql.execution.QueryExecution"


def test_plans_of_past_epochs_are_released_without_pythons_garbage_collector(
    session: Any, make_env: Callable[..., StreamExecutionEnvironment]
) -> None:
    jvm = Jvm(session)
    plans: dict[int, int] = {}

    def count(epoch: Any) -> None:
        if epoch.number in (5, 20):
            plans[epoch.number] = jvm.instances().get(_PLANS, 0)

    env = make_env(parallelism=1, records=1, checkpoints=True)
    env.add_epoch_listener(count)
    stream = (
        env.from_collection(list(range(21)))
        .key_by(lambda value: value % 3)
        .map(lambda value: gc.get_threshold())
        .uid("m")
    )
    gc.disable()
    try:
        with stream.execute_and_collect("plans") as thresholds:
            assert set(thresholds) == {(500_000, 20, 20)}, "workers use their own thresholds"
    finally:
        gc.enable()
    # Without the release, three plans per epoch were kept. Queries of other tests in the session add a few.
    assert plans[20] - plans[5] < 30, plans
    assert gc.get_threshold()[0] < 500_000, "the driver does not"


@pytest.mark.long
def test_spark_forgets_jobs_and_executions_of_past_epochs(session: Any) -> None:
    jobs = session.sparkContext._jsc.sc().statusStore()
    executions = session._jsparkSession.sharedState().statusStore()
    frame = session.range(1)._jdf
    for _ in range(130):
        frame.count()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        held = {"jobs": jobs.jobsList(None).size(), "executions": executions.executionsCount()}
        if held["jobs"] <= 110 and held["executions"] <= 60:
            return
        # Spark's listeners lag behind the jobs.
        time.sleep(0.1)
    raise AssertionError(held)


@pytest.mark.long
@pytest.mark.timeout(900)  # a minute and a half on an idle machine
def test_three_hundred_epochs_use_no_more_memory_than_sixty(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "soak", "--epochs", "300", "--every", "60", "--directory", str(tmp_path / "soak")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [row["epoch"] for row in rows] == [60, 120, 180, 240, 300]
    bounded = [
        "epoch",
        *("heap", "metaspace", "driver rss", "driver objects", "driver threads", "driver files", "worker rss"),
        *("scratch bytes", "blocks bytes", "blocks files", "replicas bytes", "replicas files"),
    ]
    first, last = ({name: row[name] for name in bounded} for row in (rows[0], rows[-1]))
    assert grown(first, last) == []
    # The rest has not reached its bound at epoch 60: workers keep 600 manifests, checkpoints stay until there are new
    # bases, and Spark keeps the log of 100 batches. These are the values at epoch 300; a quarter more is allowed.
    seen = {"worker objects": 25_700, "checkpoints bytes": 7_900_000, "checkpoints files": 303, "scratch files": 211}
    assert {name: rows[-1][name] for name, usual in seen.items() if rows[-1][name] > 1.25 * usual} == {}
