"""The results of operations on jobs that have ended, perhaps because of these operations."""

from __future__ import annotations

import asyncio

import msgspec

from penstock.cluster.job_table import JobTable
from penstock.cluster.records import Ended, Records
from penstock.cluster.shown import STATES
from penstock.cluster.supervisor import Supervisor
from penstock.driver.control_messages import CANCEL, CHECKPOINT, RESCALE, SAVEPOINT, STOP
from penstock.driver.job_snapshot import JobSnapshot, Operation
from penstock.driver.operations import NotCompleted, UnknownOperation
from penstock.state.storage import StorageError

_INCOMPLETE = {
    SAVEPOINT: ("the savepoint was complete", "If you need a savepoint, run the job again and make it while it runs."),
    STOP: ("the savepoint was complete", "If you need a savepoint, run the job again and make it while it runs."),
    RESCALE: ("it was rescaled", "Run it with the other parallelism: penstock run -p N."),
    CHECKPOINT: ("the checkpoint was complete", "`penstock list --all` shows how the job ended."),
}


async def last_operation(
    jobs: JobTable, supervisor: Supervisor, records: Records, job_id: str, trigger_id: str
) -> Operation:
    """Return an operation of a job that no JobManager runs now. Raises UnknownJob, UnknownOperation."""
    found = _find(jobs.find(job_id), trigger_id)
    verdict = await _verdict(jobs, records, job_id)
    if verdict is not None and (found is None or not _decided(found, verdict).done):
        # The process stores the results after the verdict, and then exits: asked before the storage is read.
        exits = supervisor.supervises(job_id)
        stored = await jobs.stored(job_id)
        if stored is None and exits:
            return found or Operation(trigger_id=trigger_id)
        found = (_find(stored, trigger_id) if stored is not None else None) or found
    if found is None:
        raise UnknownOperation(f"Job {job_id} has no operation '{trigger_id}'.", fix="Check the id.")
    return found if verdict is None else _interrupted(_decided(found, verdict), STATES[verdict.verdict])


async def _verdict(jobs: JobTable, records: Records, job_id: str) -> Ended | None:
    """Return the verdict on a job, also if the supervisor has not seen it yet: an operation can end a job at once."""
    try:
        return (await asyncio.to_thread(records.view, job_id)).verdict
    except (StorageError, OSError):
        known = jobs.view(job_id)
        return None if known is None else known.verdict


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
