"""The results of operations on jobs that have ended, perhaps because of these operations."""

from __future__ import annotations

import msgspec

from penstock.cluster.job_table import JobTable
from penstock.cluster.records import Ended
from penstock.cluster.supervisor import Supervisor
from penstock.driver.control_messages import CANCEL, CHECKPOINT, RESCALE, SAVEPOINT, STOP
from penstock.driver.job_snapshot import JobSnapshot, Operation
from penstock.driver.operations import NotCompleted, UnknownOperation

_INCOMPLETE = {
    SAVEPOINT: ("the savepoint was complete", "If you need a savepoint, run the job again and make it while it runs."),
    STOP: ("the savepoint was complete", "If you need a savepoint, run the job again and make it while it runs."),
    RESCALE: ("it was rescaled", "Run it with the other parallelism: penstock run -p N."),
    CHECKPOINT: ("the checkpoint was complete", "`penstock list --all` shows how the job ended."),
}


async def last_operation(jobs: JobTable, supervisor: Supervisor, job_id: str, trigger_id: str) -> Operation:
    """Return an operation of a job that no JobManager runs now. Raises UnknownJob, UnknownOperation."""
    shown, view = jobs.find(job_id), jobs.view(job_id)
    found = _find(shown, trigger_id)
    verdict = None if view is None else view.verdict
    if verdict is not None and (found is None or not _decided(found, verdict).done):
        # The process stores the results after the verdict, and then exits: asked before the storage is read.
        exits = supervisor.supervises(job_id)
        stored = await jobs.stored(job_id)
        if stored is None and exits:
            return found or Operation(trigger_id=trigger_id)
        found = (_find(stored, trigger_id) if stored is not None else None) or found
    if found is None:
        raise UnknownOperation(f"Job {job_id} has no operation '{trigger_id}'.", fix="Check the id.")
    return found if verdict is None else _interrupted(_decided(found, verdict), shown.state)


def _find(snapshot: JobSnapshot, trigger_id: str) -> Operation | None:
    return next((each for each in snapshot.operations if each.trigger_id == trigger_id), None)


def _decided(operation: Operation, verdict: Ended) -> Operation:
    """Return an operation with its result, if the verdict on the job is its result."""
    if operation.done:
        return operation
    if operation.kind == CANCEL:
        return msgspec.structs.replace(operation, done=True)
    if verdict.savepoint and operation.kind in (STOP, ""):
        # A process of an earlier version does not tell the kinds apart.
        return msgspec.structs.replace(operation, done=True, savepoint=verdict.savepoint)
    return operation


def _interrupted(operation: Operation, state: str) -> Operation:
    """Return an operation that failed because its job ended, unless it is done."""
    if operation.done:
        return operation
    incomplete, fix = _INCOMPLETE.get(operation.kind, ("the operation was complete", "Look up how the job ended."))
    error = NotCompleted(f"The job ended before {incomplete}: it is {state}.", fix=fix)
    return msgspec.structs.replace(operation, done=True, failure_kind=type(error).__name__, failure=str(error))
