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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from penstock.driver.epoch_metrics import TaskSummary
from penstock.driver.epoch_steps import MeasuredEpoch
from penstock.driver.held_state import NOTHING, Block, Held, HeldState
from penstock.driver.job_snapshot import EpochSnapshot, ExecutorSnapshot, HeaviestKey, SubtaskSnapshot
from penstock.driver.vertices import first_uid, parallelism_of, subtask_of
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.key_sample import HeavyKey
from penstock.runtime.metrics import BACK_PRESSURE, NOWHERE, Number, WorkerPlace
from penstock.runtime.plan import Chain
from penstock.runtime.watermarks import LEAST
from penstock.state.keys import decode_key

_EPOCHS_KEPT = 60
"""Epochs that a snapshot lists."""
_WORKER_EPOCHS = 20
"""After this many epochs without a task, a worker no longer counts."""
_KEY_SHOWN = 60
"""Characters of a key that a snapshot names."""


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
    work: TaskSummary | None = None
    """The work in the last epoch."""
    watermark: int | None = None

    def count(self, work: TaskSummary, cycle_ms: float, busy: float, pressure: float) -> None:
        self.records_in += work.records_in
        self.records_out += work.records_out
        self.bytes_in += work.bytes_in
        self.bytes_out += work.bytes_out
        self.busy_ms += busy * cycle_ms
        self.backpressured_ms += pressure * cycle_ms
        self.idle_ms += max(0.0, 1 - busy - pressure) * cycle_ms

    def snapshot(self, state: str, cycle_ms: float) -> SubtaskSnapshot:
        """Return the subtask in this state. Only a running one has rates: those of the last cycle."""
        runs = state == "RUNNING"
        work = self.work if runs and self.work is not None else _NO_WORK
        per_second = 1000 / cycle_ms if cycle_ms > 0 else 0.0
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
            records_in_rate=work.records_in * per_second,
            records_out_rate=work.records_out * per_second,
            bytes_in_rate=work.bytes_in * per_second,
            bytes_out_rate=work.bytes_out * per_second,
            watermark=self.watermark,
            heaviest=[_shown(each) for each in work.heavy_keys],
        )


_NO_WORK = TaskSummary(
    subtask=0,
    started_at=0,
    acknowledged_at=0,
    snapshot_ms=0.0,
    busy_ms=0.0,
    records_in=0,
    records_out=0,
    bytes_in=0,
    bytes_out=0,
    place=NOWHERE,
    heavy_keys=[],
    align_ms=0,
    upload_ms=0,
)


def _both(one: TaskSummary, other: TaskSummary) -> TaskSummary:
    """Return the work of two tasks of a source that count for one subtask."""
    return replace(
        other,
        busy_ms=one.busy_ms + other.busy_ms,
        records_in=one.records_in + other.records_in,
        records_out=one.records_out + other.records_out,
        bytes_in=one.bytes_in + other.bytes_in,
        bytes_out=one.bytes_out + other.bytes_out,
    )


