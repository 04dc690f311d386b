"""Metrics in the text format of Prometheus, under the names of Flink's reporter, so that its dashboards work.

Flink's scopes become labels: `flink_jobmanager_job_…` has `job_id` and `job_name`, `flink_taskmanager_job_task_…` also
`task_id`, `task_name` and `subtask_index`, and `…_task_operator_…` also `operator_id` and `operator_name`. Characters
that Prometheus does not permit in a name become underscores, as in Flink.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from penstock.driver.job_snapshot import JobSnapshot, VertexSnapshot
from penstock.rest.views.metrics import values_of_job, values_of_task
from penstock.rest.views.shared import ENDED, taskmanager_id

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_INVALID = re.compile(r"[^a-zA-Z0-9:_]")

_Labels = Mapping[str, str]


class Families:
    """Samples by name: each name has one block, which the format requires."""

    def __init__(self) -> None:
        self._samples: dict[str, list[str]] = {}

    def add(self, name: str, labels: _Labels, value: float) -> None:
        """Add a sample."""
        name = _INVALID.sub("_", name)
        written = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        self._samples.setdefault(name, []).append(
            f"{name}{{{written}}} {_number(value)}" if written else f"{name} {_number(value)}"
        )

    def text(self) -> str:
        """Return all samples. Flink exports counters as gauges too."""
        lines: list[str] = []
        for name in sorted(self._samples):
            lines += [f"# TYPE {name} gauge", *self._samples[name]]
        return "\n".join([*lines, ""])


def exposition(jobs: Sequence[JobSnapshot], host: str) -> str:
    """Return the metrics of jobs. `host` is the name of the service's host."""
    found = Families()
    states = [job.state for job in jobs]
    found.add("flink_jobmanager_numRunningJobs", {"host": host}, states.count("RUNNING"))
    executors = [each for job in jobs if job.state not in ENDED for each in job.executors]
    slots = sum(each.slots for each in executors)
    busy = sum(each.active_tasks for each in executors)
    found.add("flink_jobmanager_numRegisteredTaskManagers", {"host": host}, len(executors))
    found.add("flink_jobmanager_taskSlotsTotal", {"host": host}, slots)
    found.add("flink_jobmanager_taskSlotsAvailable", {"host": host}, max(0, slots - busy))
    for job in jobs:
        if job.state not in ENDED:
            _add_job(found, job, host)
    return found.text()


def _add_job(found: Families, job: JobSnapshot, host: str) -> None:
    labels = {"host": host, "job_id": job.id, "job_name": job.name}
    for name, value in values_of_job(job).items():
        if not isinstance(value, str):
            found.add(f"flink_jobmanager_job_{name}", labels, value)
    for vertex in job.vertices:
        _add_vertex(found, job, vertex)


def _add_vertex(found: Families, job: JobSnapshot, vertex: VertexSnapshot) -> None:
    of_task = {"job_id": job.id, "job_name": job.name, "task_id": vertex.id, "task_name": vertex.name}
    for index, subtask in enumerate(vertex.subtasks):
        place = {"host": subtask.host, "tm_id": taskmanager_id(job, subtask.executor)}
        labels = {**place, **of_task, "subtask_index": str(index)}
        for name, value in values_of_task(subtask).items():
            found.add(f"flink_taskmanager_job_task_{name}", labels, value)
        for uid, name, cells in _of_operators(vertex):
            value_here = cells[index] if index < len(cells) else None
            if value_here is not None:
                operator = {"operator_id": uid, "operator_name": _names(vertex).get(uid, uid)}
                found.add(f"flink_taskmanager_job_task_operator_{name}", {**labels, **operator}, value_here)
    for name, value in vertex.driver_metrics.items():
        found.add(f"flink_jobmanager_job_operator_{name}", of_task, value)


def _of_operators(vertex: VertexSnapshot) -> Iterable[tuple[str, str, list[int | float | None]]]:
    """Yield the operator's uid, the metric's name and its values, one per subtask."""
    uids = sorted(_names(vertex), key=len, reverse=True)
    for full, cells in vertex.metrics.items():
        uid = next((each for each in uids if full.startswith(f"{each}.")), full.partition(".")[0])
        yield uid, full[len(uid) + 1 :], cells


def _names(vertex: VertexSnapshot) -> dict[str, str]:
    return {each.uid: each.name for each in vertex.operators}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(float(value)) if isinstance(value, float) else str(int(value))
