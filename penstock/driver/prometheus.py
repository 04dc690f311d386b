"""Metrics in the text format of Prometheus, under the names of Flink's reporter, so that its dashboards work.

Flink's scopes become labels: `flink_jobmanager_job_…` has `job_id` and `job_name`, `flink_taskmanager_job_task_…` also
`task_id`, `task_name`, `task_attempt_id`, `task_attempt_num` and `subtask_index`, and `…_task_operator_…` also
`operator_id` and `operator_name`. Characters that Prometheus does not permit in a name become underscores.
`tests/data/flink_metrics.tsv` has the names and labels of Flink.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from penstock.driver.job_snapshot import JobSnapshot, Number, OperatorFacts, SubtaskSnapshot, VertexSnapshot
from penstock.driver.measures import ENDED, taskmanager_id, values_of_executor, values_of_job, values_of_task
from penstock.runtime.metrics import RECORDS_IN, RECORDS_OUT

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_INVALID = re.compile(r"[^a-zA-Z0-9:_]")

_Labels = Mapping[str, str]
_Measured = tuple[_Labels, str, list[Number | None]]
"""The labels of an operator, the name of its metric, and the values, one per subtask."""


class Families:
    """Samples by name: each name has one block, which the format requires."""

    def __init__(self, filter_values: bool) -> None:
        self._filter = filter_values
        self._samples: dict[str, list[str]] = {}
        self._help: dict[str, str] = {}

    def add(self, scope: str, name: str, labels: _Labels, value: float) -> None:
        """Add a sample of a metric in a scope of Flink, such as `taskmanager_job_task`."""
        full = filtered(f"flink_{scope}_{name}")
        written = ",".join(f'{label}="{self._value(text)}"' for label, text in labels.items())
        if full not in self._samples:
            self._samples[full] = []
            self._help[full] = _on_one_line(f"{name} (scope: {scope})")
        self._samples[full].append(f"{full}{{{written}}} {_number(value)}")

    def _value(self, text: str) -> str:
        return filtered(text) if self._filter else _escaped(text)

    def text(self) -> str:
        """Return all samples. Flink exports counters as gauges too."""
        lines: list[str] = []
        for name in sorted(self._samples):
            lines += [f"# HELP {name} {self._help[name]}", f"# TYPE {name} gauge", *self._samples[name]]
        return "\n".join([*lines, ""])


def filtered(text: str) -> str:
    """Replace the characters that Flink's reporter replaces in names, and by default in the values of labels."""
    return _INVALID.sub("_", text)


def exposition(jobs: Sequence[JobSnapshot], host: str, *, filter_values: bool = False) -> str:
    """Return the metrics of jobs.

    Args:
        jobs: The jobs. Those that have ended are left out.
        host: The name of the service's host.
        filter_values: Whether to replace unusual characters in the values of labels, as Flink's reporter does.
    """
    found = Families(filter_values)
    running = [job for job in jobs if job.state not in ENDED]
    executors = [each for job in running for each in job.executors]
    slots = sum(each.slots for each in executors)
    busy = sum(each.active_tasks for each in executors)
    cluster: dict[str, int] = {
        "numRunningJobs": sum(job.state == "RUNNING" for job in jobs),
        "numRegisteredTaskManagers": len(executors),
        "taskSlotsTotal": slots,
        "taskSlotsAvailable": max(0, slots - busy),
    }
    for name, value in cluster.items():
        found.add("jobmanager", name, {"host": host}, value)
    for job in running:
        _add_job(found, job, host)
    return found.text()


def _add_job(found: Families, job: JobSnapshot, host: str) -> None:
    labels = {"host": host, "job_id": job.id, "job_name": job.name}
    for name, value in values_of_job(job).items():
        if not isinstance(value, str):
            found.add("jobmanager_job", name, labels, value)
    for executor in job.executors:
        place = {"host": _host_of(executor.address), "tm_id": taskmanager_id(job, executor.id)}
        for name, value in values_of_executor(executor).items():
            if not isinstance(value, str):
                found.add("taskmanager", name, place, value)
    for vertex in job.vertices:
        _add_vertex(found, job, vertex, host)


def _add_vertex(found: Families, job: JobSnapshot, vertex: VertexSnapshot, host: str) -> None:
    of_job = {"job_id": job.id, "job_name": job.name}
    of_task = {**of_job, "task_id": vertex.id, "task_name": vertex.name}
    metrics = list(_of_operators(vertex))
    for index, subtask in enumerate(vertex.subtasks):
        labels = {
            "host": subtask.host,
            "tm_id": taskmanager_id(job, subtask.executor),
            **of_task,
            "task_attempt_id": f"{job.id}_{vertex.id}_{index}_{job.restarts}",
            "task_attempt_num": str(job.restarts),
            "subtask_index": str(index),
        }
        for name, value in values_of_task(subtask).items():
            found.add("taskmanager_job_task", name, labels, value)
        for operator, name, cells in metrics:
            value_here = cells[index] if index < len(cells) else None
            if value_here is not None:
                found.add("taskmanager_job_task_operator", name, {**labels, **operator}, value_here)
        for operator, name, rate in _rates(metrics, subtask):
            found.add("taskmanager_job_task_operator", name, {**labels, **operator}, rate)
    head = vertex.operators[0] if vertex.operators else OperatorFacts(uid=vertex.uid, name=vertex.name, kind="")
    of_operator = {"host": host, **of_task, "operator_id": head.uid, "operator_name": head.name}
    for name, value in vertex.driver_metrics.items():
        found.add("jobmanager_job_operator", name, of_operator, value)


def _rates(metrics: Sequence[_Measured], subtask: SubtaskSnapshot) -> Iterator[tuple[_Labels, str, float]]:
    """Yield the rates of the operators that alone receive or send what their task does."""
    for total, rate in ((RECORDS_IN, subtask.records_in_rate), (RECORDS_OUT, subtask.records_out_rate)):
        counted = [operator for operator, name, _ in metrics if name == total]
        if len(counted) == 1:
            yield counted[0], f"{total}PerSecond", rate


def _host_of(address: str) -> str:
    return address.rpartition(":")[0] or address


def _of_operators(vertex: VertexSnapshot) -> Iterator[_Measured]:
    """Yield the labels of an operator, the name of a metric and its values, one per subtask."""
    names = {each.uid: each.name for each in vertex.operators}
    uids = sorted(names, key=len, reverse=True)
    for full, cells in vertex.metrics.items():
        uid = next((each for each in uids if full.startswith(f"{each}.")), full.partition(".")[0])
        yield {"operator_id": uid, "operator_name": names.get(uid, uid)}, full[len(uid) + 1 :], cells


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _on_one_line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(float(value)) if isinstance(value, float) else str(int(value))
