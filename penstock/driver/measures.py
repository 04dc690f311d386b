"""Metrics of a job, a task and an executor by name, as functions of a snapshot.

Names are those of Flink where Flink has the metric, and Penstock's own otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.common.wall_clock import now_ms
from penstock.driver.job_snapshot import ExecutorSnapshot, JobSnapshot, Number, SubtaskSnapshot
from penstock.runtime.watermarks import LEAST

ENDED = frozenset({"FAILED", "CANCELED", "FINISHED", "SUSPENDED"})
"""States of jobs that no process runs any more."""


def ended_at(job: JobSnapshot) -> int:
    """Return when the job ended, or -1 while it runs."""
    return job.ended_ms if job.state in ENDED else -1


def taskmanager_id(job: JobSnapshot, executor: str) -> str:
    """Return an id of an executor that is unique in the cluster. Spark's is unique in its application only."""
    return f"{job.application or job.id}-{executor}" if executor else ""


def values_of_job(job: JobSnapshot) -> dict[str, Number | str]:
    """Return the metrics of a job, by name."""
    now, found = now_ms(), job.checkpoints
    last, restored = found.latest_completed, found.latest_restored
    end = ended_at(job) if job.state in ENDED else now

    def spent(state: str) -> int:
        return max(0, end - job.state_since_ms[state]) if job.state == state and state in job.state_since_ms else 0

    epoch = job.recent_epochs[-1] if job.recent_epochs else None
    running = spent("RUNNING")
    return {
        "uptime": running,
        "runningTime": running,
        "downtime": spent("RESTARTING") or spent("FAILING"),
        "restartingTime": spent("RESTARTING"),
        "cancellingTime": spent("CANCELLING"),
        "failingTime": spent("FAILING"),
        "numRestarts": job.restarts,
        "fullRestarts": job.restarts,
        "numberOfCompletedCheckpoints": found.completed,
        "numberOfFailedCheckpoints": found.failed,
        "numberOfInProgressCheckpoints": found.in_progress,
        "totalNumberOfCheckpoints": found.completed + found.failed + found.in_progress,
        "lastCheckpointDuration": last.duration_ms if last else -1,
        "lastCheckpointSize": last.checkpointed_bytes if last else -1,
        "lastCheckpointFullSize": last.state_bytes if last else -1,
        "lastCompletedCheckpointId": last.id if last else -1,
        "lastCheckpointCompletedTimestamp": last.latest_ack_ms if last else -1,
        "lastCheckpointExternalPath": last.path if last else "n/a",
        "lastCheckpointRestoreTimestamp": restored.restored_ms if restored else -1,
        "epoch": job.epochs,
        "epochRecords": epoch.records if epoch else 0,
        "epochDurationMs": epoch.duration_ms if epoch else 0,
        "epochCycleMs": epoch.cycle_ms if epoch else 0,
        "slotsNeeded": job.slots.needed,
        "slotsAvailable": job.slots.available,
    }


_SUBTASK: dict[str, Callable[[SubtaskSnapshot], Number]] = {
    "numRecordsIn": lambda each: each.records_in,
    "numRecordsOut": lambda each: each.records_out,
    "numBytesIn": lambda each: each.bytes_in,
    "numBytesOut": lambda each: each.bytes_out,
    "numRecordsInPerSecond": lambda each: each.records_in_rate,
    "numRecordsOutPerSecond": lambda each: each.records_out_rate,
    "numBytesInPerSecond": lambda each: each.bytes_in_rate,
    "numBytesOutPerSecond": lambda each: each.bytes_out_rate,
    "currentInputWatermark": lambda each: LEAST if each.watermark is None else each.watermark,
    "busyTimeMsPerSecond": lambda each: 1000 * each.busy,
    "backPressuredTimeMsPerSecond": lambda each: 1000 * each.backpressured,
    "idleTimeMsPerSecond": lambda each: 1000 * max(0.0, 1 - each.busy - each.backpressured),
    "accumulateBusyTimeMs": lambda each: each.busy_ms,
    "accumulateIdleTimeMs": lambda each: each.idle_ms,
    "accumulateBackPressuredTimeMs": lambda each: each.backpressured_ms,
}


def values_of_task(measured: SubtaskSnapshot) -> dict[str, Number]:
    """Return the metrics of a subtask's task, by name."""
    return {name: read(measured) for name, read in _SUBTASK.items()}


def values_of_executor(each: ExecutorSnapshot) -> dict[str, Number | str]:
    """Return the metrics of an executor, by name."""
    values: dict[str, Number | str] = {
        "Status.JVM.Memory.Heap.Used": each.heap_used,
        "Status.JVM.Memory.Heap.Committed": each.heap_committed,
        "Status.JVM.Memory.Heap.Max": each.heap_max,
        "Status.JVM.Memory.NonHeap.Used": each.off_heap_used,
        "taskSlotsTotal": each.slots,
        "activeTasks": each.active_tasks,
        "storageMemoryUsed": each.storage_memory_used,
        "storageMemoryMax": each.storage_memory_max,
        "pythonMemoryUsed": each.python_memory,
        "pythonWorkers": each.python_workers,
        "diskTotal": each.disk_total,
        "diskFree": each.disk_free,
        "stateBlocks": each.blocks,
        "stateBytes": each.block_bytes,
        "standbyBlocks": each.standby_blocks,
        "standbyBytes": each.standby_bytes,
    }
    for name, (count, spent) in each.collectors.items():
        values[f"Status.JVM.GarbageCollector.{name}.Count"] = count
        values[f"Status.JVM.GarbageCollector.{name}.Time"] = spent
    return values
