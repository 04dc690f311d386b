"""Views of a job's checkpoints and savepoints. Every epoch is a checkpoint, so only the most recent are listed."""

from __future__ import annotations

from typing import Any

from penstock.driver.job_snapshot import CheckpointSnapshot, CheckpointSummary, JobSnapshot, TaskCheckpoint
from penstock.rest.contract import (
    CheckpointAlignment,
    CheckpointConfigInfo,
    CheckpointDuration,
    CheckpointingStatistics,
    CheckpointStatistics,
    CompletedCheckpointStatistics,
    Counts,
    ExternalizedCheckpointInfo,
    FailedCheckpointStatistics,
    LatestCheckpoints,
    RestoredCheckpointStatistics,
    StatsSummaryDto,
    SubtaskCheckpointStatistics,
    Summary,
    TaskCheckpointStatistics,
    TaskCheckpointStatisticsWithSubtaskDetails,
    TaskCheckpointStatisticsWithSubtaskDetailsSummary,
)
from penstock.rest.views.requests import NotFound, PathParams, Query
from penstock.rest.views.shared import ENDED, vertex_of, whole

_NEVER = 2**63 - 1
"""Flink's interval of a job without checkpoints."""
_NONE = CheckpointSummary()


def checkpoints(job: JobSnapshot, params: PathParams, query: Query) -> CheckpointingStatistics:
    found = job.checkpoints
    restored = found.latest_restored
    return CheckpointingStatistics(
        counts=Counts(
            restored=found.restored,
            total=found.completed + found.failed + found.in_progress,
            in_progress=found.in_progress,
            completed=found.completed,
            failed=found.failed,
        ),
        summary=Summary(
            checkpointed_size=_summary(found.checkpointed),
            state_size=_summary(found.state),
            end_to_end_duration=_summary(found.duration),
            alignment_buffered=_summary(_NONE),
            processed_data=_summary(_NONE),
            persisted_data=_summary(_NONE),
        ),
        latest=LatestCheckpoints(
            completed=_completed(job, found.latest_completed),
            savepoint=_completed(job, found.latest_savepoint),
            failed=_failed(found.latest_failed),
            restored=None
            if restored is None
            else RestoredCheckpointStatistics(
                id=restored.id,
                restore_timestamp=restored.restored_ms,
                is_savepoint=restored.savepoint,
                external_path=restored.path,
            ),
        ),
        history=[CheckpointStatistics(**_common(each)) for each in found.history],
    )


def _summary(values: CheckpointSummary) -> StatsSummaryDto:
    return StatsSummaryDto(
        min=values.min,
        max=values.max,
        avg=values.avg,
        p50=values.p50,
        p90=values.p90,
        p95=values.p95,
        p99=values.p99,
        p999=values.p999,
    )


def _common(each: CheckpointSnapshot, tasks: dict[str, TaskCheckpointStatistics] | None = None) -> dict[str, Any]:
    kind = "CHECKPOINT"
    if each.savepoint:
        kind = "SYNC_SAVEPOINT" if each.ends_job else "SAVEPOINT"
    return {
        "id": each.id,
        "status": each.status,
        "is_savepoint": each.savepoint,
        "savepoint_format": "CANONICAL" if each.savepoint else "",
        "trigger_timestamp": each.triggered_ms,
        "latest_ack_timestamp": each.latest_ack_ms,
        "checkpointed_size": each.checkpointed_bytes,
        "state_size": each.state_bytes,
        "end_to_end_duration": each.duration_ms,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": each.subtasks,
        "num_acknowledged_subtasks": each.acknowledged,
        "checkpoint_type": kind,
        "tasks": tasks or {},
    }


def _completed(job: JobSnapshot, each: CheckpointSnapshot | None) -> CompletedCheckpointStatistics | None:
    if each is None:
        return None
    gone = job.state in ENDED and job.state not in ("FAILED", "SUSPENDED") and not job.checkpointing.retained
    return CompletedCheckpointStatistics(
        **_common(each), external_path=each.path, discarded=gone and not each.savepoint
    )


