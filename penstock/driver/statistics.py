"""Statistics of a driver's checkpoints: duration, size, acknowledgement times and failures."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

import msgspec
from msgspec.structs import replace

from penstock.checkpoint.manifest import Manifest
from penstock.driver.checkpoint_tasks import completed_tasks, unfinished_tasks
from penstock.driver.clock import DriverClocks
from penstock.driver.coordinator import Abort, CheckpointAttempt, CheckpointStatus
from penstock.driver.epoch_metrics import TaskSummary
from penstock.driver.job_snapshot import TaskCheckpoint
from penstock.driver.report_totals import ReportTotals
from penstock.graph.physical import PhysicalGraph

_REMEMBERED = 100
_DETAILED = 10
"""Checkpoints that are remembered with each of their subtasks."""


class SubtaskAcknowledgement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One subtask's part in a checkpoint."""

    subtask: int
    delta_bytes: int
    delta_entries: int
    acknowledged_ms: int | None
    """From trigger to acknowledgement, by the clock of the task's host; None if Spark lost the task's metrics."""


class OperatorCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One operator's part in a checkpoint."""

    uid: str
    name: str
    state_bytes: int
    """Total stored bytes: bases and the deltas since."""
    delta_bytes: int
    subtasks: list[SubtaskAcknowledgement]
    """Empty for a checkpoint before the last ten."""


class CheckpointStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of one checkpoint or savepoint."""

    id: int
    """A savepoint has the number of the checkpoint that it was made from."""
    status: str
    """TRIGGERED, COMPLETED, DECLINED or EXPIRED."""
    triggered_at: int
    duration_ms: int
    """From trigger to the published manifest, or to the failure, or until now."""
    delta_bytes: int = 0
    state_bytes: int = 0
    operators: list[OperatorCheckpoint] = []
    failure: str | None = None
    tasks: list[TaskCheckpoint] = []
    """By vertex; for a savepoint, those of the checkpoint that it was made from."""
    savepoint: bool = False
    ends_job: bool = False
    """Whether the job stops with this savepoint."""
    path: str = ""
    """Path of a completed savepoint."""
    publish_ms: int = -1
    """Time to publish the manifest; -1 for a savepoint or an incomplete checkpoint."""
    commit_ms: int = -1
    """Time in which the epoch waited for its sinks to commit; -1 until they have."""


class CheckpointLog:
    """Counts since the driver started, and details of the last 100 checkpoints.

    The driver's thread adds checkpoints; others can add savepoints and read at any time.
    """

    def __init__(self, clocks: DriverClocks, parallelism: int) -> None:
        """`parallelism`: the job's parallelism, which is shown as that of its sources."""
        self._clocks = clocks
        self._parallelism = parallelism
        self.completed = 0
        self.failed = 0
        self.savepoints_completed = 0
        self.savepoints_failed = 0
        self.restored: int | None = None
        """The checkpoint that this driver resumed from, if any."""
        self.restored_at = 0
        """When it resumed, in milliseconds since 1970."""
        self.restored_first = False
        """Whether that checkpoint is the first of its lineage, as a restored savepoint is."""
        self.restores = 0
        """How often this driver resumed from a checkpoint."""
        self.recent: deque[CheckpointStatistics] = deque(maxlen=_REMEMBERED)
        self.savepoints: deque[CheckpointStatistics] = deque(maxlen=_REMEMBERED)
        """The last 100 savepoints that completed or failed."""
        self.savepoints_in_progress: dict[int, CheckpointStatistics] = {}
        self.latest_completed: CheckpointStatistics | None = None
        """The most recent completed checkpoint."""
        self.latest_failed: CheckpointStatistics | None = None
        """The most recent declined or expired checkpoint."""
        self._savepoint_numbers = count(1)

    def add_restored(self, manifest: Manifest) -> None:
        self.restored, self.restored_at = manifest.id, self._clocks.now_ms()
        self.restored_first = not manifest.parent
        self.restores += 1

    def add_failed(
        self,
        abort: Abort,
        graph: PhysicalGraph,
        acknowledged: Mapping[tuple[int, int], int],
        triggered_at: int,
        duration_ms: int,
    ) -> None:
        """Add a checkpoint that tasks acknowledged this many milliseconds after its trigger."""
        self.failed += 1
        self.latest_failed = CheckpointStatistics(
            id=abort.epoch,
            status=abort.status.value,
            failure=abort.reason,
            triggered_at=triggered_at,
            duration_ms=duration_ms,
            delta_bytes=abort.totals.state_bytes,
            tasks=unfinished_tasks(graph, self._parallelism, abort.totals, acknowledged, triggered_at),
        )
        self.recent.append(self.latest_failed)

    def in_progress(self, current: CheckpointAttempt, graph: PhysicalGraph) -> CheckpointStatistics:
        """Describe a checkpoint that some tasks have acknowledged so far. Can be called from any thread."""
        age = max(0, self._clocks.ticks() - current.triggered_at)
        triggered_at, acknowledged = self._clocks.now_ms() - age, current.acknowledged_after()
        return CheckpointStatistics(
            id=current.epoch,
            status=CheckpointStatus.TRIGGERED.value,
            triggered_at=triggered_at,
            duration_ms=age,
            delta_bytes=current.totals.state_bytes,
            tasks=unfinished_tasks(graph, self._parallelism, current.totals, acknowledged, triggered_at),
        )

    @contextmanager
    def saving(self, manifest: Manifest, ends_job: bool) -> Iterator[Callable[[str], None]]:
        """Log a savepoint that the body makes of this checkpoint. The body passes its path to the yielded function."""
        started, number = self._clocks.monotonic(), next(self._savepoint_numbers)
        state = _state_bytes(manifest)
        parts = self._parts_of(manifest.id)
        begun = CheckpointStatistics(
            id=manifest.id,
            status=CheckpointStatus.TRIGGERED.value,
            triggered_at=self._clocks.now_ms(),
            duration_ms=0,
            # A savepoint holds the complete state.
            delta_bytes=state,
            state_bytes=state,
            tasks=[_part_of_savepoint(each) for each in parts],
            savepoint=True,
            ends_job=ends_job,
        )
        paths: list[str] = []
        self.savepoints_in_progress[number] = begun
        try:
            yield paths.append
            ended = replace(begun, status=CheckpointStatus.COMPLETED.value, path=paths[0])
            self.savepoints_completed += 1
        except BaseException as error:
            ended = replace(begun, status=CheckpointStatus.DECLINED.value, failure=str(error))
            self.savepoints_failed += 1
            raise
        finally:
            self.savepoints_in_progress.pop(number)
            took = self._clocks.elapsed_ms(started)
            tasks = [_part_of_savepoint(each, begun.triggered_at, took) for each in parts] if paths else ended.tasks
            self.savepoints.append(replace(ended, duration_ms=took, tasks=tasks))

    def _parts_of(self, checkpoint: int) -> list[TaskCheckpoint]:
        """Return the vertices of a completed checkpoint, if it is known."""
        completed = self.latest_completed
        return completed.tasks if completed is not None and completed.id == checkpoint else []

    def add_completed(
        self,
        manifest: Manifest,
        graph: PhysicalGraph,
        totals: ReportTotals,
        arrived: Mapping[int, Sequence[TaskSummary]],
        names: dict[str, str],
        triggered_at: int,
        duration_ms: int,
        publish_ms: int,
    ) -> int:
        """Add a checkpoint, and return the bytes of all keyed state."""
        self.completed += 1
        # Once: it takes a visit to all bases.
        keyed = {uid: manifest.state_bytes(uid) for uid in manifest.keyed()}
        # Two clocks are involved, and either might have jumped.
        after_ms = {
            chain: {task.subtask: min(max(0, task.acknowledged_at - triggered_at), duration_ms) for task in tasks}
            for chain, tasks in arrived.items()
        }
        subtasks = {
            uid: [
                SubtaskAcknowledgement(
                    subtask=part.subtask,
                    delta_bytes=part.bytes,
                    delta_entries=part.entries,
                    acknowledged_ms=after_ms.get(operator.chain, {}).get(part.subtask),
                )
                for part in sorted(operator.parts, key=lambda part: part.subtask)
            ]
            for uid, operator in totals.operators.items()
        }
        operators = [
            OperatorCheckpoint(
                uid=uid,
                name=names[uid],
                state_bytes=keyed.get(uid, 0),
                delta_bytes=sum(each.delta_bytes for each in acknowledgements),
                subtasks=acknowledgements,
            )
            for uid, acknowledgements in sorted(subtasks.items())
        ]
        self.latest_completed = CheckpointStatistics(
            id=manifest.id,
            status=CheckpointStatus.COMPLETED.value,
            triggered_at=triggered_at,
            duration_ms=duration_ms,
            delta_bytes=totals.state_bytes,
            state_bytes=sum(keyed.values()) + manifest.operator_state_bytes(),
            operators=operators,
            tasks=completed_tasks(
                graph, self._parallelism, manifest, totals.by_task, arrived, triggered_at, duration_ms
            ),
            publish_ms=publish_ms,
        )
        self.recent.append(self.latest_completed)
        if len(self.recent) > _DETAILED:
            self.recent[-_DETAILED - 1] = _without_subtasks(self.recent[-_DETAILED - 1])
        return sum(keyed.values())

    def add_commit(self, checkpoint: int, commit_ms: int) -> None:
        """Add how long the epoch of the newest checkpoint waited for its sinks."""
        completed = self.latest_completed
        if completed is not None and completed.id == checkpoint and self.recent and self.recent[-1] is completed:
            self.latest_completed = self.recent[-1] = replace(completed, commit_ms=commit_ms)


def _without_subtasks(checkpoint: CheckpointStatistics) -> CheckpointStatistics:
    return replace(checkpoint, operators=[replace(each, subtasks=[]) for each in checkpoint.operators])


def _state_bytes(manifest: Manifest) -> int:
    return sum(manifest.state_bytes(uid) for uid in manifest.keyed()) + manifest.operator_state_bytes()


def _part_of_savepoint(task: TaskCheckpoint, triggered_at: int = -1, duration_ms: int = -1) -> TaskCheckpoint:
    """Return the part of a vertex in a savepoint, which the driver writes for all tasks; pending without a duration."""
    part = TaskCheckpoint(
        vertex=task.vertex,
        subtasks=task.subtasks,
        state_bytes=task.state_bytes,
        state=task.state,
        checkpointed_bytes=task.state_bytes,
        checkpointed=task.state,
    )
    if duration_ms < 0:
        return replace(part, missing=list(range(task.subtasks)))
    return replace(part, latest_ack_ms=triggered_at + duration_ms, duration_ms=duration_ms)
