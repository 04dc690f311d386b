"""Checkpoints and savepoints that earlier versions made on Spark are restored there, at their offsets."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from stored_state_jobs import totals

pytestmark = pytest.mark.spark

DATA = Path(__file__).parents[1] / "data" / "stored_state"
END = 40
"""End of each split; beyond the position of the recorded jobs."""


@pytest.fixture(params=sorted(path.name for path in DATA.iterdir()))
def recorded(request: Any, tmp_path: Path) -> Path:
    """A copy of the files of one version, because a job changes its checkpoint directory."""
    return Path(shutil.copytree(DATA / request.param, tmp_path / "recorded"))


def run(env: Any) -> list[int]:
    """Run the job to its end and check its sums; return the numbers that it read, in ascending order."""
    with totals(env, END).execute_and_collect("totals") as results:
        output = list(results)
    for key in range(3):
        # The order between the splits varies, but the largest sum is the last one.
        assert max(total for of, _, total in output if of == key) == sum(range(key, 2 * END, 3))
    return sorted(number for _, number, _ in output)


def test_a_killed_job_of_an_earlier_version_continues_after_its_last_checkpoint(make_env: Any, recorded: Path) -> None:
    checkpoints = {"state.checkpoints.dir": str(recorded / "spark-checkpoints")}
    env = make_env(**checkpoints, **{"execution.checkpointing.interval": "20 ms", "pipeline.max-parallelism": "4"})
    # It was killed after checkpoint 8, and each epoch reads three numbers of each split.
    assert run(env) == list(range(8 * 6, 2 * END))


def test_a_job_starts_from_a_savepoint_of_an_earlier_version_on_spark(make_env: Any, recorded: Path) -> None:
    savepoint = {"execution.state-recovery.path": str(recorded / "spark-savepoint")}
    numbers = run(make_env(parallelism=1, **savepoint, **{"pipeline.max-parallelism": "4"}))
    first = numbers[0]
    assert first >= 2 * 6
    assert first % 6 == 0
    assert numbers == list(range(first, 2 * END))