def _failed(each: CheckpointSnapshot | None) -> FailedCheckpointStatistics | None:
    if each is None:
        return None
    return FailedCheckpointStatistics(**_common(each), failure_timestamp=each.failed_ms, failure_message=each.failure)


def details(job: JobSnapshot, params: PathParams, query: Query) -> CheckpointStatistics:
    """Return a checkpoint with its tasks. A savepoint has the number of the checkpoint that it was made from."""
    each = _checkpoint(job, params)
    tasks = {task.vertex: TaskCheckpointStatistics(**_of_task(each, task)) for task in each.tasks}
    return CheckpointStatistics(**_common(each, tasks))


def _checkpoint(job: JobSnapshot, params: PathParams) -> CheckpointSnapshot:
    wanted = whole(params, "checkpointid")
    known = job.checkpoints
    latest = (known.latest_completed, known.latest_savepoint, known.latest_failed)
    found = [each for each in (*known.history, *latest) if each is not None and each.id == wanted]
    if not found:
        raise NotFound(
            f"Job {job.id} does not remember checkpoint {wanted}.",
            fix=f"Look up the recent ones with GET /jobs/{job.id}/checkpoints.",
        )
    return min(found, key=lambda each: each.savepoint)


def _of_task(each: CheckpointSnapshot, task: TaskCheckpoint) -> dict[str, Any]:
    return {
        "id": each.id,
        "status": each.status,
        "latest_ack_timestamp": task.latest_ack_ms,
        "checkpointed_size": task.checkpointed_bytes,
        "state_size": task.state_bytes,
        "end_to_end_duration": task.duration_ms,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": task.subtasks,
        "num_acknowledged_subtasks": task.acknowledged,
    }


def task_details(job: JobSnapshot, params: PathParams, query: Query) -> TaskCheckpointStatisticsWithSubtaskDetails:
    each, vertex = _checkpoint(job, params), vertex_of(job, params)
    task = next((task for task in each.tasks if task.vertex == vertex.id), None)
    if task is None:
        raise NotFound(
            f"Vertex {vertex.id} has no part in checkpoint {each.id} of job {job.id}.",
            fix="Choose one of the vertices that the details of the checkpoint list.",
        )
    missing = set(task.missing)
    none = _summary(_NONE)
    return TaskCheckpointStatisticsWithSubtaskDetails(
        **_of_task(each, task),
        summary=TaskCheckpointStatisticsWithSubtaskDetailsSummary(
            checkpointed_size=_summary(task.checkpointed),
            state_size=_summary(task.state),
            end_to_end_duration=_summary(task.duration),
            # A task writes its state before it ends; nothing continues afterwards.
            checkpoint_duration=CheckpointDuration(sync=_summary(task.sync_duration), async_=none),
            # All input of a task is there before it starts, so no channel waits for another.
            alignment=CheckpointAlignment(buffered=none, processed=none, persisted=none, duration=none),
            start_delay=_summary(task.start_delay),
        ),
        subtasks=[
            SubtaskCheckpointStatistics(index=number, status="pending_or_failed" if number in missing else "completed")
            for number in range(task.subtasks)
        ],
    )


def config(job: JobSnapshot, params: PathParams, query: Query) -> CheckpointConfigInfo:
    facts = job.checkpointing
    return CheckpointConfigInfo(
        mode="exactly_once" if facts.exactly_once else "at_least_once",
        interval=facts.interval_ms if facts.enabled else _NEVER,
        timeout=facts.timeout_ms,
        min_pause=facts.min_pause_ms,
        max_concurrent=1,
        externalization=ExternalizedCheckpointInfo(enabled=facts.retained, delete_on_cancellation=not facts.retained),
        state_backend=facts.backend,
        checkpoint_storage="FileSystemCheckpointStorage" if facts.storage else "JobManagerCheckpointStorage",
        unaligned_checkpoints=False,
        tolerable_failed_checkpoints=facts.tolerable_failures,
        aligned_checkpoint_timeout=0,
        checkpoints_after_tasks_finish=True,
        state_changelog_enabled=False,
        changelog_periodic_materialization_interval=0,
        changelog_storage="",
    )
