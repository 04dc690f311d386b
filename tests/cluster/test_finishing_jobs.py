"""A JobManager is killed at each point between its last manifest and its exit: the job finishes once."""

from pathlib import Path

import pytest
from service import PER_EPOCH, Service, crash, expected_sums, output_of, wait_for

from penstock.driver.assignment import Verdict

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = 2 * PER_EPOCH
LAST = 3
"""The epoch that ends the input."""

# An attempt that only ends the job runs no epoch: its points have epoch 0.
DEATHS = {
    "before the commit, before the decision, and before the history is stored": [
        f"published:{LAST}",
        "deciding:0",
        "concluded:0",
    ],
    "after the commit, and while the checkpoints are removed": [f"committed:{LAST}", "marked:0"],
    "after the decision": [f"decided:{LAST}"],
}


@pytest.fixture(scope="module")
def jobs(service: Service, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Path, list[Path]]]:
    """By deaths: the job, the folder of its output, and the files that prove the deaths."""
    submitted = {}
    for deaths, points in DEATHS.items():
        folder = tmp_path_factory.mktemp("job")
        plans, markers = crash(folder, *points)
        submitted[deaths] = service.submit_sums(folder / "out", RECORDS, plans), folder / "out", markers
    return submitted


@pytest.mark.parametrize("deaths", DEATHS)
def test_a_job_that_is_killed_while_it_finishes_is_finished_once(
    service: Service, jobs: dict[str, tuple[str, Path, list[Path]]], deaths: str
) -> None:
    job, out, markers = jobs[deaths]
    shown = service.wait_until(job, "FINISHED")
    view = service.view(job)
    service.wait_for_exit(service.claim(job, shown.attempt))
    assert all(marker.exists() for marker in markers), service.log(job)
    assert output_of(out) == expected_sums(RECORDS)
    verdicts = [each.ended.verdict for each in view.attempts if each.ended]
    assert verdicts == [Verdict.LOST] * (len(view.attempts) - 1) + [Verdict.FINISHED]
    assert view.lineage
    wait_for(lambda: not Path(view.lineage or "").exists(), "the checkpoints are removed")
    assert [service.view(each).lineage for each, _, _ in jobs.values()].count(view.lineage) == 1
    # The last death comes after the decision and starts no attempt.
    assert len(view.attempts) == len(markers)
