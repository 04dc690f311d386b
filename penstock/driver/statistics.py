"""Statistics of a driver's checkpoints: duration, size, acknowledgement times and failures."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from penstock.checkpoint.manifest import Manifest
from penstock.driver.coordinator import Abort, CheckpointStatus
from penstock.runtime.metrics import TaskMetrics
from penstock.runtime.report import Report

_REMEMBERED = 100


class SubtaskAcknowledgement(msgspec.Struct, frozen=True, kw_only=True):
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


class CheckpointStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of one checkpoint."""

    id: int
    status: str
    """COMPLETED, DECLINED or EXPIRED."""
    triggered_at: int
    duration_ms: int
    """From trigger to the published manifest, or to the failure."""
    delta_bytes: int = 0
    state_bytes: int = 0
    operators: list[OperatorCheckpoint] = []
    failure: str | None = None


class CheckpointLog:
    """Counts since the driver started, and details of the last 100 checkpoints."""

    def __init__(self) -> None:
        self.completed = 0
        self.failed = 0
        self.restored: int | None = None
        """The checkpoint that this driver resumed from, if any."""
        self.recent: deque[CheckpointStatistics] = deque(maxlen=_REMEMBERED)

    @property
    def latest_completed(self) -> CheckpointStatistics | None:
        """The most recent completed checkpoint, if any."""
        return next((each for each in reversed(self.recent) if each.status == CheckpointStatus.COMPLETED.value), None)

    @property
    def latest_failed(self) -> CheckpointStatistics | None:
        """The most recent declined or expired checkpoint, if any."""
        return next((each for each in reversed(self.recent) if each.status != CheckpointStatus.COMPLETED.value), None)

    def add_failed(self, abort: Abort, triggered_at: int, duration_ms: int) -> None:
        self.failed += 1
        self.recent.append(
            CheckpointStatistics(
                id=abort.epoch,
                status=abort.status.value,
                failure=abort.reason,
                triggered_at=triggered_at,
                duration_ms=duration_ms,
            )
        )

    def add_completed(
        self,
        manifest: Manifest,
        reports: Iterable[Report],
        measured: Iterable[TaskMetrics],
        names: dict[str, str],
        triggered_at: int,
        duration_ms: int,
    ) -> None:
        self.completed += 1
        acknowledged = {(each.chain, each.subtask): each.acknowledged_at for each in measured}
        subtasks: dict[str, list[SubtaskAcknowledgement]] = {}
        for report in sorted(reports, key=lambda report: (report.chain, report.subtask)):
            at = acknowledged.get((report.chain, report.subtask))
            for part in report.operators:
                subtasks.setdefault(part.uid, []).append(
                    SubtaskAcknowledgement(
                        subtask=report.subtask,
                        delta_bytes=sum(delta.size for delta in part.deltas),
                        delta_entries=sum(delta.entries for delta in part.deltas),
                        # Two clocks are involved, and either might have jumped.
                        acknowledged_ms=None if at is None else min(max(0, at - triggered_at), duration_ms),
                    )
                )
        operators = [
            OperatorCheckpoint(
                uid=uid,
                name=names[uid],
                state_bytes=manifest.state_bytes(uid),
                delta_bytes=sum(each.delta_bytes for each in acknowledgements),
                subtasks=acknowledgements,
            )
            for uid, acknowledgements in sorted(subtasks.items())
        ]
        self.recent.append(
            CheckpointStatistics(
                id=manifest.id,
                status=CheckpointStatus.COMPLETED.value,
                triggered_at=triggered_at,
                duration_ms=duration_ms,
                delta_bytes=sum(each.delta_bytes for each in operators),
                state_bytes=sum(manifest.state_bytes(uid) for uid in manifest.keyed()),
                operators=operators,
            )
        )