@dataclass(slots=True)
class _Vertex:
    cells: list[_Cell] = field(default_factory=list)
    totals: _Cell = field(default_factory=_Cell)
    cycle_ms: float = 0.0
    """Of the last epoch."""

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
        self._held: HeldState | None = None

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
            self._see_watermarks(graph, epoch.collected.totals.watermarks)
            self._held = HeldState(graph, epoch.manifest)
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

    def _work(self, graph: PhysicalGraph, epoch: MeasuredEpoch) -> dict[int, dict[int, TaskSummary]]:
        """Return the work of each subtask, by chain. Several tasks of a source can count for one subtask."""
        work: dict[int, dict[int, TaskSummary]] = {chain.id: {} for chain in graph.chains}
        for number, tasks in epoch.collected.metrics.counted.items():
            chain, subtasks = graph.chains[number], work[number]
            for task in tasks.values():
                subtask = subtask_of(chain, task.subtask, self._parallelism)
                subtasks[subtask] = _both(subtasks[subtask], task) if subtask in subtasks else task
                self._see_worker(epoch.manifest.id, task.place)
        self._forget_workers(epoch.manifest.id)
        return work

    def _see_worker(self, epoch: int, place: WorkerPlace) -> None:
        self._workers.setdefault(place.executor, {})[place.process] = epoch, place

    def _forget_workers(self, epoch: int) -> None:
        """Forget workers that Spark has probably ended."""
        for workers in self._workers.values():
            for process in [each for each, (seen, _) in workers.items() if seen <= epoch - _WORKER_EPOCHS]:
                del workers[process]

    def with_workers(self, executor: ExecutorSnapshot) -> ExecutorSnapshot:
        """Add what the workers of an executor reported: memory, directory, and the disk of the replicas."""
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
            host=found[-1].host,
            directory=found[-1].directory,
        )

    def with_state(
        self, executors: Sequence[ExecutorSnapshot], followed: Mapping[str, Collection[Block]]
    ) -> list[ExecutorSnapshot]:
        """Add what each executor holds in replicas. `followed`: the blocks that it follows as a standby."""
        with self._lock:
            held = self._held
            ran = {chain: [cell.place.executor for cell in vertex.cells] for chain, vertex in self._vertices.items()}
        if held is None or not executors:
            return list(executors)
        own = held.of_subtasks(ran)
        return [_holding(each, own.get(each.id, NOTHING), held.held(followed.get(each.id, ()))) for each in executors]

    def _add(self, chain: Chain, work: dict[int, TaskSummary], cycle_ms: float, busy: float, pressure: float) -> None:
        vertex = self._vertices.setdefault(chain.id, _Vertex())
        vertex.resize(parallelism_of(chain, self._parallelism))
        vertex.cycle_ms = cycle_ms
        longest = max((each.busy_ms for each in work.values()), default=0.0)
        for number, cell in enumerate(vertex.cells):
            done = work.get(number, _NO_WORK)
            share = busy * done.busy_ms / longest if longest else 0.0
            cell.backpressured, cell.busy = pressure, min(share, 1 - pressure)
            cell.work = done
            if done is not _NO_WORK:
                cell.place = done.place
            cell.count(done, cycle_ms, cell.busy, pressure)
            vertex.totals.count(done, cycle_ms, cell.busy, pressure)

    def _see_watermarks(self, graph: PhysicalGraph, watermarks: Mapping[int, Mapping[str, Mapping[int, int]]]) -> None:
        """Take over the watermarks of an epoch. Several tasks of a source can count for one subtask."""
        for number, by_operator in watermarks.items():
            chain = graph.chains[number]
            uids = by_operator.keys() if chain.source_uid is not None else by_operator.keys() & {first_uid(chain)}
            lowest: dict[int, int] = {}
            for uid in uids:
                for task, mark in by_operator[uid].items():
                    subtask = subtask_of(chain, task, self._parallelism)
                    lowest[subtask] = min(mark, lowest.get(subtask, mark))
            cells = self._vertices[number].cells
            for subtask, mark in lowest.items():
                if mark != LEAST:
                    cells[subtask].watermark = mark

    def read(self, chain: Chain, states: list[str]) -> tuple[list[SubtaskSnapshot], SubtaskSnapshot]:
        """Return the subtasks of a chain, which are in these states, and their sums."""
        with self._lock:
            vertex = self._vertices.get(chain.id, _Vertex())
            cells, cycle_ms = vertex.cells, vertex.cycle_ms
            subtasks = [
                (cells[number] if number < len(cells) else _Cell()).snapshot(state, cycle_ms)
                for number, state in enumerate(states)
            ]
            return subtasks, vertex.totals.snapshot("", cycle_ms)

    def epochs(self) -> list[EpochSnapshot]:
        """Return the most recent epochs, oldest first."""
        with self._lock:
            return list(self._epochs)


def _holding(executor: ExecutorSnapshot, own: Held, followed: Held) -> ExecutorSnapshot:
    return replace(
        executor,
        blocks=own.blocks,
        block_bytes=own.bytes,
        standby_blocks=followed.blocks,
        standby_bytes=followed.bytes,
    )


def _shown(found: HeavyKey) -> HeaviestKey:
    text = repr(decode_key(found.key)) if found.key else ""
    if len(text) > _KEY_SHOWN:
        text = text[: _KEY_SHOWN - 1] + "…"
    return HeaviestKey(group=found.group, key=text, share=found.percent / 100)


def _stages(graph: PhysicalGraph, work: dict[int, dict[int, TaskSummary]], slots: int) -> list[float]:
    """Return how long the tasks of each level took, in milliseconds. At most `slots` of them ran concurrently."""
    stages = []
    for chains in graph.levels:
        times = [each.busy_ms for number in chains for each in work[number].values()]
        stages.append(max(max(times), sum(times) / slots if slots else 0.0) if times else 0.0)
    return stages
