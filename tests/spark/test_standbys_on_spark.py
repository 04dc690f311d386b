"""Standby replicas: a second executor follows the state of each subtask, and takes it over if the first one dies."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import expected_counts, words
from standby_job import PARALLELISM, blocks_of

from penstock.testing.snapshots import last_manifest, newest_lineage, read_values

ROOT = Path(__file__).parents[2]
RESCALED, KILLED, EPOCHS = 10, 30, 50


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("standbys")
    parameters = {"directory": str(directory), "rescale_after": RESCALED, "kill_after": KILLED, "epochs": EPOCHS}
    program = Path(__file__).with_name("standby_job.py")
    done = subprocess.run(
        [sys.executable, str(program), json.dumps(parameters)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {"directory": directory, **json.loads((directory / "said.json").read_text())}


@pytest.mark.long
@pytest.mark.spark
class TestAJobOnThreeExecutorsWithStandbys:
    def test_a_second_executor_follows_each_block(self, said: Any) -> None:
        assert len(said["standbys"]) == 2 * 16
        assert all(said["standbys"].values())

    def test_the_snapshot_shows_what_each_executor_has_and_follows(self, said: Any) -> None:
        assert [sum(each) for each in zip(*said["held"], strict=True)] == [2 * 16, 2 * 16]
        assert all(own and followed for own, followed in said["held"])

    def test_after_a_death_every_task_runs_where_its_replicas_are(self, said: Any) -> None:
        before, after = (said["places"][str(number)] for number in (KILLED, KILLED + 1))
        assert said["killed"] in before.values()
        assert after.keys() == before.keys()
        assert len(after) == 2 * PARALLELISM
        for subtask, executor in after.items():
            assert executor != said["killed"]
            if executor != before[subtask]:
                for block in blocks_of(subtask, PARALLELISM):
                    assert executor in said["standbys"][block]

    def test_a_new_executor_follows_before_it_runs_subtasks(self, said: Any) -> None:
        known = {*said["places"][str(KILLED)].values()}
        assert {*said["places"][str(KILLED + 1)].values()} < known
        assert {*said["places"][str(EPOCHS)].values()} - known

    def test_the_job_survives_the_death_in_place(self, said: Any) -> None:
        assert said["restarts"] == 0

    def test_the_state_is_that_of_all_records(self, said: Any) -> None:
        storage = newest_lineage(said["directory"] / "checkpoints" / "followed")
        records = words(100 * EPOCHS, 3)
        assert last_manifest(storage).records == {"words": len(records)}
        assert read_values(storage, "count", "n", int) == expected_counts(records)
