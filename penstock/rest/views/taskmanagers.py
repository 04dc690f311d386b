"""Views of the cluster and of its task managers, which are Spark's executors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from penstock import __version__
from penstock.common.wall_clock import now_ms
from penstock.driver.job_snapshot import ExecutorSnapshot, JobSnapshot
from penstock.rest.contract import (
    ClusterOverviewWithVersion,
    GarbageCollectorInfo,
    HardwareDescription,
    ResourceProfileInfo,
    SlotInfo,
    TaskExecutorMemoryConfiguration,
    TaskManagerDetailsInfo,
    TaskManagerInfo,
    TaskManagerMetricsInfo,
    TaskManagersOverview,
    ThreadDumpInfo,
)
from penstock.rest.views.metrics import executor_of, executors
from penstock.rest.views.requests import PathParams, Query
from penstock.rest.views.shared import ENDED

FLINK_VERSION = "2.2.0"
"""The version of Flink whose REST interface this is. Clients compare it to choose what to call."""
FLINK_COMMIT = f"penstock-{__version__}"


def overview(jobs: Sequence[JobSnapshot], params: PathParams, query: Query) -> ClusterOverviewWithVersion:
    known = [each for _, each in executors(jobs).values()]
    states = Counter(job.state for job in jobs)
    excluded = [each for each in known if each.excluded]
    return ClusterOverviewWithVersion(
        taskmanagers=len(known),
        slots_total=sum(each.slots for each in known),
        slots_available=sum(_free(each) for each in known),
        taskmanagers_blocked=len(excluded),
        slots_free_and_blocked=sum(_free(each) for each in excluded),
        jobs_running=sum(count for state, count in states.items() if state not in ENDED),
        jobs_finished=states["FINISHED"],
        jobs_cancelled=states["CANCELED"],
        jobs_failed=states["FAILED"],
        flink_version=FLINK_VERSION,
        flink_commit=FLINK_COMMIT,
    )


def _free(each: ExecutorSnapshot) -> int:
    return max(0, each.slots - each.active_tasks)


def taskmanagers(jobs: Sequence[JobSnapshot], params: PathParams, query: Query) -> TaskManagersOverview:
    now = now_ms()
    return TaskManagersOverview(
        taskmanagers=[TaskManagerInfo(**_facts(key, each, now)) for key, (_, each) in executors(jobs).items()]
    )


def _facts(key: str, each: ExecutorSnapshot, now: int) -> dict[str, Any]:
    free = _free(each)
    return {
        "id": key,
        "path": each.address,
        "data_port": 0,
        "jmx_port": 0,
        "time_since_last_heartbeat": each.seen_ms or now,
        "slots_number": each.slots,
        "free_slots": free,
        "assigned_tasks": each.active_tasks,
        "total_resource": _resource(each, each.slots),
        "free_resource": _resource(each, free),
        "hardware": HardwareDescription(
            cpu_cores=each.cores,
            physical_memory=each.physical_memory,
            free_memory=each.heap_max,
            managed_memory=0,
        ),
        "memory_configuration": TaskExecutorMemoryConfiguration(
            framework_heap=0,
            task_heap=each.heap_max,
            framework_off_heap=0,
            task_off_heap=0,
            network_memory=0,
            managed_memory=0,
            jvm_metaspace=0,
            jvm_overhead=0,
            total_flink_memory=each.heap_max,
            total_process_memory=each.heap_max,
        ),
        "blocked": each.excluded,
    }


def _resource(each: ExecutorSnapshot, slots: int) -> ResourceProfileInfo:
    """Return the share of an executor that belongs to some of its slots."""
    total = each.slots or 1
    return ResourceProfileInfo(
        cpu_cores=each.cores * slots / total,
        task_heap_memory=each.heap_max * slots // total,
        task_off_heap_memory=0,
        managed_memory=0,
        network_memory=0,
        extended_resources={},
    )


def taskmanager(jobs: Sequence[JobSnapshot], params: PathParams, query: Query) -> TaskManagerDetailsInfo:
    key, job, each = executor_of(jobs, params)
    return TaskManagerDetailsInfo(
        **_facts(key, each, now_ms()),
        # A slot of Spark runs one task at a time.
        allocated_slots=[
            SlotInfo(job_id=job.id, resource=_resource(each, 1), assigned_tasks=1)
            for _ in range(min(each.active_tasks, each.slots))
        ],
        metrics=TaskManagerMetricsInfo(
            heap_used=each.heap_used,
            heap_committed=each.heap_committed,
            heap_max=each.heap_max,
            non_heap_used=each.off_heap_used,
            non_heap_committed=0,
            non_heap_max=0,
            direct_count=0,
            direct_used=0,
            direct_max=0,
            mapped_count=0,
            mapped_used=0,
            mapped_max=0,
            netty_shuffle_memory_segments_available=0,
            netty_shuffle_memory_segments_used=0,
            netty_shuffle_memory_segments_total=0,
            netty_shuffle_memory_available=0,
            netty_shuffle_memory_used=0,
            netty_shuffle_memory_total=0,
            garbage_collectors=[
                GarbageCollectorInfo(name=name, count=count, time=spent)
                for name, (count, spent) in each.collectors.items()
            ],
        ),
    )


def thread_dump(jobs: Sequence[JobSnapshot], params: PathParams, query: Query) -> ThreadDumpInfo:
    executor_of(jobs, params)
    # Threads of executors are not sampled.
    return ThreadDumpInfo(thread_infos=[])
