"""The log of checkpoints as part of a job's snapshot."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from penstock.driver.checkpoint_tasks import summary
from penstock.driver.coordinator import CheckpointStatus
from penstock.driver.epochs import EpochDriver
from penstock.driver.job_snapshot import CheckpointSnapshot, CheckpointsSnapshot, RestoredCheckpoint
from penstock.driver.statistics import CheckpointStatistics

_SHOWN = 10
"""Flink's default of `web.checkpoints.history`. Every epoch is a checkpoint, so more would only cover some seconds."""
_STATUS = {CheckpointStatus.TRIGGERED.value: "IN_PROGRESS", CheckpointStatus.COMPLETED.value: "COMPLETED"}


def checkpoints_snapshot(driver: EpochDriver, savepoint: str, mask: Callable[[str], str]) -> CheckpointsSnapshot:
    """Return the checkpoints of a job that started from `savepoint`, if it is not empty.

    `mask` removes secrets from a text.
    """
    log, current = driver.checkpoints, driver.coordinator.current
    recent, savepoints = list(log.recent), list(log.savepoints)
    under_way = [*log.savepoints_in_progress.copy().values()]
    if current is not None and current.status is CheckpointStatus.TRIGGERED:
        under_way.append(log.in_progress(current, driver.graph))
    listed = [*recent[-_SHOWN:], *savepoints[-_SHOWN:], *under_way]
    listed.sort(key=lambda each: (each.triggered_at, each.id, each.savepoint), reverse=True)
    history = {id(each): _shown(each, mask) for each in listed[:_SHOWN]}

    def latest(each: CheckpointStatistics | None) -> CheckpointSnapshot | None:
        if each is None:
            return None
        return replace(history[id(each)], tasks=[]) if id(each) in history else _shown(each, mask)

    done = [each for each in recent if each.status == CheckpointStatus.COMPLETED.value]
    saved = [each for each in savepoints if each.path]
    unsaved = [each for each in savepoints if not each.path]
    failed = max((each for each in (log.latest_failed, *unsaved[-1:]) if each), key=_triggered, default=None)
    restored = None
    if log.restored is not None:
        from_savepoint = bool(savepoint) and log.restored_first
        restored = RestoredCheckpoint(
            id=log.restored,
            restored_ms=log.restored_at,
            savepoint=from_savepoint,
            path=savepoint if from_savepoint else "",
        )
    return CheckpointsSnapshot(
        restored=log.restores,
        completed=log.completed + log.savepoints_completed,
        failed=log.failed + log.savepoints_failed,
        in_progress=len(under_way),
        latest_completed=latest(log.latest_completed),
        latest_savepoint=latest(saved[-1] if saved else None),
        latest_failed=latest(failed),
        latest_restored=restored,
        history=list(history.values()),
        checkpointed=summary([each.delta_bytes for each in done]),
        state=summary([each.state_bytes for each in done]),
        duration=summary([each.duration_ms for each in done]),
    )


def _triggered(each: CheckpointStatistics) -> int:
    return each.triggered_at


def _shown(each: CheckpointStatistics, mask: Callable[[str], str]) -> CheckpointSnapshot:
    status = _STATUS.get(each.status, "FAILED")
    ended = each.triggered_at + each.duration_ms
    return CheckpointSnapshot(
        id=each.id,
        status=status,
        savepoint=each.savepoint,
        ends_job=each.ends_job,
        triggered_ms=each.triggered_at,
        latest_ack_ms=max((task.latest_ack_ms for task in each.tasks), default=ended if each.path else -1),
        duration_ms=each.duration_ms,
        checkpointed_bytes=each.delta_bytes,
        state_bytes=each.state_bytes,
        subtasks=sum(task.subtasks for task in each.tasks),
        acknowledged=sum(task.acknowledged for task in each.tasks),
        tasks=each.tasks,
        path=each.path,
        failed_ms=ended if status == "FAILED" else -1,
        failure=mask(each.failure or ""),
        publish_ms=each.publish_ms,
        commit_ms=each.commit_ms,
    )
