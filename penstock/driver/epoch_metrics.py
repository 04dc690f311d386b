"""The metrics of an attempt's tasks, added up as they arrive.

As with reports (`report_totals.py`), a later visit to all of them would cost more per task, the larger the job is.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from penstock.graph.physical import PhysicalGraph
from penstock.runtime.key_sample import HeavyKey
from penstock.runtime.metrics import (
    BUFFERS_OUT,
    BYTES_OUT,
    DEAD_LETTERS,
    EDGE_GROUP,
    RECORDS_IN,
    RECORDS_OUT,
    Number,
    TaskMetrics,
    WorkerPlace,
)

Key = tuple[str, str]
"""Operator uid and the metric's name within the operator."""
BySubtask = dict[Key, dict[int, Any]]


class DistributionValue(msgspec.Struct, frozen=True, gc=False):
    """The value of a distribution. ``min`` and ``max`` are None if ``count`` is 0."""

    count: int
    sum: Number
    min: Number | None
    max: Number | None

    @property
    def mean(self) -> float | None:
        """The arithmetic mean, or None if ``count`` is 0."""
        return self.sum / self.count if self.count else None


def combined(one: DistributionValue, other: DistributionValue) -> DistributionValue:
    """Combine the values of two subtasks or epochs."""
    if not one.count or not other.count:
        return one if one.count else other
    least = min(one.min, other.min)  # type: ignore[type-var]
    most = max(one.max, other.max)  # type: ignore[type-var]
    return DistributionValue(one.count + other.count, one.sum + other.sum, least, most)


class TaskSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A task's metrics without those of its operators and edges."""

    subtask: int
    started_at: int
    acknowledged_at: int
    snapshot_ms: float
    busy_ms: float
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int
    place: WorkerPlace
    heavy_keys: list[HeavyKey]
    align_ms: int
    upload_ms: int


_NO_KEYS: list[HeavyKey] = []
"""Of all tasks without such keys, instead of a list for each of them."""


class MetricKeys:
    """The metrics that every task of a chain has, and the numbers of all tasks."""

    def __init__(self, graph: PhysicalGraph) -> None:
        chains = graph.chains
        self.uids: dict[int, set[str]] = {}
        """The uids of each chain's operators and source."""
        self.records_in: dict[int, Key] = {}
        for chain in chains:
            head = chain.source_uid if chain.source_uid is not None else chain.operators[0].uid
            self.uids[chain.id] = {head, *(operator.uid for operator in chain.operators)}
            self.records_in[chain.id] = head, RECORDS_IN
        self.sent: dict[int, list[Key]] = {}
        """Records, buffers and bytes of each edge: those of the operator that sends, then those of the edge."""
        for edge in graph.edges:
            chain = chains[edge.from_chain]
            sender = chain.source_uid if edge.from_operator is None else chain.operators[edge.from_operator].uid
            receiver = chains[edge.to_chain].operators[0].uid
            self.sent[edge.id] = [
                (sender or "", scope + name)
                for scope in ("", f"{EDGE_GROUP}.{receiver}.")
                for name in (RECORDS_OUT, BUFFERS_OUT, BYTES_OUT)
            ]
        self._numbers: dict[int, int] = {}

    def number(self, subtask: int) -> int:
        """Return the number of a subtask, always as the same object.

        It is a key in dozens of dictionaries. They find their own object by its address; an equal one that arrived in
        another report lies elsewhere in memory, and comparing the two would fetch both.
        """
        return self._numbers.setdefault(subtask, subtask)


