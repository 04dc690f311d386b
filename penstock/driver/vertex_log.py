"""What the subtasks of each vertex did so far: records, bytes, and shares of time.

Spark runs the stages of an epoch one after the other, so a task waits while the other stages run. The share of time in
which its own stage runs would make a saturated job of five stages look idle. *Busy* is therefore the share of the
cycle, from the end of one epoch to the end of the next, in which any stage or commit of the job does work that depends
on records. It reaches 1 when the job cannot process more records per second. Subtasks that had less work than the
busiest one of their stage are proportionally less busy. Back-pressure exists at sources only: it is the share of
waiting records that the credits of flow control held back.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from penstock.driver.epoch_steps import MeasuredEpoch
from penstock.driver.job_snapshot import EpochSnapshot, ExecutorSnapshot, HeaviestKey, SubtaskSnapshot
from penstock.driver.vertices import first_uid, parallelism_of, subtask_of
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.key_sample import HeavyKey
from penstock.runtime.metrics import BACK_PRESSURE, NOWHERE, Number, TaskMetrics, WorkerPlace
from penstock.runtime.plan import Chain
from penstock.runtime.report import Report
from penstock.runtime.watermarks import LEAST
from penstock.state.keys import decode_key

_EPOCHS_KEPT = 60
"""Epochs that a snapshot lists."""
_WORKER_EPOCHS = 20
"""After this many epochs without a task, a worker no longer counts."""
_KEY_SHOWN = 60
"""Characters of a key that a snapshot names."""
_NO_RATES = (0.0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class _Cell:
    """One subtask, or all of a vertex."""

    place: WorkerPlace = NOWHERE
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy_ms: float = 0.0
    idle_ms: float = 0.0
    backpressured_ms: float = 0.0
    busy: float = 0.0
    backpressured: float = 0.0
    rates: tuple[float, float, float, float] = _NO_RATES
    watermark: int | None = None
    heavy_keys: list[HeavyKey] = field(default_factory=list)

    def count(self, work: _Work, cycle_ms: float, busy: float, pressure: float) -> None:
        self.records_in += work.records_in
        self.records_out += work.records_out
        self.bytes_in += work.bytes_in
        self.bytes_out += work.bytes_out
        self.busy_ms += busy * cycle_ms
        self.backpressured_ms += pressure * cycle_ms
        self.idle_ms += max(0.0, 1 - busy - pressure) * cycle_ms

    def snapshot(self, state: str) -> SubtaskSnapshot:
        """Return the subtask in this state. Only a running one has rates."""
        runs = state == "RUNNING"
        records_in_rate, records_out_rate, bytes_in_rate, bytes_out_rate = self.rates if runs else _NO_RATES
        return SubtaskSnapshot(
            state=state,
            host=self.place.host,
            executor=self.place.executor,
            records_in=self.records_in,
            records_out=self.records_out,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            busy_ms=self.busy_ms,
            idle_ms=self.idle_ms,
            backpressured_ms=self.backpressured_ms,
            busy=self.busy if runs else 0.0,
            backpressured=self.backpressured if runs else 0.0,
            records_in_rate=records_in_rate,
            records_out_rate=records_out_rate,
            bytes_in_rate=bytes_in_rate,
            bytes_out_rate=bytes_out_rate,
            watermark=self.watermark,
            heaviest=[_shown(each) for each in self.heavy_keys] if runs else [],
        )


@dataclass(slots=True)
class _Work:
    """The work of one subtask in one epoch."""

    busy_ms: float = 0.0
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    place: WorkerPlace = NOWHERE
    heavy_keys: list[HeavyKey] = field(default_factory=list)

    def add(self, task: TaskMetrics) -> None:
        self.busy_ms += task.busy_ms
        self.records_in += task.records_in
        self.records_out += sum(sent.records for sent in task.sent)
        self.bytes_in += task.bytes_in
        self.bytes_out += sum(sent.bytes for sent in task.sent)
        self.place = task.place
        self.heavy_keys = task.heavy_keys

    def rates(self, cycle_ms: float) -> tuple[float, float, float, float]:
        per_second = 1000 / cycle_ms if cycle_ms > 0 else 0.0
        return (
            self.records_in * per_second,
            self.records_out * per_second,
            self.bytes_in * per_second,
            self.bytes_out * per_second,
        )


_NO_WORK = _Work()


@dataclass(slots=True)
class _Vertex:
    cells: list[_Cell] = field(default_factory=list)
    totals: _Cell = field(default_factory=_Cell)

    def resize(self, subtasks: int) -> None:
        del self.cells[subtasks:]
        self.cells += [_Cell() for _ in range(subtasks - len(self.cells))]


class VertexLog:
    """The driver calls `completed` after each epoch. `read` can be called at any time, from any thread."""

    def __init__(self, parallelism: int) -> None:
        """`parallelism`: the job's, which is shown as that of its sources."""
        self._parallelism = parallelism
        self._lock = threading.Lock()
        self._vertices: dict[int, _Vertex] = {}
        self._epochs: deque[EpochSnapshot] = deque(maxlen=_EPOCHS_KEPT)
        self._workers: dict[str, dict[int, tuple[int, WorkerPlace]]] = {}
        """The newest epoch and place of each worker process, by executor and process."""

    def completed(self, epoch: MeasuredEpoch, ended_ms: int, gauges: Mapping[tuple[str, str], Number]) -> None:
        """Add an epoch. `gauges` are those of flow control."""
        graph, cycle_ms = epoch.graph, epoch.statistics.cycle_ms
        with self._lock:
            work = self._work(graph, epoch)
        stages = _stages(graph, work, epoch.slots)
        used = sum(stages) + epoch.committing * 1000
        busy = min(1.0, used / cycle_ms) if cycle_ms > 0 else 0.0
        with self._lock:
            for chain in graph.chains:
                pressure = float(gauges.get((first_uid(chain), BACK_PRESSURE), 0.0))
                self._add(chain, work[chain.id], cycle_ms, busy, pressure)
            self._see_watermarks(graph, epoch.collected.reports)
            self._epochs.append(
                EpochSnapshot(
                    number=epoch.statistics.number,
                    records=epoch.statistics.records,
                    duration_ms=epoch.statistics.duration_ms,
                    cycle_ms=cycle_ms,
                    state_bytes=epoch.statistics.state_bytes,
                    ended_ms=ended_ms,
                    stages_ms=[*stages, epoch.committing * 1000],
                )
            )

    def _work(self, graph: PhysicalGraph, epoch: MeasuredEpoch) -> dict[int, dict[int, _Work]]:
        """Return the work of each subtask, by chain. A task that ran twice counts once."""
        reported = {(report.chain, report.subtask) for report in epoch.collected.reports}
        number = epoch.manifest.id
        tasks = {(task.chain, task.subtask): task for task in epoch.collected.measured if task.epoch == number}
        work: dict[int, dict[int, _Work]] = {chain.id: {} for chain in graph.chains}
        for who, task in tasks.items():
            if who in reported:
                subtask = subtask_of(graph.chains[task.chain], task.subtask, self._parallelism)
                work[task.chain].setdefault(subtask, _Work()).add(task)
                self._see_worker(number, task.place)
        self._forget_workers(number)
        return work

    def _see_worker(self, epoch: int, place: WorkerPlace) -> None:
        self._workers.setdefault(place.executor, {})[place.process] = epoch, place

    def _forget_workers(self, epoch: int) -> None:
        """Forget workers that Spark has probably ended."""
        for workers in self._workers.values():
            for process in [each for each, (seen, _) in workers.items() if seen <= epoch - _WORKER_EPOCHS]:
                del workers[process]

    def with_workers(self, executor: ExecutorSnapshot) -> ExecutorSnapshot:
        """Add what the workers of an executor reported: memory, and the disk of the replicas."""
        with self._lock:
            found = [
                place for _, place in sorted(self._workers.get(executor.id, {}).values(), key=lambda each: each[0])
            ]
        if not found:
            return executor
        return replace(
            executor,
            physical_memory=found[-1].memory or executor.physical_memory,
            python_memory=sum(place.resident for place in found),
            python_workers=len(found),
            disk_total=found[-1].disk_total,
            disk_free=found[-1].disk_free,
        )

    def _add(self, chain: Chain, work: dict[int, _Work], cycle_ms: float, busy: float, pressure: float) -> None:
        vertex = self._vertices.setdefault(chain.id, _Vertex())
        vertex.resize(parallelism_of(chain, self._parallelism))
        longest = max((each.busy_ms for each in work.values()), default=0.0)
        for number, cell in enumerate(vertex.cells):
            done = work.get(number, _NO_WORK)
            share = busy * done.busy_ms / longest if longest else 0.0
            cell.backpressured, cell.busy = pressure, min(share, 1 - pressure)
            cell.rates = done.rates(cycle_ms)
            cell.heavy_keys = done.heavy_keys
            if done is not _NO_WORK:
                cell.place = done.place
            cell.count(done, cycle_ms, cell.busy, pressure)
            vertex.totals.count(done, cycle_ms, cell.busy, pressure)

    def _see_watermarks(self, graph: PhysicalGraph, reports: Iterable[Report]) -> None:
        """Take over the watermarks of an epoch. Several tasks of a source can count for one subtask."""
        lowest: dict[tuple[int, int], int] = {}
        for report in reports:
            chain = graph.chains[report.chain]
            uid = chain.operators[0].uid if chain.source_uid is None else None
            where = chain.id, subtask_of(chain, report.subtask, self._parallelism)
            for operator, by_split in report.watermarks.items():
                if uid is None or operator == uid:
                    for mark in by_split.values():
                        lowest[where] = min(mark, lowest.get(where, mark))
        for (number, subtask), mark in lowest.items():
            if mark != LEAST:
                self._vertices[number].cells[subtask].watermark = mark

    def read(self, chain: Chain, states: list[str]) -> tuple[list[SubtaskSnapshot], SubtaskSnapshot]:
        """Return the subtasks of a chain, which are in these states, and their sums."""
        with self._lock:
            vertex = self._vertices.get(chain.id, _Vertex())
            cells = vertex.cells
            subtasks = [
                (cells[number] if number < len(cells) else _Cell()).snapshot(state)
                for number, state in enumerate(states)
            ]
            return subtasks, vertex.totals.snapshot("")

    def epochs(self) -> list[EpochSnapshot]:
        """Return the most recent epochs, oldest first."""
        with self._lock:
            return list(self._epochs)


def _shown(found: HeavyKey) -> HeaviestKey:
    text = repr(decode_key(found.key)) if found.key else ""
    if len(text) > _KEY_SHOWN:
        text = text[: _KEY_SHOWN - 1] + "…"
    return HeaviestKey(group=found.group, key=text, share=found.percent / 100)


def _stages(graph: PhysicalGraph, work: dict[int, dict[int, _Work]], slots: int) -> list[float]:
    """Return how long the tasks of each level took, in milliseconds. At most `slots` of them ran concurrently."""
    stages = []
    for chains in graph.levels:
        times = [each.busy_ms for number in chains for each in work[number].values()]
        stages.append(max(max(times), sum(times) / slots if slots else 0.0) if times else 0.0)
    return stages
