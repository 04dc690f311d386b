"""Parts that several views share: times, states, statistics of values, and metrics of tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

from penstock.driver.job_snapshot import JobSnapshot, SubtaskSnapshot, VertexSnapshot
from penstock.driver.measures import ENDED as ENDED
from penstock.driver.measures import ended_at as ended_at
from penstock.driver.measures import taskmanager_id as taskmanager_id
from penstock.rest.contract import (
    AggregatedTaskDetailsInfo,
    ConfigurationInfoEntry,
    IOMetricsInfo,
    JobState,
    TaskState,
    UserAccumulator,
)
from penstock.rest.views.requests import BadQuery, NotFound, PathParams, Query

JOB_STATES: tuple[str, ...] = get_args(JobState)
TASK_STATES: tuple[str, ...] = get_args(TaskState)
_STATES_BEFORE_END = ("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING")
_PERCENTILES = {"median": 0.5, "p25": 0.25, "p75": 0.75, "p95": 0.95}


def duration(start: int, end: int, now: int) -> int:
    """Return how long something took that has perhaps not ended, and perhaps not begun."""
    return max(0, (end if end >= 0 else now) - start) if start > 0 else 0


def vertex_of(job: JobSnapshot, params: PathParams) -> VertexSnapshot:
    """Return the vertex that the path names."""
    wanted = params["vertexid"]
    for vertex in job.vertices:
        if vertex.id == wanted:
            return vertex
    raise NotFound(
        f"Job {job.id} has no vertex '{wanted}'.", fix=f"Look up the ids of its vertices with GET /jobs/{job.id}."
    )


def whole(params: Mapping[str, str], name: str) -> int:
    """Return a parameter that must be a whole number, not below 0."""
    text = params[name]
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadQuery(f"The parameter '{name}' is '{text}'.", fix="Pass a whole number, 0 or greater.")
    return int(text)


def names(query: Query, name: str) -> list[str]:
    """Return the values of a parameter that is a list separated by commas."""
    return [each for each in query.get(name, "").split(",") if each]


def entries(settings: Mapping[str, str]) -> list[ConfigurationInfoEntry]:
    """Return settings, whose secrets are masked already, in order of their keys."""
    return [ConfigurationInfoEntry(key=key, value=value) for key, value in sorted(settings.items())]


# -- executors and tasks -----------------------------------------------------------------------------------------------


def endpoint(addresses: Mapping[str, str], subtask: SubtaskSnapshot) -> str:
    """Return the host and port of the subtask's executor, or its host if the executor is gone."""
    return addresses.get(subtask.executor) or subtask.host


def addresses(job: JobSnapshot) -> dict[str, str]:
    """Return the addresses of the job's executors, by Spark's id."""
    return {each.id: each.address for each in job.executors}


def task_started(job: JobSnapshot) -> int:
    """Return when the tasks of the current restart began to run, or -1."""
    return job.tasks_since_ms.get("RUNNING", -1)


def task_ended(job: JobSnapshot) -> int:
    """Return when the tasks ended, or -1 while they run."""
    return max((job.tasks_since_ms.get(state, -1) for state in ("FINISHED", "CANCELED", "FAILED")), default=-1)


def status_durations(job: JobSnapshot, now: int) -> dict[str, int]:
    """Return how long the tasks of the current restart were in each state before they ended, or -1 if never."""
    end = task_ended(job)
    durations = dict.fromkeys(_STATES_BEFORE_END, -1)
    left = end if end >= 0 else now
    entered = {state: job.tasks_since_ms[state] for state in _STATES_BEFORE_END if state in job.tasks_since_ms}
    # A job waits for slots after it has recovered, so SCHEDULED can follow INITIALIZING.
    for state in sorted(entered, key=lambda each: entered[each])[::-1]:
        durations[state] = max(0, left - entered[state])
        left = entered[state]
    return durations


def io_metrics(measured: SubtaskSnapshot) -> IOMetricsInfo:
    """Return the amounts that a subtask, or all of them, received and sent."""
    return IOMetricsInfo(
        read_bytes=measured.bytes_in,
        read_bytes_complete=True,
        write_bytes=measured.bytes_out,
        write_bytes_complete=True,
        read_records=measured.records_in,
        read_records_complete=True,
        write_records=measured.records_out,
        write_records_complete=True,
        accumulated_backpressured_time=round(measured.backpressured_ms),
        accumulated_idle_time=round(measured.idle_ms),
        accumulated_busy_time=measured.busy_ms,
    )


def summed(subtasks: Sequence[SubtaskSnapshot]) -> SubtaskSnapshot:
    """Return the sums of the subtasks' counts and times."""
    return SubtaskSnapshot(
        records_in=sum(each.records_in for each in subtasks),
        records_out=sum(each.records_out for each in subtasks),
        bytes_in=sum(each.bytes_in for each in subtasks),
        bytes_out=sum(each.bytes_out for each in subtasks),
        busy_ms=sum(each.busy_ms for each in subtasks),
        idle_ms=sum(each.idle_ms for each in subtasks),
        backpressured_ms=sum(each.backpressured_ms for each in subtasks),
    )


def counted(subtasks: Iterable[SubtaskSnapshot]) -> dict[str, int]:
    """Return the number of subtasks in each state."""
    counts = dict.fromkeys(TASK_STATES, 0)
    for each in subtasks:
        counts[each.state] += 1
    return counts


_AGGREGATED: dict[str, Callable[[SubtaskSnapshot], int]] = {
    "read-bytes": lambda each: each.bytes_in,
    "read-records": lambda each: each.records_in,
    "write-bytes": lambda each: each.bytes_out,
    "write-records": lambda each: each.records_out,
    "accumulated-backpressured-time": lambda each: round(each.backpressured_ms),
    "accumulated-idle-time": lambda each: round(each.idle_ms),
    "accumulated-busy-time": lambda each: round(each.busy_ms),
}


def aggregated(job: JobSnapshot, subtasks: Sequence[SubtaskSnapshot], now: int) -> AggregatedTaskDetailsInfo:
    """Return the statistics of the subtasks' amounts and times."""
    return AggregatedTaskDetailsInfo(
        metrics={name: _statistics([read(each) for each in subtasks]) for name, read in _AGGREGATED.items()},
        # All tasks of a job enter their states together.
        status_duration={
            state: _statistics([spent] * len(subtasks)) for state, spent in status_durations(job, now).items()
        },
    )


def _statistics(values: list[int]) -> dict[str, int]:
    values.sort()
    count = len(values)
    total = sum(values)
    found = {"min": values[0], "max": values[-1], "avg": total // count, "sum": total} if count else {}
    found = found or {"min": 0, "max": 0, "avg": 0, "sum": 0}
    for name, share in _PERCENTILES.items():
        found[name] = values[max(0, math.ceil(share * count) - 1)] if count else 0
    return found


def accumulators(counters: Mapping[str, Any]) -> list[UserAccumulator]:
    """Return counters of user functions, as Flink shows accumulators."""
    return [
        UserAccumulator(name=name, type="LongCounter", value=str(value)) for name, value in sorted(counters.items())
    ]
