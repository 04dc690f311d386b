"""Views of a job's vertices and their subtasks."""

from __future__ import annotations

from typing import Any, Literal

from penstock.common.wall_clock import now_ms
from penstock.driver.job_snapshot import JobSnapshot, SubtaskSnapshot, VertexSnapshot
from penstock.rest.contract import (
    JobVertexAccumulatorsInfo,
    JobVertexBackPressureInfo,
    JobVertexTaskManagersInfo,
    SubtaskAccumulatorsInfo,
    SubtaskBackPressureInfo,
    SubtaskExecutionAttemptAccumulatorsInfo,
    SubtaskExecutionAttemptDetailsInfo,
    SubtasksAllAccumulatorsInfo,
    SubtasksTimesInfo,
    SubtaskTimeInfo,
    TaskManagersInfo,
    VertexDetailsInfo,
    VertexFlameGraph,
    VertexFlameGraphNode,
)
from penstock.rest.views.requests import BadQuery, NotFound, PathParams, Query
from penstock.rest.views.shared import (
    TASK_STATES,
    accumulators,
    addresses,
    aggregated,
    counted,
    duration,
    endpoint,
    io_metrics,
    status_durations,
    summed,
    task_ended,
    task_started,
    taskmanager_id,
    vertex_of,
    whole,
)
from penstock.runtime.watermarks import LEAST

Level = Literal["ok", "low", "high"]
_LOW, _HIGH = 0.1, 0.5
"""Shares of back-pressured time above which Flink calls the level low and high."""
_GRAPHS = ("FULL", "ON_CPU", "OFF_CPU")


def vertex(job: JobSnapshot, params: PathParams, query: Query) -> VertexDetailsInfo:
    found, now = vertex_of(job, params), now_ms()
    durations, hosts = status_durations(job, now), addresses(job)
    return VertexDetailsInfo(
        id=found.id,
        name=found.name,
        parallelism=found.parallelism,
        max_parallelism=found.max_parallelism,
        now=now,
        subtasks=[_attempt(job, number, each, now, durations, hosts) for number, each in enumerate(found.subtasks)],
        aggregated=aggregated(job, found.subtasks, now),
    )


def _attempt(
    job: JobSnapshot,
    number: int,
    subtask: SubtaskSnapshot,
    now: int,
    durations: dict[str, int],
    hosts: dict[str, str],
) -> SubtaskExecutionAttemptDetailsInfo:
    start, end = task_started(job), task_ended(job)
    return SubtaskExecutionAttemptDetailsInfo(
        subtask=number,
        status=subtask.state,  # type: ignore[arg-type]
        attempt=job.restarts,
        endpoint=endpoint(hosts, subtask),
        start_time=start,
        end_time=end,
        duration=duration(start, end, now),
        metrics=io_metrics(subtask),
        taskmanager_id=taskmanager_id(job, subtask.executor),
        status_duration=durations,
        other_concurrent_attempts=[],
        start_time_=start,
    )


def subtask_of(found: VertexSnapshot, params: PathParams) -> tuple[int, SubtaskSnapshot]:
    """Return the subtask that the path names, with its number."""
    number = whole(params, "subtaskindex")
    if number >= len(found.subtasks):
        raise NotFound(
            f"Vertex {found.id} has no subtask {number}.",
            fix=f"Pass a number below {len(found.subtasks)}, its parallelism.",
        )
    return number, found.subtasks[number]


def subtask(job: JobSnapshot, params: PathParams, query: Query) -> SubtaskExecutionAttemptDetailsInfo:
    number, found = subtask_of(vertex_of(job, params), params)
    now = now_ms()
    return _attempt(job, number, found, now, status_durations(job, now), addresses(job))


def attempt(job: JobSnapshot, params: PathParams, query: Query) -> SubtaskExecutionAttemptDetailsInfo:
    _check_attempt(job, params)
    return subtask(job, params, query)


def _check_attempt(job: JobSnapshot, params: PathParams) -> None:
    wanted = whole(params, "attempt")
    if wanted != job.restarts:
        raise NotFound(
            f"Job {job.id} does not run attempt {wanted} of its tasks.",
            fix=f"Pass {job.restarts}, the number of its restarts. Earlier attempts are not kept.",
        )


def subtask_times(job: JobSnapshot, params: PathParams, query: Query) -> SubtasksTimesInfo:
    found, now = vertex_of(job, params), now_ms()
    hosts = addresses(job)
    spent = duration(task_started(job), task_ended(job), now)
    times = {state: max(0, job.tasks_since_ms.get(state, 0)) for state in TASK_STATES}
    return SubtasksTimesInfo(
        id=found.id,
        name=found.name,
        now=now,
        subtasks=[
            SubtaskTimeInfo(subtask=number, endpoint=endpoint(hosts, each), duration=spent, timestamps=times)
            for number, each in enumerate(found.subtasks)
        ],
    )


