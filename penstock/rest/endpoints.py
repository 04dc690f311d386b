"""The endpoints of Flink's REST API: method, path, parameters and types. Routes and OpenAPI follow this table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.rest import contract

Nothing = dict[str, Any]
"""The type of an answer without content, which is an empty object."""


@dataclass(frozen=True)
class Endpoint:
    """One method of one path."""

    method: str
    path: str
    """Parameters start with a colon."""
    answer: Any
    """The type of the answer."""
    body: Any = None
    """The type of the request's body, which a client can leave out."""
    status: int = 200
    query: tuple[str, ...] = ()
    multipart: bool = False


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("DELETE", "/cluster", Nothing),
    Endpoint("GET", "/config", contract.DashboardConfiguration),
    Endpoint("GET", "/jars", contract.JarListInfo),
    Endpoint("POST", "/jars/upload", contract.JarUploadResponseBody, multipart=True),
    Endpoint("DELETE", "/jars/:jarid", Nothing),
    Endpoint(
        "GET",
        "/jars/:jarid/plan",
        contract.JobPlanInfo,
        body=contract.JarPlanRequestBody,
        query=("programArg", "entry-class", "parallelism"),
    ),
    Endpoint(
        "POST",
        "/jars/:jarid/plan",
        contract.JobPlanInfo,
        body=contract.JarPlanRequestBody,
        query=("programArg", "entry-class", "parallelism"),
    ),
    Endpoint(
        "POST",
        "/jars/:jarid/run",
        contract.JarRunResponseBody,
        body=contract.JarRunRequestBody,
        query=("allowNonRestoredState", "savepointPath", "programArg", "entry-class", "parallelism"),
    ),
    Endpoint("GET", "/jobmanager/config", list[contract.ConfigurationInfoEntry]),
    Endpoint("GET", "/jobmanager/environment", contract.EnvironmentInfo),
    Endpoint("GET", "/jobmanager/logs", contract.LogListInfo),
    Endpoint("GET", "/jobmanager/metrics", Any, query=("get",)),
    Endpoint("GET", "/jobmanager/thread-dump", contract.ThreadDumpInfo, query=("mode",)),
    Endpoint("GET", "/jobs", contract.JobIdsWithStatusOverview),
    Endpoint(
        "POST", "/jobs", contract.JobSubmitResponseBody, body=contract.JobSubmitRequestBody, status=202, multipart=True
    ),
    Endpoint("GET", "/jobs/metrics", Any, query=("get", "agg", "jobs")),
    Endpoint("GET", "/jobs/overview", contract.MultipleJobsDetails),
    Endpoint("GET", "/jobs/:jobid", contract.JobDetailsInfo),
    Endpoint("PATCH", "/jobs/:jobid", Nothing, status=202, query=("mode",)),
    Endpoint("GET", "/jobs/:jobid/accumulators", contract.JobAccumulatorsInfo, query=("includeSerializedValue",)),
    Endpoint("GET", "/jobs/:jobid/checkpoints", contract.CheckpointingStatistics),
    Endpoint(
        "POST",
        "/jobs/:jobid/checkpoints",
        contract.TriggerResponse,
        body=contract.CheckpointTriggerRequestBody,
        status=202,
    ),
    Endpoint("GET", "/jobs/:jobid/checkpoints/config", contract.CheckpointConfigInfo),
    Endpoint("GET", "/jobs/:jobid/checkpoints/details/:checkpointid", contract.CheckpointStatistics),
    Endpoint(
        "GET",
        "/jobs/:jobid/checkpoints/details/:checkpointid/subtasks/:vertexid",
        contract.TaskCheckpointStatisticsWithSubtaskDetails,
    ),
    Endpoint("GET", "/jobs/:jobid/checkpoints/:triggerid", contract.AsynchronousOperationResult),
    Endpoint("PATCH", "/jobs/:jobid/clientHeartbeat", Nothing, body=contract.JobClientHeartbeatRequestBody, status=202),
    Endpoint("GET", "/jobs/:jobid/config", Any),
    Endpoint(
        "GET",
        "/jobs/:jobid/exceptions",
        contract.JobExceptionsInfoWithHistory,
        query=("maxExceptions", "failureLabelFilter"),
    ),
    Endpoint("GET", "/jobs/:jobid/execution-result", contract.JobExecutionResultResponseBody),
    Endpoint("GET", "/jobs/:jobid/jobmanager/config", list[contract.ConfigurationInfoEntry]),
    Endpoint("GET", "/jobs/:jobid/jobmanager/environment", contract.EnvironmentInfo),
    Endpoint("GET", "/jobs/:jobid/jobmanager/log-url", contract.LogUrlResponse),
    Endpoint("GET", "/jobs/:jobid/metrics", Any, query=("get",)),
    Endpoint("GET", "/jobs/:jobid/plan", contract.JobPlanInfo),
    Endpoint("GET", "/jobs/:jobid/rescales/overview", contract.JobRescalesOverview),
    Endpoint("PATCH", "/jobs/:jobid/rescaling", contract.TriggerResponse, query=("parallelism",)),
    Endpoint("GET", "/jobs/:jobid/rescaling/:triggerid", contract.AsynchronousOperationResult),
    Endpoint("GET", "/jobs/:jobid/resource-requirements", contract.JobResourceRequirementsBody),
    Endpoint("PUT", "/jobs/:jobid/resource-requirements", Nothing, body=contract.JobResourceRequirementsBody),
    Endpoint(
        "POST",
        "/jobs/:jobid/savepoints",
        contract.TriggerResponse,
        body=contract.SavepointTriggerRequestBody,
        status=202,
    ),
    Endpoint("GET", "/jobs/:jobid/savepoints/:triggerid", contract.AsynchronousOperationResult),
    Endpoint("GET", "/jobs/:jobid/status", contract.JobStatusInfo),
    Endpoint(
        "POST", "/jobs/:jobid/stop", contract.TriggerResponse, body=contract.StopWithSavepointRequestBody, status=202
    ),
    Endpoint("GET", "/jobs/:jobid/taskmanagers/:taskmanagerid/log-url", contract.LogUrlResponse),
    Endpoint("GET", "/jobs/:jobid/vertices/:vertexid", contract.VertexDetailsInfo),
    Endpoint("GET", "/jobs/:jobid/vertices/:vertexid/accumulators", contract.JobVertexAccumulatorsInfo),
    Endpoint("GET", "/jobs/:jobid/vertices/:vertexid/backpressure", contract.JobVertexBackPressureInfo),
    Endpoint(
        "GET", "/jobs/:jobid/vertices/:vertexid/flamegraph", contract.VertexFlameGraph, query=("type", "subtaskindex")
    ),
    Endpoint("GET", "/jobs/:jobid/vertices/:vertexid/jm-operator-metrics", Any, query=("get",)),
    Endpoint("GET", "/jobs/:jobid/vertices/:vertexid/metrics", Any, query=("get",)),
    Endpoint("GET", "/jobs/:jobid/vertices/:vertexid/subtasks/accumulators", contract.SubtasksAllAccumulatorsInfo),
    Endpoint("GET", "/jobs/:jobid/vertices/:vertexid/subtasks/metrics", Any, query=("get", "agg", "subtasks")),
    Endpoint(
        "GET", "/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex", contract.SubtaskExecutionAttemptDetailsInfo
    ),
    Endpoint(
        "GET",
        "/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/attempts/:attempt",
        contract.SubtaskExecutionAttemptDetailsInfo,
    ),
    Endpoint(
        "GET",
        "/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/attempts/:attempt/accumulators",
        contract.SubtaskExecutionAttemptAccumulatorsInfo,
    ),
    Endpoint("GET", "/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/metrics", Any, query=("get",)),
    Endpoint("GET", "/jobs/:jobid/vertices/:vertexid/subtasktimes", contract.SubtasksTimesInfo),
    Endpoint("GET", "/jobs/:jobid/vertices/:vertexid/taskmanagers", contract.JobVertexTaskManagersInfo),
    Endpoint("GET", "/jobs/:jobid/vertices/:vertexid/watermarks", Any),
    Endpoint("GET", "/overview", contract.ClusterOverviewWithVersion),
    Endpoint("POST", "/savepoint-disposal", contract.TriggerResponse, body=contract.SavepointDisposalRequest),
    Endpoint("GET", "/savepoint-disposal/:triggerid", contract.AsynchronousOperationResult),
    Endpoint("GET", "/taskmanagers", contract.TaskManagersOverview),
    Endpoint("GET", "/taskmanagers/metrics", Any, query=("get", "agg", "taskmanagers")),
    Endpoint("GET", "/taskmanagers/:taskmanagerid", contract.TaskManagerDetailsInfo),
    Endpoint("GET", "/taskmanagers/:taskmanagerid/logs", contract.LogListInfo),
    Endpoint("GET", "/taskmanagers/:taskmanagerid/metrics", Any, query=("get",)),
    Endpoint("GET", "/taskmanagers/:taskmanagerid/thread-dump", contract.ThreadDumpInfo, query=("mode",)),
)
