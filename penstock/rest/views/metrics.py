"""Views of metrics: of a job, a vertex, a subtask or an executor, and aggregated over several of them.

Without `get`, an answer lists the ids; with `get=a,b` it has the values of those that exist, as text. Names are those
of Flink where Flink has the metric, and Penstock's own otherwise.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.driver.job_snapshot import ExecutorSnapshot, JobSnapshot, Number, VertexSnapshot
from penstock.driver.measures import values_of_executor, values_of_job, values_of_task
from penstock.rest.views.requests import BadQuery, NotFound, PathParams, Query
from penstock.rest.views.shared import ENDED, names, taskmanager_id, vertex_of
from penstock.rest.views.vertices import subtask_of

Values = Mapping[str, Number | str]
Answer = list[dict[str, Any]]


def _listed(values: Values, query: Query) -> Answer:
    wanted = names(query, "get")
    if not wanted:
        return [{"id": name} for name in values]
    return [{"id": name, "value": str(values[name])} for name in wanted if name in values]


# -- one job -----------------------------------------------------------------------------------------------------------


def job_metrics(job: JobSnapshot, params: PathParams, query: Query) -> Answer:
    return _listed(values_of_job(job), query)


# -- one vertex --------------------------------------------------------------------------------------------------------


def values_of_subtask(vertex: VertexSnapshot, number: int) -> dict[str, Number | str]:
    """Return the metrics of a subtask, by name: of its task, and of its operators as `<operator name>.<metric>`."""
    measured = vertex.subtasks[number]
    values: dict[str, Number | str] = {**values_of_task(measured)}
    values["isBackPressured"] = str(measured.backpressured > 0.5).lower()
    for name, cells in _by_operator_name(vertex):
        value = cells[number]
        if value is not None:
            values[name] = value
    return values


def _by_operator_name(vertex: VertexSnapshot) -> Iterable[tuple[str, list[Number | None]]]:
    """Yield an operator's metrics under its uid, and under its name, as Flink's clients expect."""
    known = {each.uid: each.name for each in vertex.operators}
    for full, cells in vertex.metrics.items():
        yield full, cells
        uid = max((uid for uid in known if full.startswith(f"{uid}.")), key=len, default=None)
        if uid is not None and known[uid] != uid:
            yield f"{known[uid]}{full[len(uid) :]}", cells


def vertex_metrics(job: JobSnapshot, params: PathParams, query: Query) -> Answer:
    vertex = vertex_of(job, params)
    wanted = names(query, "get")
    answer: Answer = []
    by_subtask: dict[int, Values] = {}
    if not wanted:
        for number in range(len(vertex.subtasks)):
            answer += [{"id": f"{number}.{name}"} for name in values_of_subtask(vertex, number)]
        return answer
    for full in wanted:
        digits, _, name = full.partition(".")
        if digits.isascii() and digits.isdigit() and len(digits) < 10 and int(digits) < len(vertex.subtasks):
            number = int(digits)
            if number not in by_subtask:
                by_subtask[number] = values_of_subtask(vertex, number)
            if name in by_subtask[number]:
                answer.append({"id": full, "value": str(by_subtask[number][name])})
    return answer


def driver_metrics(job: JobSnapshot, params: PathParams, query: Query) -> Answer:
    return _listed(vertex_of(job, params).driver_metrics, query)


def subtask_metrics(job: JobSnapshot, params: PathParams, query: Query) -> Answer:
    vertex = vertex_of(job, params)
    number, _ = subtask_of(vertex, params)
    return _listed(values_of_subtask(vertex, number), query)


# -- executors ---------------------------------------------------------------------------------------------------------


def executors(jobs: Sequence[JobSnapshot]) -> dict[str, tuple[JobSnapshot, ExecutorSnapshot]]:
    """Return the executors of all jobs that have not ended, by the id of the task manager."""
    return {
        taskmanager_id(job, each.id): (job, each) for job in jobs if job.state not in ENDED for each in job.executors
    }


def executor_of(jobs: Sequence[JobSnapshot], params: PathParams) -> tuple[str, JobSnapshot, ExecutorSnapshot]:
    """Return the executor that the path names, with the id of the task manager and its job."""
    wanted = params["taskmanagerid"]
    found = executors(jobs).get(wanted)
    if found is None:
        raise NotFound(f"No task manager '{wanted}' runs.", fix="Look up the ids with GET /taskmanagers.")
    return wanted, *found


def taskmanager_metrics(jobs: Sequence[JobSnapshot], params: PathParams, query: Query) -> Answer:
    return _listed(values_of_executor(executor_of(jobs, params)[2]), query)


# -- the cluster -------------------------------------------------------------------------------------------------------


def cluster_metrics(jobs: Sequence[JobSnapshot], params: PathParams, query: Query) -> Answer:
    known = [each for _, each in executors(jobs).values()]
    values: dict[str, Number | str] = {
        "numRegisteredTaskManagers": len(known),
        "numRunningJobs": sum(job.state not in ENDED for job in jobs),
        "taskSlotsTotal": sum(each.slots for each in known),
        "taskSlotsAvailable": sum(max(0, each.slots - each.active_tasks) for each in known),
    }
    return _listed(values, query)


# -- aggregated --------------------------------------------------------------------------------------------------------


def aggregated_jobs(jobs: Sequence[JobSnapshot], params: PathParams, query: Query) -> Answer:
    wanted = set(names(query, "jobs"))
    return _aggregated([values_of_job(job) for job in jobs if not wanted or job.id in wanted], query)


def aggregated_taskmanagers(jobs: Sequence[JobSnapshot], params: PathParams, query: Query) -> Answer:
    wanted = set(names(query, "taskmanagers"))
    found = [values_of_executor(each) for key, (_, each) in executors(jobs).items() if not wanted or key in wanted]
    return _aggregated(found, query)


def aggregated_subtasks(job: JobSnapshot, params: PathParams, query: Query) -> Answer:
    vertex = vertex_of(job, params)
    numbers = _numbers(names(query, "subtasks"), len(vertex.subtasks))
    return _aggregated([values_of_subtask(vertex, number) for number in numbers], query)


def _numbers(ranges: list[str], count: int) -> list[int]:
    """Return the subtasks of `0-3,7`, as far as they exist."""
    if not ranges:
        return list(range(count))
    found: set[int] = set()
    for each in ranges:
        first, _, last = each.partition("-")
        last = last or first
        if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in (first, last)):
            raise BadQuery(f"'{each}' is not a subtask or a range of subtasks.", fix="Pass numbers such as 0-3,7.")
        found.update(range(int(first), min(int(last) + 1, count)))
    return sorted(found)


_AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {
    "min": min,
    "max": max,
    "avg": lambda values: sum(values) / len(values),
    "sum": sum,
    "skew": lambda values: _skew(values),
}


def _skew(values: list[float]) -> float:
    """Return the mean absolute deviation from the mean, in percent of the mean."""
    mean = sum(values) / len(values)
    return 100 * sum(abs(value - mean) for value in values) / len(values) / abs(mean) if mean else 0.0


def _in_json(value: float) -> float:
    """Return a number that JSON has: a sum of very large numbers is infinite, and its deviation is NaN."""
    return 0.0 if math.isnan(value) else max(-sys.float_info.max, min(float(value), sys.float_info.max))


def _aggregated(cells: list[dict[str, Number | str]], query: Query) -> Answer:
    wanted, chosen = names(query, "get"), names(query, "agg") or list(_AGGREGATIONS)
    for name in chosen:
        if name not in _AGGREGATIONS:
            raise BadQuery(f"The aggregation '{name}' does not exist.", fix=f"Pass {', '.join(_AGGREGATIONS)}.")
    if not wanted:
        return [{"id": name} for name in dict.fromkeys(name for values in cells for name in values)]
    answer: Answer = []
    for name in wanted:
        found = [value for values in cells if not isinstance(value := values.get(name, ""), str)]
        if found:
            answer.append({"id": name} | {each: _in_json(_AGGREGATIONS[each](found)) for each in chosen})
    return answer