def taskmanagers(job: JobSnapshot, params: PathParams, query: Query) -> JobVertexTaskManagersInfo:
    found, now = vertex_of(job, params), now_ms()
    hosts = addresses(job)
    start, end = task_started(job), task_ended(job)
    groups: dict[str, list[SubtaskSnapshot]] = {}
    for each in found.subtasks:
        groups.setdefault(each.executor, []).append(each)
    return JobVertexTaskManagersInfo(
        id=found.id,
        name=found.name,
        now=now,
        taskmanagers=[
            TaskManagersInfo(
                endpoint=endpoint(hosts, subtasks[0]),
                status=found.state,  # type: ignore[arg-type]
                start_time=start,
                end_time=end,
                duration=duration(start, end, now),
                metrics=io_metrics(summed(subtasks)),
                status_counts=counted(subtasks),
                taskmanager_id=taskmanager_id(job, executor),
                aggregated=aggregated(job, subtasks, now),
            )
            for executor, subtasks in groups.items()
        ],
    )


def backpressure(job: JobSnapshot, params: PathParams, query: Query) -> JobVertexBackPressureInfo:
    found = vertex_of(job, params)
    level = _level(max((each.backpressured for each in found.subtasks), default=0.0))
    return JobVertexBackPressureInfo(
        status="ok",
        backpressure_level=level,
        backpressure_level_=level,
        end_timestamp=job.recent_epochs[-1].ended_ms if job.recent_epochs else job.taken_ms,
        subtasks=[_pressure(job, number, each) for number, each in enumerate(found.subtasks)],
    )


def _pressure(job: JobSnapshot, number: int, subtask: SubtaskSnapshot) -> SubtaskBackPressureInfo:
    level = _level(subtask.backpressured)
    return SubtaskBackPressureInfo(
        subtask=number,
        attempt_number=job.restarts,
        backpressure_level=level,
        backpressure_level_=level,
        ratio=subtask.backpressured,
        idle_ratio=max(0.0, 1.0 - subtask.busy - subtask.backpressured),
        busy_ratio=subtask.busy,
        other_concurrent_attempts=[],
    )


def _level(share: float) -> Level:
    return "ok" if share <= _LOW else "low" if share <= _HIGH else "high"


def flame_graph(job: JobSnapshot, params: PathParams, query: Query) -> VertexFlameGraph:
    found = vertex_of(job, params)
    kind = query.get("type", "FULL").upper()
    if kind not in _GRAPHS:
        raise BadQuery(f"The type of the flame graph is '{kind}'.", fix=f"Pass one of {', '.join(_GRAPHS)}.")
    if query.get("subtaskindex"):
        subtask_of(found, query)
    # Executors are not sampled.
    return VertexFlameGraph(end_timestamp=0, data=VertexFlameGraphNode(name="root", value=0, children=[]))


def watermarks(job: JobSnapshot, params: PathParams, query: Query) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{number}.currentInputWatermark",
            "value": str(LEAST if each.watermark is None else each.watermark),
        }
        for number, each in enumerate(vertex_of(job, params).subtasks)
    ]


# -- accumulators ------------------------------------------------------------------------------------------------------


def vertex_accumulators(job: JobSnapshot, params: PathParams, query: Query) -> JobVertexAccumulatorsInfo:
    found = vertex_of(job, params)
    totals = {name: sum(value or 0 for value in values) for name, values in found.counters.items()}
    return JobVertexAccumulatorsInfo(id=found.id, user_accumulators=accumulators(totals))


def subtasks_accumulators(job: JobSnapshot, params: PathParams, query: Query) -> SubtasksAllAccumulatorsInfo:
    found, hosts = vertex_of(job, params), addresses(job)
    return SubtasksAllAccumulatorsInfo(
        id=found.id,
        parallelism=found.parallelism,
        subtasks=[
            SubtaskAccumulatorsInfo(
                subtask=number,
                attempt=job.restarts,
                endpoint=endpoint(hosts, each),
                user_accumulators=accumulators(_counters_of(found, number)),
            )
            for number, each in enumerate(found.subtasks)
        ],
    )


def attempt_accumulators(job: JobSnapshot, params: PathParams, query: Query) -> SubtaskExecutionAttemptAccumulatorsInfo:
    _check_attempt(job, params)
    found = vertex_of(job, params)
    number, _ = subtask_of(found, params)
    return SubtaskExecutionAttemptAccumulatorsInfo(
        subtask=number,
        attempt=job.restarts,
        id=f"{found.id}_{number}_{job.restarts}",
        user_accumulators=accumulators(_counters_of(found, number)),
    )


def _counters_of(found: VertexSnapshot, number: int) -> dict[str, int]:
    return {name: value for name, values in found.counters.items() if (value := values[number]) is not None}
