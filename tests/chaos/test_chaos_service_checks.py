"""The rig for a cluster notices every promise that a job can break."""

from pathlib import Path

import pytest
from victim import run_victim

from chaos.faults import Violation
from chaos.service.jobs import CANCEL, FINISH, RUN, Victim
from chaos.service.rig import _missing
from penstock.checkpoint.fencing import close
from penstock.checkpoint.manifest import load
from penstock.cluster.processes import this_process
from penstock.cluster.records import Attempt, Claim, Ended, JobView, Submission
from penstock.driver.assignment import Verdict
from penstock.state.local_storage import LocalStorage

TOTAL = 200


@pytest.fixture
def job(tmp_path: Path) -> Victim:
    """A job that has finished."""
    found = Victim(tmp_path / "job")
    run_victim(found.folder, TOTAL)
    found.wanted, found.total, found.acknowledged = FINISH, TOTAL, True
    return found


def view(*verdicts: Verdict, claim: Claim | None = None) -> JobView:
    attempts = [
        Attempt(number=number, claim=claim, ended=Ended(verdict=verdict, by="", at_ms=0))
        for number, verdict in enumerate(verdicts, 1)
    ]
    submission = Submission(id="0" * 32, name="", program="", file="", submitted_ms=0, python="", penstock="")
    return JobView(submission=submission, lineage="", cancel_requested=False, attempts=attempts)


FINISHED = view(Verdict.LOST, Verdict.FINISHED)


def test_a_correct_job_passes(job: Victim) -> None:
    job.observer.look()
    assert job.check(FINISHED) == []


def test_a_duplicate_line_is_found(job: Victim) -> None:
    part = next(path for path in (job.folder / "out").glob("part-*") if path.read_text().startswith('["record"'))
    part.write_text(part.read_text() + part.read_text().splitlines(keepends=True)[0])
    assert any("duplicate" in problem for problem in job.check(FINISHED))


def test_a_missing_part_is_found(job: Victim) -> None:
    next((job.folder / "out").glob("part-*")).unlink()
    assert any("lost: " in problem for problem in job.check(FINISHED))


def test_a_changed_manifest_is_found(job: Victim) -> None:
    job.observer.look()
    assert job.lineage is not None
    next((job.lineage / "manifests").iterdir()).write_text("changed")
    job.observer.look()
    assert any("changed after it was published" in problem for problem in job.observer.violations)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (view(Verdict.FINISHED, Verdict.FINISHED), "finished 2 times"),
        (view(Verdict.LOST), "finished 0 times"),
        (view(Verdict.FAILED, Verdict.FINISHED), "other verdicts"),
        (view(Verdict.FINISHED, Verdict.LOST), "an attempt follows"),
    ],
)
def test_records_that_do_not_end_with_one_verdict_are_found(job: Victim, found: JobView, problem: str) -> None:
    assert any(problem in each for each in job.check(found))


def test_a_process_of_an_ended_job_is_found(job: Victim) -> None:
    me = this_process()
    claim = Claim(token="", host=me.host, boot=me.boot, pid=me.pid, started=me.started, at_ms=0)
    assert any("has a process" in each for each in job.check(view(Verdict.FINISHED, claim=claim)))


def test_records_of_a_cancelled_job_are_found_and_its_closing_checkpoint_is_allowed(job: Victim) -> None:
    assert job.lineage is not None
    job.wanted, job.frozen = CANCEL, job.records_read()
    storage = LocalStorage(job.lineage)
    before = job.checkpoint()
    close(storage, *load(storage, before), "lineage", load(storage, before)[0].token)
    assert job.checkpoint() == before + 1
    cancelled = view(Verdict.CANCELED)
    assert not any("more than 10 s after" in each for each in job.check(cancelled))
    job.frozen -= 1
    assert any("more than 10 s after" in each for each in job.check(cancelled))


def test_an_acknowledged_job_that_is_not_listed_is_waited_for(job: Victim) -> None:
    assert "not listed" in _missing(job, {}, {})
    assert _missing(job, {job.id: FINISH}, {}) == ""
    job.wanted = RUN
    assert "publishes no checkpoint" in _missing(job, {job.id: RUN}, {job.id: job.checkpoint()})
    with pytest.raises(Violation, match="failed"):
        _missing(job, {job.id: "FAILED"}, {})
