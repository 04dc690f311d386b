"""The state of a job that clients see, from its records and the last snapshot of its JobManager."""

import msgspec
import pytest

from penstock.cluster.records import Attempt, Claim, Ended, JobView, Planned, Submission, new_job_id
from penstock.cluster.shown import shown
from penstock.driver.assignment import Verdict
from penstock.driver.job_snapshot import ExceptionSnapshot, ExecutorSnapshot, JobSnapshot

JOB = new_job_id()


def view(*attempts: Attempt, cancel: bool = False) -> JobView:
    submission = Submission(
        id=JOB, name="job.py", program="", file="job.py", submitted_ms=100, python="3.11", penstock="0"
    )
    return JobView(submission=submission, lineage=None, cancel_requested=cancel, attempts=list(attempts))


def attempt(
    number: int, *, claimed: bool = True, ended: Verdict | None = None, at_ms: int = 900, reason: str = "why"
) -> Attempt:
    return Attempt(
        number=number,
        planned=Planned(leader="a", at_ms=200),
        claim=Claim(token="t", host="h", boot="b", pid=1, started=1, at_ms=300) if claimed else None,
        ended=None if ended is None else Ended(verdict=ended, by="t", at_ms=at_ms, reason=reason, savepoint="sp"),
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


def test_a_request_to_cancel_came_after_the_last_snapshot() -> None:
    snapshot = shown(view(attempt(1), cancel=True), msgspec.structs.replace(pushed(), taken_ms=800))
    assert snapshot.state_since_ms == {"RUNNING": 500, "CANCELLING": 800}


def test_a_request_to_cancel_shows_at_once() -> None:
    assert shown(view(attempt(1), cancel=True), pushed()).state == "CANCELLING"
    assert shown(view(attempt(1, ended=Verdict.LOST), cancel=True), pushed()).state == "CANCELLING"


@pytest.mark.parametrize("attempts", [[attempt(1)], [attempt(1, ended=Verdict.LOST)], [attempt(1), attempt(2)]])
def test_a_job_without_a_verdict_has_no_end_although_its_process_reported_one(attempts: list[Attempt]) -> None:
    ended = msgspec.structs.replace(pushed("FAILED"), ended_ms=600)
    assert shown(view(*attempts), ended).ended_ms == -1


# -- executors and failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempts", [[attempt(1, ended=Verdict.LOST)], [attempt(1, ended=Verdict.LOST), attempt(2)]])
def test_the_executors_of_a_lost_attempt_are_gone(attempts: list[Attempt]) -> None:
    before = msgspec.structs.replace(pushed(), executors=[ExecutorSnapshot(id="0", slots=4)])
    assert shown(view(attempt(1)), before).executors
    assert shown(view(*attempts), before).executors == []


def failure(message: str, at_ms: int, attempt: int = 1) -> ExceptionSnapshot:
    return ExceptionSnapshot(name="ValueError", message=message, at_ms=at_ms, attempt=attempt)


def failures(snapshot: JobSnapshot) -> list[tuple[str, str, int]]:
    return [(each.name, each.message, each.attempt) for each in snapshot.exceptions]


def test_a_lost_attempt_is_among_the_failures_and_restarts_in_the_order_of_time() -> None:
    died = attempt(1, ended=Verdict.LOST, at_ms=600, reason="Process 7 died.")
    late = msgspec.structs.replace(
        pushed(attempt=2), restarts=3, exceptions=[failure("a", 500), failure("b", 700, attempt=2)]
    )
    snapshot = shown(view(died, attempt(2)), late)
    assert failures(snapshot) == [("ValueError", "a", 1), ("AttemptLost", "Process 7 died.", 1), ("ValueError", "b", 2)]
    assert snapshot.restarts == 4


def test_a_lost_attempt_whose_failure_is_known_is_not_listed_twice() -> None:
    known = msgspec.structs.replace(pushed(), exceptions=[failure("Spark has died.", 500)])
    snapshot = shown(view(attempt(1, ended=Verdict.LOST, reason="Spark has died.")), known)
    assert failures(snapshot) == [("ValueError", "Spark has died.", 1)]
    # It has not been restarted yet.
    assert snapshot.restarts == 0


def test_a_lost_attempt_without_a_reason_is_listed_although_other_failures_are_known() -> None:
    known = msgspec.structs.replace(pushed(), exceptions=[failure("no such table", 500)])
    snapshot = shown(view(attempt(1, ended=Verdict.LOST, reason="")), known)
    assert failures(snapshot) == [("ValueError", "no such table", 1), ("AttemptLost", "", 1)]


def test_many_lost_attempts_leave_the_newest_failures() -> None:
    lost = [attempt(number, ended=Verdict.LOST, at_ms=number, reason=f"lost {number}") for number in range(1, 100)]
    snapshot = shown(view(*lost), None)
    assert [each.message for each in snapshot.exceptions] == [f"lost {number}" for number in range(68, 100)]
    assert (snapshot.exceptions_dropped, snapshot.restarts) == (67, 98)


def test_the_reason_of_a_failed_job_is_its_newest_failure() -> None:
    recovered = msgspec.structs.replace(pushed(), exceptions=[failure("recovered", 500)])
    decided = attempt(1, ended=Verdict.FAILED, reason="The job has no checkpoints to resume from.")
    assert failures(shown(view(decided), recovered)) == [
        ("ValueError", "recovered", 1),
        ("PenstockError", "The job has no checkpoints to resume from.", 1),
    ]


def test_a_failed_job_whose_last_failure_is_the_reason_lists_it_once() -> None:
    long = "no such customer" * 1000
    ended = msgspec.structs.replace(pushed(), exceptions=[failure(long, 500)])
    assert len(shown(view(attempt(1, ended=Verdict.FAILED, reason=long[:10_000])), ended).exceptions) == 1


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("Traceback (most recent call last):\n  File \"job.py\", line 1\nKeyError: 'x'", "KeyError"),
        ('Traceback (most recent call last):\n  File "job.py", line 1\na.B: one\ntwo: three', "a.B"),
        ('Traceback (most recent call last):\n  File "job.py", line 1\nStopIteration', "StopIteration"),
        (
            'Traceback (most recent call last):\n  File "job.py", line 1\nKeyError: 1\n\n'
            "During handling of the above exception, another exception occurred:\n\n"
            'Traceback (most recent call last):\n  File "job.py", line 2\nValueError: 2',
            "ValueError",
        ),
        ("The program exited with code 1.", "PenstockError"),
    ],
)
def test_a_program_that_fails_before_its_job_starts_shows_the_class_of_its_error(reason: str, name: str) -> None:
    (only,) = shown(view(attempt(1, ended=Verdict.FAILED, reason=reason)), None).exceptions
    assert (only.name, only.message, only.at_ms) == (name, reason, 900)
