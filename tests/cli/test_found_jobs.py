"""Jobs by id, prefix of the id, or name. Those of a cluster are in test_commands_to_a_cluster.py."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.found_jobs import FoundJobs
from penstock.control.client import JobNotFound
from penstock.control.server import ControlPoint
from penstock.driver.control_messages import Description

A, B = "a1" * 16, "b2" * 16


@pytest.fixture
def settings(tmp_path: Path) -> list[str]:
    return [f"penstock.control.dir={tmp_path}/control", f"cluster.dir={tmp_path}/cluster"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """`start(id, name)` opens the control point of a job that runs by hand."""
    points = []

    def start(job_id: str, name: str = "counts") -> None:
        description = Description(
            id=job_id, name=name, status="RUNNING", pid=0, started=0, epochs=0, restarts=0, parallelism={}
        )
        points.append(ControlPoint(f"{tmp_path}/control", job_id, lambda request: description))

    yield start
    for point in points:
        point.close()


def test_a_job_is_found_by_id_id_prefix_or_name(settings: list[str], start: Callable[..., None]) -> None:
    start(A, "counts")
    start(B, "b2")
    jobs = FoundJobs(settings, None)
    assert {jobs.one(given).id for given in (A, "a", "a1a1", "counts")} == {A}
    # Name and id prefix lead to the same job.
    assert jobs.one("b2").id == B


def test_a_name_shared_by_several_jobs_is_ambiguous(settings: list[str], start: Callable[..., None]) -> None:
    start(A)
    start(B)
    with pytest.raises(JobNotFound, match=f"matches several jobs: .*{A}.*{B}"):
        FoundJobs(settings, None).one("counts")


def test_a_name_that_is_a_prefix_of_another_id_is_ambiguous(settings: list[str], start: Callable[..., None]) -> None:
    start(A, "b2")
    start(B)
    with pytest.raises(JobNotFound, match="matches several"):
        FoundJobs(settings, None).one("b2")


def test_a_complete_id_wins_over_a_name(settings: list[str], start: Callable[..., None]) -> None:
    start(A)
    start(B, A)
    assert FoundJobs(settings, None).one(A).id == A


@pytest.mark.parametrize("given", ["other", "", "count", "a1" * 17])
def test_other_text_matches_no_job(settings: list[str], start: Callable[..., None], given: str) -> None:
    start(A)
    with pytest.raises(JobNotFound, match=rf"'{given}' runs on this host. Running jobs: {A} \('counts'\)"):
        FoundJobs(settings, None).one(given)


def test_no_job_is_found_if_none_is_running(settings: list[str]) -> None:
    with pytest.raises(JobNotFound, match="No job is running"):
        FoundJobs(settings, None).one("counts")
