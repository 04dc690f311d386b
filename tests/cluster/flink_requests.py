"""What Flink's own clients send, as data: the web dashboard, the command line and the Kubernetes operator.

Paths are those of the contract. `:name` stands for an id of the job, and `?get=*` for all metrics of the path.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Step:
    """One request and what its answer must be."""

    method: str
    path: str
    query: str = ""
    body: Any = None
    polled: str = ""
    """The path with the result of the operation that this request triggers."""
    result: tuple[str, ...] = ()
    """The fields of that result."""
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 0
    """0: that of the contract."""


def get(path: str, query: str = "", body: Any = None) -> Step:
    return Step("GET", path, query, body)


JSON = {"Content-Type": "application/json; charset=UTF-8", "Accept": "application/json"}
VERTEX = "/jobs/:jobid/vertices/:vertexid"
DASHBOARD = [
    get("/config"),
    get("/overview"),
    get("/jobs/overview"),
    get("/jobs/:jobid"),
    get("/jobs/:jobid/config"),
    get("/jobs/:jobid/exceptions", "?maxExceptions=10"),
    get("/jobs/:jobid/accumulators"),
    get("/jobs/:jobid/checkpoints"),
    get("/jobs/:jobid/checkpoints/config"),
    get("/jobs/:jobid/checkpoints/details/:checkpointid"),
    get("/jobs/:jobid/checkpoints/details/:checkpointid/subtasks/:vertexid"),
    get("/jobs/:jobid/resource-requirements"),
    get("/jobs/:jobid/jobmanager/config"),
    get("/jobs/:jobid/jobmanager/environment"),
    get("/jobs/:jobid/jobmanager/log-url"),
    get("/jobs/:jobid/rescales/overview"),
    get("/jobs/:jobid/metrics", "?get=numRestarts,uptime,lastCheckpointSize"),
    get(VERTEX),
    get(f"{VERTEX}/subtasktimes"),
    get(f"{VERTEX}/taskmanagers"),
    get(f"{VERTEX}/watermarks"),
    get(f"{VERTEX}/backpressure"),
    get(f"{VERTEX}/accumulators"),
    get(f"{VERTEX}/subtasks/accumulators"),
    get(f"{VERTEX}/metrics"),
    get(f"{VERTEX}/metrics", "?get=0.numRecordsIn,0.busyTimeMsPerSecond,0.backPressuredTimeMsPerSecond"),
    get(f"{VERTEX}/subtasks/metrics", "?get=busyTimeMsPerSecond,backPressuredTimeMsPerSecond&agg=max"),
    get(f"{VERTEX}/flamegraph", "?type=full"),
    get(f"{VERTEX}/flamegraph", "?type=on_cpu&subtaskindex=0"),
    get(f"{VERTEX}/subtasks/:subtaskindex"),
    get("/taskmanagers"),
    get("/taskmanagers/:taskmanagerid"),
    get("/taskmanagers/:taskmanagerid/metrics", "?get=Status.JVM.Memory.Heap.Used,Status.JVM.Memory.Heap.Max"),
    get("/taskmanagers/:taskmanagerid/logs"),
    get("/taskmanagers/:taskmanagerid/thread-dump"),
    get("/jobs/:jobid/taskmanagers/:taskmanagerid/log-url"),
    get("/jobmanager/config"),
    get("/jobmanager/environment"),
    get("/jobmanager/metrics"),
    get("/jobmanager/metrics", "?get=numRegisteredTaskManagers,taskSlotsTotal"),
    get("/jobmanager/logs"),
    get("/jobmanager/thread-dump"),
    get("/jars"),
]
COMMAND_LINE = [
    # Flink's REST client sends an empty object with every request.
    get("/jobs/overview", body={}),
    get("/jobs", body={}),
    get("/jobs/:jobid", body={}),
    get("/jobs/:jobid/status", body={}),
    get("/jobs/:jobid/execution-result", body={}),
    get("/jobs/:jobid/accumulators", "?includeSerializedValue=true", {}),
    Step("PATCH", "/jobs/:jobid/clientHeartbeat", body={"expiredTimestamp": 1_800_000_000_000}),
    Step(
        *("POST", "/jobs/:jobid/savepoints"),
        body={"target-directory": None, "cancel-job": False, "formatType": "CANONICAL", "triggerId": None},
        polled="/jobs/:jobid/savepoints/:triggerid",
        result=("location",),
    ),
    Step(
        *("POST", "/savepoint-disposal"),
        body={"savepoint-path": ":location"},
        polled="/savepoint-disposal/:triggerid",
    ),
    Step(
        *("POST", "/jobs/:jobid/checkpoints"),
        body={"checkpointType": "FULL", "triggerId": None},
        polled="/jobs/:jobid/checkpoints/:triggerid",
        result=("checkpointId",),
    ),
    # A job graph of Java. Flink's client shows the text of the answer.
    Step("POST", "/jobs", body={"jobGraphFileName": "graph.bin", "jobJarFileNames": []}, status=400),
]
OPERATOR = [
    get("/config", body={}),
    get("/overview", body={}),
    get("/jobs/overview", body={}),
    get("/jobs/:jobid/config", body={}),
    get("/jobs/:jobid/checkpoints", body={}),
    get("/jobs/:jobid/exceptions", body={}),
    get("/jobmanager/config", body={}),
    get("/taskmanagers", body={}),
    get("/taskmanagers/metrics", "?get=Status.JVM.Memory.Heap.Max,Status.JVM.Memory.Heap.Used&agg=max", {}),
    get("/jobmanager/metrics", "?get=taskSlotsTotal,taskSlotsAvailable", {}),
    get(f"{VERTEX}/subtasks/metrics", body={}),
    get(f"{VERTEX}/subtasks/metrics", "?get=numRecordsInPerSecond,busyTimeMsPerSecond", {}),
    get("/jobs/:jobid/resource-requirements", body={}),
    Step("PUT", "/jobs/:jobid/resource-requirements", body=":requirements"),
    Step(
        *("POST", "/jobs/:jobid/savepoints"),
        body={"target-directory": ":directory", "cancel-job": False, "formatType": "NATIVE", "later": [1]},
        polled="/jobs/:jobid/savepoints/:triggerid",
        result=("location",),
    ),
]
STOP = Step(
    *("POST", "/jobs/:jobid/stop"),
    body={"targetDirectory": ":directory", "drain": False, "formatType": "CANONICAL", "triggerId": None},
    polled="/jobs/:jobid/savepoints/:triggerid",
    result=("location",),
)
CANCEL = Step("PATCH", "/jobs/:jobid", "?mode=cancel", {})
