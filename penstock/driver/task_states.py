"""The states of a job's tasks, which follow from the state of the job."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.common.job import JobStatus
from penstock.driver.job_snapshot import JobSnapshot, VertexSnapshot
from penstock.driver.life_cycle import Phase

_TERMINAL = frozenset({"FINISHED", "CANCELED", "FAILED"})
_WITHOUT_PROCESS = {
    "CREATED": "CREATED",
    "INITIALIZING": "CREATED",
    "CANCELLING": "CANCELING",
    "RESTARTING": "CANCELED",
    "SUSPENDED": "CANCELED",
    "CANCELED": "CANCELED",
    "FAILED": "CANCELED",
    "FINISHED": "FINISHED",
}
"""The states of tasks whose process did not report the state of the job."""
_NO_RATES = dict.fromkeys(
    ("busy", "backpressured", "records_in_rate", "records_out_rate", "bytes_in_rate", "bytes_out_rate"), 0.0
)


def task_state(phase: Phase, status: JobStatus, waits: bool) -> str:
    """Return the state of the tasks of a job in this phase. `waits`: whether the job waits for slots."""
    if status in (JobStatus.CANCELLING, JobStatus.FAILING):
        return "CANCELING"
    if status in (JobStatus.FAILED, JobStatus.RESTARTING):
        return "FAILED"
    if status in (JobStatus.CANCELED, JobStatus.SUSPENDED):
        return "CANCELED"
    if status is JobStatus.FINISHED:
        return "FINISHED"
    if phase is Phase.CREATED:
        return "CREATED"
    if waits:
        return "SCHEDULED"
    return "INITIALIZING" if phase is Phase.RECOVERING else "RUNNING"


def with_job_state(snapshot: JobSnapshot, state: str, since_ms: int) -> JobSnapshot:
    """Return the snapshot of a job that entered another state since its process took the snapshot.

    Its tasks get the matching state: a job that was cancelled after its process died has no running tasks.
    """
    if snapshot.state == state:
        return snapshot
    since = {**snapshot.state_since_ms, state: max(since_ms, snapshot.state_since_ms.get(state, 0))}
    tasks = _WITHOUT_PROCESS.get(state)
    if tasks is None:
        return replace(snapshot, state=state, state_since_ms=since)
    return replace(
        snapshot,
        state=state,
        state_since_ms=since,
        tasks_since_ms={tasks: since_ms} if tasks == "CREATED" else {tasks: since_ms, **snapshot.tasks_since_ms},
        vertices=[_vertex_in(vertex, tasks) for vertex in snapshot.vertices],
        stoppable=False,
    )


def _vertex_in(vertex: VertexSnapshot, state: str) -> VertexSnapshot:
    """Return a vertex with its tasks in this state. Tasks that have ended keep theirs, unless they start again."""
    kept = _TERMINAL if state != "CREATED" else frozenset()
    subtasks = [each if each.state in kept else replace(each, state=state, **_NO_RATES) for each in vertex.subtasks]
    states = [each.state for each in subtasks] or [state]
    return replace(
        vertex,
        subtasks=subtasks,
        tasks={each: states.count(each) for each in dict.fromkeys(states)} if subtasks else {},
        state="FAILED" if "FAILED" in states else states[0],
    )
