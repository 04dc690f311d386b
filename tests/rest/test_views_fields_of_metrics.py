"""Every metric, and every field of the answers about executors. Each has another number."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from numbered_answers import answer, of_all, values
from numbered_job import COUNT, JOB, SOURCE, numbered_job

from penstock.driver.job_snapshot import JobSnapshot

pytestmark = pytest.mark.usefixtures("stopped_clock")


def metrics_of_subtask(base: int, busy: float, backpressured: float, idle: float) -> dict[str, str]:
    return {
        "numRecordsIn": str(base + 1),
        "numRecordsOut": str(base + 2),
        "numBytesIn": str(base + 3),
        "numBytesOut": str(base + 4),
        "numRecordsInPerSecond": str(base + 8.5),
        "numRecordsOutPerSecond": str(base + 9.5),
        "numBytesInPerSecond": str(base + 10.5),
        "numBytesOutPerSecond": str(base + 11.5),
        "currentInputWatermark": str(base + 12),
        "busyTimeMsPerSecond": str(1000 * busy),
        "backPressuredTimeMsPerSecond": str(1000 * backpressured),
        "idleTimeMsPerSecond": str(1000 * idle),
        "accumulateBusyTimeMs": str(base + 5.25),
        "accumulateIdleTimeMs": str(base + 6.0),
        "accumulateBackPressuredTimeMs": str(base + 7.0),
        "isBackPressured": "true" if backpressured > 0.5 else "false",
    }


OF_COUNT = [
    metrics_of_subtask(2100, 0.1, 0.6, 1 - 0.1 - 0.6) | {"count-uid.keys": "2301", "count.keys": "2301"},
    metrics_of_subtask(2200, 0.15, 0.35, 1 - 0.15 - 0.35) | {"count-uid.keys": "2302", "count.keys": "2302"},
]


def test_metrics_of_a_vertex() -> None:
    job, path = numbered_job(), "/jobs/:jobid/vertices/:vertexid"
    for number in (0, 1):
        found = values(f"{path}/subtasks/:subtaskindex/metrics", job, vertexid=COUNT, subtaskindex=str(number))
        assert found == OF_COUNT[number]
    assert values(f"{path}/metrics", job, vertexid=COUNT) == {
        f"{number}.{name}": value for number in (0, 1) for name, value in OF_COUNT[number].items()
    }
    assert values(f"{path}/jm-operator-metrics", job, vertexid=SOURCE) == {"credits": "1303", "pending": "1304"}
    found = answer(f"{path}/subtasks/metrics", job, {"get": "numBytesOut,count-uid.keys"}, vertexid=COUNT)
    skew = pytest.approx(100 * 50 / 2154)
    assert found == [
        {"id": "numBytesOut", "min": 2104, "max": 2204, "avg": 2154, "sum": 4308, "skew": skew},
        {"id": "count-uid.keys", "min": 2301, "max": 2302, "avg": 2301.5, "sum": 4603, "skew": 100 * 0.5 / 2301.5},
    ]


OF_JOB = {
    "uptime": "78000",
    "runningTime": "78000",
    "downtime": "0",
    "restartingTime": "0",
    "cancellingTime": "0",
    "failingTime": "0",
    "numRestarts": "22",
    "fullRestarts": "22",
    "numberOfCompletedCheckpoints": "420",
    "numberOfFailedCheckpoints": "4300",
    "numberOfInProgressCheckpoints": "44000",
    "totalNumberOfCheckpoints": "48720",
    "lastCheckpointDuration": "5004",
    "lastCheckpointSize": "5005",
    "lastCheckpointFullSize": "5006",
    "lastCompletedCheckpointId": "5001",
    "lastCheckpointCompletedTimestamp": "5003",
    "lastCheckpointExternalPath": "/checkpoint/5000",
    "lastCheckpointRestoreTimestamp": "46",
    "epoch": "26",
    "epochRecords": "32",
    "epochDurationMs": "33.0",
    "epochCycleMs": "34.0",
    "slotsNeeded": "65",
    "slotsAvailable": "66",
}
STOPPED = {"uptime": "0", "runningTime": "0"}


@pytest.mark.parametrize(
    ("state", "changes"),
    [
        ("RUNNING", {}),
        ("RESTARTING", STOPPED | {"downtime": "72000", "restartingTime": "72000"}),
        ("FAILING", STOPPED | {"downtime": "77000", "failingTime": "77000"}),
        ("CANCELLING", STOPPED | {"cancellingTime": "75000"}),
    ],
)
def test_metrics_of_a_job(state: str, changes: dict[str, str]) -> None:
    assert values("/jobs/:jobid/metrics", replace(numbered_job(), state=state)) == OF_JOB | changes
    (found,) = of_all("/jobs/metrics", [numbered_job(), replace(numbered_job(), epochs=30)], {"get": "epoch"})
    assert found == {"id": "epoch", "min": 26, "max": 30, "avg": 28, "sum": 56, "skew": pytest.approx(100 * 2 / 28)}


def resource(cores: float, heap: int) -> dict[str, Any]:
    none = dict.fromkeys(("taskOffHeapMemory", "managedMemory", "networkMemory"), 0)
    return {"cpuCores": pytest.approx(cores), "taskHeapMemory": heap, **none, "extendedResources": {}}


def manager(number: int, base: int, cores: int, slots: int, active: int, blocked: bool) -> dict[str, Any]:
    heap = slots * (base + 1)
    unknown = ("frameworkHeap", "frameworkOffHeap", "taskOffHeap", "networkMemory", "managedMemory")
    return {
        "id": f"app-{number}",
        "path": f"address-{number}:70{number}",
        "dataPort": 0,
        "jmxPort": 0,
        # Flink, too, sends the time of the last heartbeat.
        "timeSinceLastHeartbeat": base + 8,
        "slotsNumber": slots,
        "freeSlots": slots - active,
        "assignedTasks": active,
        "totalResource": resource(cores, heap),
        "freeResource": resource(cores * (slots - active) / slots, (slots - active) * (base + 1)),
        "hardware": {"cpuCores": cores, "physicalMemory": base + 7, "freeMemory": heap, "managedMemory": 0},
        "memoryConfiguration": {
            **dict.fromkeys(unknown, 0),
            "taskHeap": heap,
            "jvmMetaspace": 0,
            "jvmOverhead": 0,
            "totalFlinkMemory": heap,
            "totalProcessMemory": heap,
        },
        "blocked": blocked,
    }


MANAGERS = [manager(0, 9000, 12, 6, 2, False), manager(1, 9100, 27, 11, 5, True)]


def of_executor(base: int, slots: int, active: int) -> dict[str, str]:
    found = {
        "Status.JVM.Memory.Heap.Used": base + 2,
        "Status.JVM.Memory.Heap.Committed": base + 3,
        "Status.JVM.Memory.Heap.Max": slots * (base + 1),
        "Status.JVM.Memory.NonHeap.Used": base + 6,
        "taskSlotsTotal": slots,
        "activeTasks": active,
        "storageMemoryUsed": base + 5,
        "storageMemoryMax": base + 4,
        "pythonMemoryUsed": base + 13,
        "pythonWorkers": base + 14,
        "diskTotal": base + 15,
        "diskFree": base + 16,
        "stateBlocks": base + 17,
        "stateBytes": base + 18,
        "standbyBlocks": base + 19,
        "standbyBytes": base + 20,
        "Status.JVM.GarbageCollector.Young.Count": base + 9,
        "Status.JVM.GarbageCollector.Young.Time": base + 10,
        "Status.JVM.GarbageCollector.Old.Count": base + 11,
        "Status.JVM.GarbageCollector.Old.Time": base + 12,
    }
    return {name: str(value) for name, value in found.items()}


def test_task_managers() -> None:
    jobs = [numbered_job()]
    assert of_all("/taskmanagers", jobs) == {"taskmanagers": MANAGERS}
    found = of_all("/taskmanagers/:taskmanagerid", jobs, taskmanagerid="app-1")
    neutral = (
        *("nonHeapCommitted", "nonHeapMax", "directCount", "directUsed", "directMax", "mappedCount", "mappedUsed"),
        *("mappedMax", "nettyShuffleMemorySegmentsAvailable", "nettyShuffleMemorySegmentsUsed"),
        *("nettyShuffleMemorySegmentsTotal", "nettyShuffleMemoryAvailable", "nettyShuffleMemoryUsed"),
        "nettyShuffleMemoryTotal",
    )
    assert found == MANAGERS[1] | {
        "allocatedSlots": [{"jobId": JOB, "resource": resource(27 / 11, 9101), "assignedTasks": 1}] * 5,
        "metrics": {
            **dict.fromkeys(neutral, 0),
            "heapUsed": 9102,
            "heapCommitted": 9103,
            "heapMax": 11 * 9101,
            "nonHeapUsed": 9106,
            "garbageCollectors": [
                {"name": "Young", "count": 9109, "time": 9110},
                {"name": "Old", "count": 9111, "time": 9112},
            ],
        },
    }


def test_metrics_of_task_managers() -> None:
    jobs, path = [numbered_job()], "/taskmanagers/:taskmanagerid/metrics"
    for number, expected in ((0, of_executor(9000, 6, 2)), (1, of_executor(9100, 11, 5))):
        query = {"get": ",".join(expected)}
        found = of_all(path, jobs, query, taskmanagerid=f"app-{number}")
        assert {each["id"]: each["value"] for each in found} == expected
        assert {each["id"] for each in of_all(path, jobs, taskmanagerid=f"app-{number}")} == set(expected)
    (found,) = of_all("/taskmanagers/metrics", jobs, {"get": "storageMemoryUsed"})
    assert found == {
        **{"id": "storageMemoryUsed", "min": 9005, "max": 9105, "avg": 9055, "sum": 18110},
        "skew": pytest.approx(100 * 50 / 9055),
    }
    assert of_all("/taskmanagers/:taskmanagerid/thread-dump", jobs, taskmanagerid="app-0") == {"threadInfos": []}


def test_the_overview_counts_executors_slots_and_jobs() -> None:
    states = ["RESTARTING"] * 2 + ["FINISHED"] * 4 + ["CANCELED"] * 5 + ["FAILED"] * 7
    others = [JobSnapshot(id=f"{number:032x}", name="other", state=state) for number, state in enumerate(states)]
    jobs = [numbered_job(), *others]
    found = of_all("/overview", jobs)
    assert found.pop("flink-commit").startswith("penstock-")
    assert found == {
        "taskmanagers": 2,
        "slots-total": 17,
        "slots-available": 10,
        "taskmanagers-blocked": 1,
        "slots-free-and-blocked": 6,
        "jobs-running": 3,
        "jobs-finished": 4,
        "jobs-cancelled": 5,
        "jobs-failed": 7,
        "flink-version": "2.2.0",
    }
    wanted = {"get": "numRegisteredTaskManagers,numRunningJobs,taskSlotsTotal,taskSlotsAvailable"}
    metrics = of_all("/jobmanager/metrics", jobs, wanted)
    assert [each["value"] for each in metrics] == ["2", "3", "17", "10"]
