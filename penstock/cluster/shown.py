"""The snapshot of a job that clients see: the last one of its JobManager, corrected by the records, which decide."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from penstock.cluster.records import Attempt, JobView
from penstock.driver.assignment import Verdict
from penstock.driver.failure_log import KEPT, class_in_traceback
from penstock.driver.job_snapshot import ExceptionSnapshot, JobSnapshot
from penstock.driver.task_states import with_job_state

STATES = {
    Verdict.FINISHED: "FINISHED",
    Verdict.STOPPED: "FINISHED",
    Verdict.FAILED: "FAILED",
    Verdict.CANCELED: "CANCELED",
}
"""The state of a job by the verdict on it."""
_ENDED = frozenset(STATES.values())


def shown(view: JobView, pushed: JobSnapshot | None) -> JobSnapshot:
    """Return the snapshot of a job. `pushed` is the last snapshot that a JobManager of the job sent, if any."""
    submission = view.submission
    snapshot = pushed or JobSnapshot(
        id=submission.id,
        name=submission.name,
        state="CREATED",
        state_since_ms={"CREATED": submission.submitted_ms},
    )
    snapshot = _with_attempts(snapshot, view.attempts)
    verdict = view.verdict
    if verdict is not None:
        changes = {"ended_ms": verdict.at_ms, "reason": verdict.reason, "savepoint": verdict.savepoint}
        return _in_state(snapshot, view, STATES[verdict.verdict], verdict.at_ms, changes)
    last = view.last
    if last is None:
        return _in_state(snapshot, view, "CREATED", submission.submitted_ms)
    if last.ended is not None:
        state = "CANCELLING" if view.cancel_requested else "RESTARTING"
        return _in_state(snapshot, view, state, last.ended.at_ms, {"reason": last.ended.reason, "executors": []})
    if snapshot.attempt != last.number:
        # The process of this attempt has not reported yet.
        since = last.planned.at_ms if last.planned is not None else submission.submitted_ms
        state = "CANCELLING" if view.cancel_requested else "INITIALIZING"
        return _in_state(snapshot, view, state, since, {"executors": []})
    if snapshot.state in _ENDED:
        # The process reports its end before the records do.
        return _in_state(snapshot, view, "CANCELLING" if view.cancel_requested else "RUNNING", snapshot.started_ms)
    if view.cancel_requested and snapshot.state != "CANCELLING":
        # The request has no time, but the process has reported since shortly before it.
        return _in_state(snapshot, view, "CANCELLING", snapshot.taken_ms)
    return snapshot


def _with_attempts(snapshot: JobSnapshot, attempts: list[Attempt]) -> JobSnapshot:
    """Return the snapshot with the ends of attempts that are failures, and the restarts that followed."""
    restarts = sum(after.planned is None or after.planned.starts for _, after in pairwise(attempts))
    known = snapshot.exceptions
    lost, failed = _failures(attempts, Verdict.LOST, known), _failures(attempts, Verdict.FAILED, known)
    if not (restarts or lost or failed):
        return snapshot
    # The verdict is the last one, whatever the clocks of other hosts showed.
    listed = sorted([*known, *lost], key=lambda each: each.at_ms) + failed
    return msgspec.structs.replace(
        snapshot,
        exceptions=listed[-KEPT:],
        exceptions_dropped=snapshot.exceptions_dropped + max(0, len(listed) - KEPT),
        restarts=snapshot.restarts + restarts,
    )


def _failures(attempts: list[Attempt], verdict: Verdict, known: list[ExceptionSnapshot]) -> list[ExceptionSnapshot]:
    """Return the attempts that ended so, except those whose process reported the same failure."""
    default = "AttemptLost" if verdict is Verdict.LOST else "PenstockError"
    return [
        ExceptionSnapshot(
            name=class_in_traceback(ended.reason) or default,
            message=ended.reason,
            at_ms=ended.at_ms,
            attempt=each.number,
            restart=max((failure.restart for failure in known if failure.at_ms <= ended.at_ms), default=0),
        )
        for each in attempts
        if (ended := each.ended) is not None
        and ended.verdict is verdict
        and not (ended.reason and any(failure.message.startswith(ended.reason) for failure in known))
    ]


def _in_state(
    snapshot: JobSnapshot, view: JobView, state: str, since_ms: int, changes: dict[str, object] | None = None
) -> JobSnapshot:
    if state not in snapshot.state_since_ms:
        times = {**snapshot.state_since_ms, state: since_ms}
        snapshot = msgspec.structs.replace(snapshot, state_since_ms=times)
    return msgspec.structs.replace(
        with_job_state(snapshot, state, since_ms),
        attempt=0 if view.last is None else view.last.number,
        started_ms=view.submission.submitted_ms,
        **{"ended_ms": -1, **(changes or {})},
    )
