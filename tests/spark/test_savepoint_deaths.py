"""Drivers killed while they make, restore and remove a savepoint: there is a valid one or none, and no job is lost.

Here where it is half done by Spark; tests/savepoints/test_deaths.py has every change of a storage.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import expected_counts, expected_sums
from savepoint_job import LEFT, RIGHT, program, settings

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.savepoint.format import (
    Found,
    IncompleteSavepoint,
    dispose_savepoint,
    list_savepoints,
    load_savepoint,
    savepoint_storage,
)
from penstock.testing.snapshots import last_manifest, newest_lineage, read_values

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def dies(**arguments: Any) -> None:
    """Run the script with these arguments; it must be killed at its step."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("savepoint_job.py")), json.dumps(arguments)],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=140,
    )
    assert done.returncode == -signal.SIGKILL, f"It did not come to '{arguments['dies']}':\n{done.stderr}"


def make(directory: Path, step: str) -> Found:
    """What is left of a savepoint whose maker died at this step."""
    dies(directory=str(directory), job="counts", dies=step, parallelism=2, savepoint=True, configured={})
    [found] = list_savepoints(savepoint_storage(str(directory / "savepoints")))
    return found


def runs_to_its_end(session: Any, directory: Path, job: str, parallelism: int, **configured: str) -> None:
    """Started once more it has every record once, as if nothing had ever died."""
    configuration = Configuration.from_dict(settings(str(directory)) | {"penstock.epoch.max-records": 0} | configured)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env._spark = session
    env.set_parallelism(parallelism)
    program(env)
    env.execute(job)
    storage = newest_lineage(directory / "checkpoints" / job)
    manifest = last_manifest(storage)
    assert manifest.ended
    assert manifest.records == {"left": len(LEFT), "right": len(RIGHT)}
    assert read_values(storage, "count", "n", int) == expected_counts(LEFT + RIGHT)
    assert read_values(storage, "sum", "total", int) == expected_sums(LEFT + RIGHT)


def test_drivers_killed_at_steps_of_a_savepoint_s_life(session: Any, tmp_path: Path) -> None:
    # Making: the job goes on from its checkpoints each time, and leaves no savepoint until its metadata are there.
    found = make(tmp_path, "half of the files")
    assert found.metadata is None
    assert "it has state, but no _metadata" in found.problem
    dies(path=found.where, dies="half removed")
    with pytest.raises(IncompleteSavepoint):
        load_savepoint(savepoint_storage(found.where))
    dispose_savepoint(savepoint_storage(found.where))
    assert not Path(found.where).exists()
    saved = make(tmp_path, "before the answer")
    assert saved.metadata is not None
    assert 0 < saved.metadata.sources["left"].records < len(LEFT)

    # Restoring, as the job's own, until it is gone.
    begin = {"execution.state-recovery.path": saved.where, "execution.state-recovery.claim-mode": "CLAIM"}
    restore = {"directory": str(tmp_path), "job": "restored", "parallelism": 3, "savepoint": False, "configured": begin}
    lineages = []
    for step in ("before Spark's log", "half removed"):
        dies(dies=step, **restore)
        lineage = newest_lineage(tmp_path / "checkpoints" / "restored")
        lineages.append(lineage.where)
        assert bool(last_manifest(lineage).parent) == (step == "half removed"), "the first one has no parent"
        if step == "half removed":
            with pytest.raises(IncompleteSavepoint):
                load_savepoint(savepoint_storage(saved.where))
        else:
            assert load_savepoint(savepoint_storage(saved.where)) == saved.metadata
    assert len(set(lineages)) == 1, "it does not begin again"
    runs_to_its_end(session, tmp_path, "restored", 3, **begin)
    assert not Path(saved.where).exists()
    runs_to_its_end(session, tmp_path, "counts", 2)
