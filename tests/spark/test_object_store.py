"""Checkpoints in an object store: a driver is killed, and another one without access to its disk continues the job."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import Count, expected_counts, expected_sums, two_stages, words

from penstock.checkpoint.lineages import Lineages
from penstock.datastream.connectors import DiscardingSink
from penstock.state.object_storage import ObjectStorage
from penstock.testing.snapshots import last_manifest, newest_lineage, read_values

pytestmark = pytest.mark.spark

LEFT, RIGHT = words(60, 3), words(60, 11)


@pytest.fixture
def checkpoints(s3: Any) -> ObjectStorage:
    return s3()


@pytest.fixture
def settings(checkpoints: ObjectStorage, s3_options: dict[str, str]) -> dict[str, str]:
    return {
        "state.checkpoints.dir": checkpoints.where,
        **{f"state.checkpoints.fs.{key}": value for key, value in s3_options.items()},
    }


def make(make_env: Any, settings: dict[str, str], **more: str) -> Any:
    return make_env(
        records=10, checkpoints=True, **{key.replace(".", "__"): value for key, value in {**settings, **more}.items()}
    )


def test_another_driver_continues_the_job_of_a_killed_one(
    make_env: Any, tmp_path: Path, checkpoints: ObjectStorage, settings: dict[str, str], s3_options: dict[str, str]
) -> None:
    arguments = tmp_path / "arguments.json"
    parts = {"directory": str(tmp_path), "master": "local[2]", "left": LEFT, "right": RIGHT, "per_epoch": 10}
    arguments.write_text(json.dumps({**parts, "settings": settings}))
    killed = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("programs.py")), str(arguments)],
        env={**os.environ, "PENSTOCK_CRASH": f"driver:published:3:{tmp_path}/killed"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert s3_options["secret"] not in killed.stdout + killed.stderr
    lineage = newest_lineage(checkpoints.below("crash"))
    assert last_manifest(lineage).id == 3

    env = make(make_env, settings)
    stream = two_stages(env.from_collection(LEFT).uid("left"), env.from_collection(RIGHT).uid("right"))
    stream.sink_to(DiscardingSink()).uid("sink")
    result = env.execute("crash")
    assert [epoch.number for epoch in result.epochs] == [4, 5, 6, 7]
    assert newest_lineage(checkpoints.below("crash")).where == lineage.where
    assert last_manifest(lineage).records == {"left": 60, "right": 60}
    assert read_values(lineage, "count", "n", int) == expected_counts(LEFT + RIGHT)
    assert read_values(lineage, "sum", "total", int) == expected_sums(LEFT + RIGHT)


class Died(Exception):
    """Stands for the end of a driver, within the test process."""


def test_a_batch_dataframe_is_written_once_and_read_by_each_driver(
    session: Any, make_env: Any, checkpoints: ObjectStorage, settings: dict[str, str]
) -> None:
    for death in (1, 3, None):
        env = make(make_env, settings)
        frame = session.createDataFrame([(word,) for word in LEFT], "word string").repartition(1)
        counted = env.from_spark(frame).uid("words").key_by(lambda row: row.word).process(Count()).uid("count")
        counted.sink_to(DiscardingSink()).uid("sink")

        def die(epoch: Any, death: int | None = death) -> None:
            if epoch.number == death:
                raise Died

        env.add_epoch_listener(die)
        if death is None:
            env.execute("frame")
        else:
            with pytest.raises(Died):
                env.execute("frame")
    lineage = newest_lineage(checkpoints.below("frame"))
    assert last_manifest(lineage).records == {"words": 60}
    assert read_values(lineage, "count", "n", int) == expected_counts(LEFT)
    assert len(lineage.list("inputs/")) == 7


def test_a_finished_job_leaves_only_its_name_and_number(
    make_env: Any, checkpoints: ObjectStorage, settings: dict[str, str]
) -> None:
    key = "execution.checkpointing.externalized-checkpoint-retention"
    env = make(make_env, settings, **{key: "NO_EXTERNALIZED_CHECKPOINTS"})
    env.from_collection(["a"]).uid("words").sink_to(DiscardingSink()).uid("sink")
    env.execute("gone")
    assert checkpoints.list("") == ["gone/job", "gone/lineages/000000000001.removed"]
    assert Lineages(checkpoints.below("gone")).newest() is None
