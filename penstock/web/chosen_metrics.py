"""The metrics of a job that a viewer can draw, by a name that stays the same when the job runs again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from penstock.driver.job_snapshot import JobSnapshot, Number, VertexSnapshot
from penstock.driver.measures import values_of_job, values_of_task
from penstock.web.quantities import byte_rate, duration, number, rate, share, size, utc

_MOST_LINES = 6
"""With more subtasks, a chart has their maximum, mean and minimum."""
_JOB, _TASK, _OPERATOR, _DRIVER = "job", "task", "operator", "driver"


def choices(job: JobSnapshot) -> dict[str, str]:
    """Return what can be drawn: the text for a viewer, by key."""
    found = {
        f"{_JOB}:{name}": f"Job: {name}" for name, value in values_of_job(job).items() if not isinstance(value, str)
    }
    for vertex in job.vertices:
        for scope, names in _names(vertex):
            found |= {f"{scope}:{vertex.id}:{name}": f"{vertex.name}: {name}" for name in names}
    return found


def _names(vertex: VertexSnapshot) -> Iterator[tuple[str, Iterable[str]]]:
    if vertex.subtasks:
        yield _TASK, values_of_task(vertex.subtasks[0])
    yield _OPERATOR, sorted(vertex.metrics)
    yield _DRIVER, sorted(vertex.driver_metrics)


def values_of(job: JobSnapshot, key: str) -> dict[str, float]:
    """Return the current values of a metric by line of its chart; empty if the job does not have it now."""
    scope, _, rest = key.partition(":")
    if scope == _JOB:
        value = values_of_job(job).get(rest)
        return {"job": float(value)} if isinstance(value, int | float) else {}
    vertex_id, _, name = rest.partition(":")
    vertex = next((each for each in job.vertices if each.id == vertex_id), None)
    if vertex is None:
        return {}
    if scope == _DRIVER:
        return {"driver": float(vertex.driver_metrics[name])} if name in vertex.driver_metrics else {}
    if scope == _TASK:
        return _lines([values_of_task(each).get(name) for each in vertex.subtasks])
    return _lines(vertex.metrics.get(name, []))


def _lines(cells: list[Number | None]) -> dict[str, float]:
    found = {f"subtask {place}": float(value) for place, value in enumerate(cells) if value is not None}
    if len(found) <= _MOST_LINES:
        return found
    values = list(found.values())
    return {"maximum": max(values), "mean": sum(values) / len(values), "minimum": min(values)}


def unit_of(key: str) -> Callable[[float], str]:
    """Return how the values of a metric are shown, as far as its name tells."""
    name = key.rpartition(":")[2].rpartition(".")[2]
    return next((unit for ending, unit in _UNITS if re.search(ending, name)), number)


_UNITS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("TimeMsPerSecond$", lambda value: share(value / 1000)),
    (r"^numBytes\w*PerSecond$", byte_rate),
    (r"^numRecords\w*PerSecond$", rate),
    ("PerSecond$", lambda value: f"{number(value)}/s"),
    ("^numBytes|Size$|[mM]emory", size),
    ("^(numRecords|epochRecords|backlog|credits|numDeadLetters|numLate)", lambda value: f"{number(value)} records"),
    ("(Ms|Time|Duration|[uU]ptime|downtime)$", duration),
    ("(Timestamp|Watermark)$", utc),
)
"""Units by pattern of the name; the first one that matches counts."""
