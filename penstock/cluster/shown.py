"""The snapshot of a job that clients see: the last one of its JobManager, corrected by the records, which decide."""

from __future__ import annotations

import msgspec

from penstock.cluster.records import JobView
from penstock.driver.assignment import Verdict
from penstock.driver.job_snapshot import JobSnapshot
from penstock.driver.task_states import with_job_state

_STATES = {
    Verdict.FINISHED: "FINISHED",
    Verdict.STOPPED: "FINISHED",
    Verdict.FAILED: "FAILED",
    Verdict.CANCELED: "CANCELED",
}
_ENDED = frozenset(_STATES.values())


def shown(view: JobView, pushed: JobSnapshot | None) -> JobSnapshot:
    """Return the snapshot of a job. `pushed` is the last snapshot that a JobManager of the job sent, if any."""
    submission = view.submission
    snapshot = pushed or JobSnapshot(
        id=submission.id,
        name=submission.name,
        state="CREATED",
        state_since_ms={"CREATED": submission.submitted_ms},
    )
    verdict = view.verdict
    if verdict is not None:
        changes = {"ended_ms": verdict.at_ms, "reason": verdict.reason, "savepoint": verdict.savepoint}
        return _in_state(snapshot, view, _STATES[verdict.verdict], verdict.at_ms, changes)
    last = view.last
    if last is None:
        return _in_state(snapshot, view, "CREATED", submission.submitted_ms)
    if last.ended is not None:
        state = "CANCELLING" if view.cancel_requested else "RESTARTING"
        return _in_state(snapshot, view, state, last.ended.at_ms, {"reason": last.ended.reason})
    if snapshot.attempt != last.number:
        # The process of this attempt has not reported yet.
        since = last.planned.at_ms if last.planned is not None else submission.submitted_ms
        return _in_state(snapshot, view, "CANCELLING" if view.cancel_requested else "INITIALIZING", since)
    if snapshot.state in _ENDED:
        # The process reports its end before the records do.
        return _in_state(snapshot, view, "CANCELLING" if view.cancel_requested else "RUNNING", snapshot.started_ms)
    if view.cancel_requested and snapshot.state != "CANCELLING":
        return _in_state(snapshot, view, "CANCELLING", last.claim.at_ms if last.claim else 0)
    return snapshot


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