class EpochMetrics:
    """The metrics of one attempt. A task that ran twice counts once; a task of another epoch does not count."""

    def __init__(self, epoch: int, keys: MetricKeys) -> None:
        self.epoch = epoch
        self.arrived: dict[int, list[TaskSummary]] = {}
        """All tasks, by chain, in the order of arrival."""
        self.counted: dict[int, dict[int, TaskSummary]] = {}
        """The tasks that count, by chain and task."""
        self.counters: BySubtask = {}
        self.gauges: BySubtask = {}
        self.meters: BySubtask = {}
        """Events."""
        self.spans: BySubtask = {}
        """Time spans of the meters, in seconds."""
        self.distributions: BySubtask = {}
        self._keys = keys
        self._places: dict[WorkerPlace, WorkerPlace] = {}
        """Each place once: thousands of tasks run in the same few processes."""

    def add(self, task: TaskMetrics) -> None:
        """Count a task."""
        subtask = self._keys.number(task.subtask)
        summary = TaskSummary(
            subtask=subtask,
            started_at=task.started_at,
            acknowledged_at=task.acknowledged_at,
            snapshot_ms=task.snapshot_ms,
            busy_ms=task.busy_ms,
            records_in=task.records_in,
            records_out=sum([sent.records for sent in task.sent]),
            bytes_in=task.bytes_in,
            bytes_out=sum([sent.bytes for sent in task.sent]),
            place=self._places.setdefault(task.place, task.place),
            heavy_keys=task.heavy_keys or _NO_KEYS,
            align_ms=task.align_ms,
            upload_ms=task.upload_ms,
        )
        self.arrived.setdefault(task.chain, []).append(summary)
        if task.epoch != self.epoch:
            return
        counted = self.counted.setdefault(task.chain, {})
        if subtask in counted:
            self._forget(task.chain, subtask)
        counted[subtask] = summary
        self._add_sent(task, subtask)
        self._add_registered(task, subtask)

    def keep(self, reported: Mapping[int, Container[int]]) -> None:
        """Let only these tasks count, by chain."""
        for chain, tasks in self.counted.items():
            known = reported.get(chain, ())
            for subtask in [subtask for subtask in tasks if subtask not in known]:
                self._forget(chain, subtask)

    def _forget(self, chain: int, subtask: int) -> None:
        del self.counted[chain][subtask]
        uids = self._keys.uids[chain]
        for cells in (self.counters, self.gauges, self.meters, self.spans, self.distributions):
            for (uid, _), by_subtask in cells.items():
                if uid in uids:
                    by_subtask.pop(subtask, None)

    def _add_sent(self, task: TaskMetrics, subtask: int) -> None:
        counters, keys = self.counters, self._keys
        key = keys.records_in[task.chain]
        counters.setdefault(key, {})[subtask] = task.records_in
        if task.dead_letters:
            counters.setdefault((key[0], DEAD_LETTERS), {})[subtask] = task.dead_letters
        for sent in task.sent:
            for key, count in zip(
                keys.sent[sent.edge],
                (sent.records, sent.buffers, sent.bytes, sent.records, sent.buffers, sent.bytes),
                strict=True,
            ):
                _add(counters.setdefault(key, {}), subtask, count)

    def _add_registered(self, task: TaskMetrics, subtask: int) -> None:
        for operator in task.operators:
            uid = operator.uid
            for name, count in operator.counters.items():
                _add(self.counters.setdefault((uid, name), {}), subtask, count)
            for name, value in operator.gauges.items():
                self.gauges.setdefault((uid, name), {})[subtask] = value
            for name, (events, span) in operator.meters.items():
                key = uid, name
                _add(self.meters.setdefault(key, {}), subtask, events)
                self.spans.setdefault(key, {})[subtask] = span
            for name, (number, total, least, most) in operator.distributions.items():
                bounds = (least, most) if number else (None, None)
                found = DistributionValue(number, total, *bounds)
                cells = self.distributions.setdefault((uid, name), {})
                cells[subtask] = combined(cells[subtask], found) if subtask in cells else found


def _add(cells: dict[int, Any], subtask: int, count: int) -> None:
    """Add a count. The first one is kept as the object that it is: several metrics of a task share it."""
    cells[subtask] = cells[subtask] + count if subtask in cells else count
