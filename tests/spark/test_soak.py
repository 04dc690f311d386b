"""A driver that runs for long: what an epoch leaves in the JVM and in Python goes with it."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.datastream import StreamExecutionEnvironment
from soak.__main__ import grown
from soak.measure import Jvm

pytestmark = pytest.mark.spark

_PLANS = "org.apache.spark.sql.execution.QueryExecution"


def test_plans_of_past_epochs_are_gone_although_pythons_collector_is_off(
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
            assert set(thresholds) == {(500_000, 20, 20)}, "what suits a worker"
    finally:
        gc.enable()
    # Kept plans were three per epoch. Queries of other tests in the session add a few.
    assert plans[20] - plans[5] < 30, plans
    assert gc.get_threshold()[0] < 500_000, "but not the driver"


@pytest.mark.long
@pytest.mark.timeout(900)  # a minute and a half on an idle machine
def test_three_hundred_epochs_take_no_more_memory_than_sixty(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "soak", "--epochs", "300", "--every", "60", "--directory", str(tmp_path / "soak")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [row["epoch"] for row in rows] == [60, 120, 180, 240, 300]
    # The rest has not reached its bound at epoch 60: checkpoints are kept until there are new bases.
    bounded = ["epoch", "heap", "metaspace", "driver objects", "driver threads", "driver files", "blocks files"]
    first, last = ({name: row[name] for name in bounded} for row in (rows[0], rows[-1]))
    assert grown(first, last) == []
