"""The state of a job that clients see, from its records and the last snapshot of its JobManager."""

import msgspec
import pytest

from penstock.cluster.records import Attempt, Claim, Ended, JobView, Planned, Submission, new_job_id
from penstock.cluster.shown import shown
from penstock.driver.assignment import Verdict
from penstock.driver.job_snapshot import JobSnapshot

JOB = new_job_id()


def view(*attempts: Attempt, cancel: bool = False) -> JobView:
    submission = Submission(
        id=JOB, name="job.py", program="", file="job.py", submitted_ms=100, python="3.11", penstock="0"
    )
    return JobView(submission=submission, lineage=None, cancel_requested=cancel, attempts=list(attempts))


def attempt(number: int, *, claimed: bool = True, ended: Verdict | None = None, at_ms: int = 900) -> Attempt:
    return Attempt(
        number=number,
        planned=Planned(leader="a", at_ms=200),
        claim=Claim(token="t", host="h", boot="b", pid=1, started=1, at_ms=300) if claimed else None,
        ended=None if ended is None else Ended(verdict=ended, by="t", at_ms=at_ms, reason="why", savepoint="sp"),
    )


def pushed(state: str = "RUNNING", attempt: int = 1) -> JobSnapshot:
    return JobSnapshot(id=JOB, name="counts", state=state, attempt=attempt, state_since_ms={state: 500})


def test_a_submitted_job_is_created() -> None:
    snapshot = shown(view(), None)
    assert (snapshot.state, snapshot.name, snapshot.started_ms, snapshot.ended_ms) == ("CREATED", "job.py", 100, -1)
    assert snapshot.state_since_ms == {"CREATED": 100}


def test_a_planned_attempt_is_initializing() -> None:
    snapshot = shown(view(attempt(1, claimed=False)), None)
    assert (snapshot.state, snapshot.attempt) == ("INITIALIZING", 1)
    assert snapshot.state_since_ms["INITIALIZING"] == 200


def test_the_snapshot_of_a_running_process_is_shown_unchanged() -> None:
    snapshot = pushed()
    assert shown(view(attempt(1)), snapshot) is snapshot


def test_a_lost_attempt_shows_the_job_as_restarting_with_the_reason() -> None:
    snapshot = shown(view(attempt(1, ended=Verdict.LOST)), pushed())
    assert (snapshot.state, snapshot.reason, snapshot.name) == ("RESTARTING", "why", "counts")
    assert snapshot.state_since_ms == {"RUNNING": 500, "RESTARTING": 900}


def test_the_next_attempt_does_not_show_the_state_of_the_last_one() -> None:
    snapshot = shown(view(attempt(1, ended=Verdict.LOST), attempt(2)), pushed())
    assert (snapshot.state, snapshot.attempt) == ("INITIALIZING", 2)


@pytest.mark.parametrize(
    ("verdict", "state"),
    [
        (Verdict.FINISHED, "FINISHED"),
        (Verdict.STOPPED, "FINISHED"),
        (Verdict.FAILED, "FAILED"),
        (Verdict.CANCELED, "CANCELED"),
    ],
)
def test_the_verdict_decides_over_the_last_snapshot(verdict: Verdict, state: str) -> None:
    snapshot = shown(view(attempt(1, ended=verdict)), pushed())
    assert (snapshot.state, snapshot.ended_ms, snapshot.savepoint) == (state, 900, "sp")


def test_a_process_that_reports_its_end_before_the_records_is_not_shown_as_ended() -> None:
    assert shown(view(attempt(1)), pushed("FINISHED")).state == "RUNNING"


def test_a_request_to_cancel_shows_at_once() -> None:
    assert shown(view(attempt(1), cancel=True), pushed()).state == "CANCELLING"
    assert shown(view(attempt(1, ended=Verdict.LOST), cancel=True), pushed()).state == "CANCELLING"


@pytest.mark.parametrize("attempts", [[attempt(1)], [attempt(1, ended=Verdict.LOST)], [attempt(1), attempt(2)]])
def test_a_job_without_a_verdict_has_no_end_although_its_process_reported_one(attempts: list[Attempt]) -> None:
    ended = msgspec.structs.replace(pushed("FAILED"), ended_ms=600)
    assert shown(view(*attempts), ended).ended_ms == -1
