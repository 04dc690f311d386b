"""Drivers killed while they make, restore and remove a savepoint leave a valid savepoint or none, and lose no job.

This covers steps that Spark executes in part; tests/savepoints/test_deaths.py covers every storage change.
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
    assert done.returncode == -signal.SIGKILL, f"The script did not reach '{arguments['dies']}':\n{done.stderr}"


def make(directory: Path, step: str) -> Found:
    """Return the leftovers of a savepoint whose maker died at this step."""
    dies(directory=str(directory), job="counts", dies=step, parallelism=2, savepoint=True, configured={})
    [found] = list_savepoints(savepoint_storage(str(directory / "savepoints")))
    return found


def runs_to_its_end(session: Any, directory: Path, job: str, parallelism: int, **configured: str) -> None:
    """Start the job once more; it must have every record once, as if nothing had died."""
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


def test_a_driver_killed_at_any_step_of_a_savepoint_loses_nothing(session: Any, tmp_path: Path) -> None:
    # Making: the job resumes from its checkpoints each time, and no savepoint exists until its metadata is written.
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

    # Restoring in claim mode, until the savepoint is gone.
    begin = {"execution.state-recovery.path": saved.where, "execution.state-recovery.claim-mode": "CLAIM"}
    restore = {"directory": str(tmp_path), "job": "restored", "parallelism": 3, "savepoint": False, "configured": begin}
    lineages = []
    for step in ("before Spark's log", "half removed"):
        dies(dies=step, **restore)
        lineage = newest_lineage(tmp_path / "checkpoints" / "restored")
        lineages.append(lineage.where)
        assert bool(last_manifest(lineage).parent) == (step == "half removed"), "the first manifest has no parent"
        if step == "half removed":
            with pytest.raises(IncompleteSavepoint):
                load_savepoint(savepoint_storage(saved.where))
        else:
            assert load_savepoint(savepoint_storage(saved.where)) == saved.metadata
    assert len(set(lineages)) == 1, "the job resumes its lineage"
    runs_to_its_end(session, tmp_path, "restored", 3, **begin)
    assert not Path(saved.where).exists()
    runs_to_its_end(session, tmp_path, "counts", 2)
