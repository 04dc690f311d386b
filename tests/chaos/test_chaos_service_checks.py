"""The rig for a cluster notices every promise that a job can break."""

import json
from pathlib import Path

import pytest
from victim import run_and_cancel, run_victim

from chaos.committed import Left
from chaos.faults import Violation
from chaos.oracle import expected
from chaos.service import jobs as jobs_module
from chaos.service.jobs import CANCEL, FINISH, RUN, STOP, Victim, _check_time
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


# -- jobs that end before their input ----------------------------------------------------------------------------------

CANCELLED = view(Verdict.CANCELED)
READ = 480


@pytest.fixture
def cancelled(tmp_path: Path) -> Victim:
    """A job that was cancelled after it had read `READ` records."""
    found = Victim(tmp_path / "cancelled")
    run_and_cancel(found.folder, READ // 40)
    found.wanted, found.acknowledged, found.frozen = CANCEL, True, READ
    return found


def test_a_correct_cancelled_job_passes(cancelled: Victim) -> None:
    assert cancelled.records_read() == READ
    assert cancelled.check(CANCELLED) == []


def visible(job: Victim) -> Path:
    return next((job.folder / "out").glob("part-*"))


@pytest.mark.parametrize("what", ["record", "timer", "window"])
def test_a_line_that_a_cancelled_job_lost_is_found(cancelled: Victim, what: str) -> None:
    lines = visible(cancelled).read_text().splitlines(keepends=True)
    gone = next(line for line in lines if json.loads(line)[0] == what)
    visible(cancelled).write_text("".join(line for line in lines if line != gone))
    assert any("lost: " in problem for problem in cancelled.check(CANCELLED))


@pytest.mark.parametrize("what", ["record", "timer", "window", "first"])
def test_a_line_of_records_that_a_cancelled_job_never_committed_is_found(cancelled: Victim, what: str) -> None:
    later = expected(range(READ + 40)).lines - expected(range(READ)).lines
    line = next(line for line in later if json.loads(line)[0] == what)
    visible(cancelled).write_text(visible(cancelled).read_text() + line + "\n")
    assert any("unexpected: " in problem for problem in cancelled.check(CANCELLED))


def test_a_cancelled_job_whose_whole_output_is_gone_is_found(cancelled: Victim) -> None:
    visible(cancelled).unlink()
    assert any("lost: " in problem for problem in cancelled.check(CANCELLED))


def test_output_of_a_job_without_a_checkpoint_is_found(tmp_path: Path) -> None:
    job = Victim(tmp_path / "job")
    job.wanted = CANCEL
    assert job.check(CANCELLED) == []
    (job.folder / "out").mkdir()
    (job.folder / "out" / "part-a-0-0-0").write_text('["record",0,0,1,""]\n')
    assert any("committed no record" in problem for problem in job.check(CANCELLED))


def test_event_time_that_stands_still_is_found() -> None:
    assert _check_time(Left({}, 4779, 4779), READ) == []
    assert _check_time(Left({}, 4779, 100), READ) == [f"after {READ} records, a watermark is only 100"]


def test_a_finished_job_without_checkpoints_is_found(job: Victim) -> None:
    assert job.lineage is not None
    job.lineage.rename(job.folder / "elsewhere")
    assert any("kept no checkpoints" in problem for problem in job.check(FINISHED))


def test_a_parallelism_that_was_acknowledged_and_lost_is_found(job: Victim) -> None:
    job.width = 3
    assert any("rescaled to 3, but ended with [1]" in problem for problem in job.check(FINISHED))
    job.width = None
    assert job.check(FINISHED) == []


def test_a_savepoint_that_was_reported_as_complete_and_is_missing_is_found(job: Victim) -> None:
    job.saved.append(str(job.savepoints / "savepoint-1"))
    assert any("reported as complete, but is not" in problem for problem in job.check(FINISHED))


def test_a_job_that_was_stopped_with_another_savepoint_than_reported_is_found(cancelled: Victim) -> None:
    cancelled.wanted, cancelled.saved = STOP, ["here"]
    problems = cancelled.check(view(Verdict.STOPPED))
    assert any("stopped with savepoint , not here" in problem for problem in problems)


def test_a_checkpoint_that_cannot_be_read_is_a_violation_and_not_estimated(
    cancelled: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cancelled.lineage is not None
    newest = (
        cancelled.lineage / "manifests" / sorted(path.name for path in (cancelled.lineage / "manifests").iterdir())[-1]
    )
    newest.write_bytes(b"damaged")
    monkeypatch.setattr(jobs_module.time, "sleep", lambda seconds: None)
    with pytest.raises(Violation, match="cannot be read"):
        cancelled.records_read()
