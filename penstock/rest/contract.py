"""Flink's REST API, version 1, as types. Field names, types and enumerations are those of Flink's clients.

A client that deserializes strictly reads every field: none is missing, and no number is null. `null` stands only for an
object that does not exist, such as the latest savepoint of a job without one. Fields of request bodies are optional.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct, field

JobState = Literal[
    "INITIALIZING",
    "CREATED",
    "RUNNING",
    "FAILING",
    "FAILED",
    "CANCELLING",
    "CANCELED",
    "FINISHED",
    "RESTARTING",
    "SUSPENDED",
    "RECONCILING",
]
TaskState = Literal[
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
    "INITIALIZING",
]


class AggregatedTaskDetailsInfo(Struct, kw_only=True, frozen=True):
    metrics: dict[str, dict[str, int]]
    status_duration: dict[str, dict[str, int]] = field(name="status-duration")


class QueueStatus(Struct, kw_only=True, frozen=True):
    id: Literal["IN_PROGRESS", "COMPLETED"]


class AsynchronousOperationResult(Struct, kw_only=True, frozen=True):
    status: QueueStatus
    operation: dict[str, Any]


class StatsSummaryDto(Struct, kw_only=True, frozen=True):
    min: int
    max: int
    avg: int
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float


class CheckpointAlignment(Struct, kw_only=True, frozen=True):
    buffered: StatsSummaryDto
    processed: StatsSummaryDto
    persisted: StatsSummaryDto
    duration: StatsSummaryDto


class ExternalizedCheckpointInfo(Struct, kw_only=True, frozen=True):
    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfigInfo(Struct, kw_only=True, frozen=True):
    mode: Any
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: ExternalizedCheckpointInfo
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool
    changelog_periodic_materialization_interval: int
    changelog_storage: str


class CheckpointDuration(Struct, kw_only=True, frozen=True):
    sync: StatsSummaryDto
    async_: StatsSummaryDto = field(name="async")


class TaskCheckpointStatistics(Struct, kw_only=True, frozen=True):
    id: int
    status: Literal["IN_PROGRESS", "COMPLETED", "FAILED"]
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int


class CheckpointStatistics(Struct, kw_only=True, frozen=True):
    id: int
    status: Literal["IN_PROGRESS", "COMPLETED", "FAILED"]
    is_savepoint: bool
    savepoint_format: str = field(name="savepointFormat")
    trigger_timestamp: int
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int
    checkpoint_type: Literal["CHECKPOINT", "UNALIGNED_CHECKPOINT", "SAVEPOINT", "SYNC_SAVEPOINT"]
    tasks: dict[str, TaskCheckpointStatistics]


class CheckpointTriggerRequestBody(Struct, kw_only=True, frozen=True):
    checkpoint_type: Literal["CONFIGURED", "FULL", "INCREMENTAL"] | None = field(name="checkpointType", default=None)
    trigger_id: str | None = field(name="triggerId", default=None)


class Counts(Struct, kw_only=True, frozen=True):
    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class CompletedCheckpointStatistics(CheckpointStatistics, kw_only=True, frozen=True):
    external_path: str
    discarded: bool


class FailedCheckpointStatistics(CheckpointStatistics, kw_only=True, frozen=True):
    failure_timestamp: int
    failure_message: str


class RestoredCheckpointStatistics(Struct, kw_only=True, frozen=True):
    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str


class LatestCheckpoints(Struct, kw_only=True, frozen=True):
    completed: CompletedCheckpointStatistics | None
    savepoint: CompletedCheckpointStatistics | None
    failed: FailedCheckpointStatistics | None
    restored: RestoredCheckpointStatistics | None


class Summary(Struct, kw_only=True, frozen=True):
    checkpointed_size: StatsSummaryDto
    state_size: StatsSummaryDto
    end_to_end_duration: StatsSummaryDto
    alignment_buffered: StatsSummaryDto
    processed_data: StatsSummaryDto
    persisted_data: StatsSummaryDto


class CheckpointingStatistics(Struct, kw_only=True, frozen=True):
    counts: Counts
    summary: Summary
    latest: LatestCheckpoints
    history: list[CheckpointStatistics]


class ClusterOverviewWithVersion(Struct, kw_only=True, frozen=True):
    taskmanagers: int
    slots_total: int = field(name="slots-total")
    slots_available: int = field(name="slots-available")
    taskmanagers_blocked: int = field(name="taskmanagers-blocked")
    slots_free_and_blocked: int = field(name="slots-free-and-blocked")
    jobs_running: int = field(name="jobs-running")
    jobs_finished: int = field(name="jobs-finished")
    jobs_cancelled: int = field(name="jobs-cancelled")
    jobs_failed: int = field(name="jobs-failed")
    flink_version: str = field(name="flink-version")
    flink_commit: str = field(name="flink-commit")


class ConfigurationInfoEntry(Struct, kw_only=True, frozen=True):
    key: str
    value: str


class Features(Struct, kw_only=True, frozen=True):
    web_submit: bool = field(name="web-submit")
    web_cancel: bool = field(name="web-cancel")
    web_rescale: bool = field(name="web-rescale")
    web_history: bool = field(name="web-history")


class DashboardConfiguration(Struct, kw_only=True, frozen=True):
    refresh_interval: int = field(name="refresh-interval")
    timezone_name: str = field(name="timezone-name")
    timezone_offset: int = field(name="timezone-offset")
    flink_version: str = field(name="flink-version")
    flink_revision: str = field(name="flink-revision")
    features: Features


class DistributedCacheFile(Struct, kw_only=True, frozen=True):
    entry_name: str = field(name="entryName")
    file_name: str = field(name="fileName")


class JVMInfo(Struct, kw_only=True, frozen=True):
    version: str
    arch: str
    options: list[str]


class EnvironmentInfo(Struct, kw_only=True, frozen=True):
    jvm: JVMInfo
    classpath: list[str]


class ExceptionInfo(Struct, kw_only=True, frozen=True):
    exception_name: str = field(name="exceptionName")
    stacktrace: str
    timestamp: int
    failure_labels: dict[str, str] = field(name="failureLabels")
    task_name: str = field(name="taskName")
    endpoint: str
    task_manager_id: str = field(name="taskManagerId")


class GarbageCollectorInfo(Struct, kw_only=True, frozen=True):
    name: str
    count: int
    time: int


class HardwareDescription(Struct, kw_only=True, frozen=True):
    cpu_cores: int = field(name="cpuCores")
    physical_memory: int = field(name="physicalMemory")
    free_memory: int = field(name="freeMemory")
    managed_memory: int = field(name="managedMemory")


class IOMetricsInfo(Struct, kw_only=True, frozen=True):
    read_bytes: int = field(name="read-bytes")
    read_bytes_complete: bool = field(name="read-bytes-complete")
    write_bytes: int = field(name="write-bytes")
    write_bytes_complete: bool = field(name="write-bytes-complete")
    read_records: int = field(name="read-records")
    read_records_complete: bool = field(name="read-records-complete")
    write_records: int = field(name="write-records")
    write_records_complete: bool = field(name="write-records-complete")
    accumulated_backpressured_time: int = field(name="accumulated-backpressured-time")
    accumulated_idle_time: int = field(name="accumulated-idle-time")
    accumulated_busy_time: float = field(name="accumulated-busy-time")


class Input(Struct, kw_only=True, frozen=True):
    id: str
    num: int
    exchange: str
    ship_strategy: str
    local_strategy: str
    caching: str


class JarEntryInfo(Struct, kw_only=True, frozen=True):
    name: str
    description: str


class JarFileInfo(Struct, kw_only=True, frozen=True):
    id: str
    name: str
    uploaded: int
    entry: list[JarEntryInfo]


class JarListInfo(Struct, kw_only=True, frozen=True):
    address: str
    files: list[JarFileInfo]


class JarPlanRequestBody(Struct, kw_only=True, frozen=True):
    entry_class: str | None = field(name="entryClass", default=None)
    program_args_list: list[str] | None = field(name="programArgsList", default=None)
    parallelism: int | None = None
    job_id: str | None = field(name="jobId", default=None)
    flink_configuration: dict[str, str] | None = field(name="flinkConfiguration", default=None)


class JarRunRequestBody(Struct, kw_only=True, frozen=True):
    entry_class: str | None = field(name="entryClass", default=None)
    program_args_list: list[str] | None = field(name="programArgsList", default=None)
    parallelism: int | None = None
    job_id: str | None = field(name="jobId", default=None)
    allow_non_restored_state: bool | None = field(name="allowNonRestoredState", default=None)
    savepoint_path: str | None = field(name="savepointPath", default=None)
    restore_mode: Literal["CLAIM", "NO_CLAIM", "LEGACY"] | None = field(name="restoreMode", default=None)
    claim_mode: Literal["CLAIM", "NO_CLAIM", "LEGACY"] | None = field(name="claimMode", default=None)
    flink_configuration: dict[str, str] | None = field(name="flinkConfiguration", default=None)


class JarRunResponseBody(Struct, kw_only=True, frozen=True):
    jobid: str
    application_id: str = field(name="applicationId")


class JarUploadResponseBody(Struct, kw_only=True, frozen=True):
    filename: str
    status: Literal["success"]


class UserTaskAccumulator(Struct, kw_only=True, frozen=True):
    name: str
    type: str
    value: str


class JobAccumulatorsInfo(Struct, kw_only=True, frozen=True):
    job_accumulators: list[dict[str, Any]] = field(name="job-accumulators")
    user_task_accumulators: list[UserTaskAccumulator] = field(name="user-task-accumulators")
    serialized_user_task_accumulators: dict[str, Any] = field(name="serialized-user-task-accumulators")


class JobClientHeartbeatRequestBody(Struct, kw_only=True, frozen=True):
    expired_timestamp: int | None = field(name="expiredTimestamp", default=None)


class JobDetails(Struct, kw_only=True, frozen=True):
    jid: str
    name: str
    job_type: Literal["BATCH", "STREAMING"] = field(name="jobType")
    scheduler_type: Literal["Default", "Adaptive", "AdaptiveBatch"] = field(name="schedulerType")
    start_time: int = field(name="start-time")
    end_time: int = field(name="end-time")
    duration: int
    state: JobState
    last_modification: int = field(name="last-modification")
    tasks: dict[str, int]
    pending_operators: int = field(name="pending-operators")


class JobVertexDetailsInfo(Struct, kw_only=True, frozen=True):
    id: str
    slot_sharing_group_id: str = field(name="slotSharingGroupId")
    name: str
    max_parallelism: int = field(name="maxParallelism")
    parallelism: int
    status: TaskState
    start_time: int = field(name="start-time")
    end_time: int = field(name="end-time")
    duration: int
    tasks: dict[str, int]
    metrics: IOMetricsInfo


class Node(Struct, kw_only=True, frozen=True):
    id: str
    operator: str
    parallelism: int
    operator_strategy: str
    description: str
    optimizer_properties: dict[str, Any]
    inputs: list[Input]


class Plan(Struct, kw_only=True, frozen=True):
    jid: str
    name: str
    type: str
    nodes: list[Node]


class JobDetailsInfo(Struct, kw_only=True, frozen=True):
    jid: str
    application_id: str = field(name="application-id")
    name: str
    is_stoppable: bool = field(name="isStoppable")
    state: JobState
    job_type: Literal["BATCH", "STREAMING"] = field(name="job-type")
    scheduler_type: Literal["Default", "Adaptive", "AdaptiveBatch"] = field(name="schedulerType")
    start_time: int = field(name="start-time")
    end_time: int = field(name="end-time")
    duration: int
    max_parallelism: int = field(name="maxParallelism")
    now: int
    timestamps: dict[str, int]
    vertices: list[JobVertexDetailsInfo]
    status_counts: dict[str, int] = field(name="status-counts")
    plan: Plan
    stream_graph: msgspec.Raw = field(name="stream-graph")
    pending_operators: int = field(name="pending-operators")


class RootExceptionInfo(ExceptionInfo, kw_only=True, frozen=True):
    concurrent_exceptions: list[ExceptionInfo] = field(name="concurrentExceptions")


class JobExceptionHistory(Struct, kw_only=True, frozen=True):
    entries: list[RootExceptionInfo]
    truncated: bool


class JobExceptionsInfoWithHistory(Struct, kw_only=True, frozen=True):
    exception_history: JobExceptionHistory = field(name="exceptionHistory")


class JobExecutionResultResponseBody(Struct, kw_only=True, frozen=True):
    status: QueueStatus
    job_execution_result: Any = field(name="job-execution-result")


class JobIdWithStatus(Struct, kw_only=True, frozen=True):
    id: str
    status: JobState


class JobIdsWithStatusOverview(Struct, kw_only=True, frozen=True):
    jobs: list[JobIdWithStatus]


class JobPlanInfo(Struct, kw_only=True, frozen=True):
    plan: Plan


class SchedulerStateSpan(Struct, kw_only=True, frozen=True):
    state: str
    enter_timestamp_in_millis: int = field(name="enterTimestampInMillis")
    leave_timestamp_in_millis: int = field(name="leaveTimestampInMillis")
    duration_in_millis: int = field(name="durationInMillis")
    stringified_exception: str = field(name="stringifiedException")


class ResourceProfileInfo(Struct, kw_only=True, frozen=True):
    cpu_cores: float = field(name="cpuCores")
    task_heap_memory: int = field(name="taskHeapMemory")
    task_off_heap_memory: int = field(name="taskOffHeapMemory")
    managed_memory: int = field(name="managedMemory")
    network_memory: int = field(name="networkMemory")
    extended_resources: dict[str, float] = field(name="extendedResources")


class SlotSharingGroupRescaleInfo(Struct, kw_only=True, frozen=True):
    slot_sharing_group_id: str = field(name="slotSharingGroupId")
    slot_sharing_group_name: str = field(name="slotSharingGroupName")
    request_resource_profile: ResourceProfileInfo = field(name="requestResourceProfile")
    desired_slots: int = field(name="desiredSlots")
    minimal_required_slots: int = field(name="minimalRequiredSlots")
    pre_rescale_slots: int = field(name="preRescaleSlots")
    post_rescale_slots: int = field(name="postRescaleSlots")
    acquired_resource_profile: ResourceProfileInfo = field(name="acquiredResourceProfile")


class VertexParallelismRescaleInfo(Struct, kw_only=True, frozen=True):
    job_vertex_id: str = field(name="jobVertexId")
    job_vertex_name: str = field(name="jobVertexName")
    slot_sharing_group_id: str = field(name="slotSharingGroupId")
    slot_sharing_group_name: str = field(name="slotSharingGroupName")
    desired_parallelism: int = field(name="desiredParallelism")
    sufficient_parallelism: int = field(name="sufficientParallelism")
    pre_rescale_parallelism: int = field(name="preRescaleParallelism")
    post_rescale_parallelism: int = field(name="postRescaleParallelism")


class JobRescaleDetails(Struct, kw_only=True, frozen=True):
    rescale_uuid: str = field(name="rescaleUuid")
    resource_requirements_uuid: str = field(name="resourceRequirementsUuid")
    rescale_attempt_id: int = field(name="rescaleAttemptId")
    vertices: dict[str, VertexParallelismRescaleInfo]
    slots: dict[str, SlotSharingGroupRescaleInfo]
    scheduler_states: list[SchedulerStateSpan] = field(name="schedulerStates")
    start_timestamp_in_millis: int = field(name="startTimestampInMillis")
    end_timestamp_in_millis: int = field(name="endTimestampInMillis")
    terminal_state: Literal["COMPLETED", "FAILED", "IGNORED"] = field(name="terminalState")
    trigger_cause: Literal[
        "INITIAL_SCHEDULE", "UPDATE_REQUIREMENT", "NEW_RESOURCE_AVAILABLE", "RECOVERABLE_FAILOVER"
    ] = field(name="triggerCause")
    terminated_reason: Literal[
        "SUCCEEDED",
        "EXCEPTION_OCCURRED",
        "RESOURCE_REQUIREMENTS_UPDATED",
        "NO_RESOURCES_OR_PARALLELISMS_CHANGE",
        "JOB_FINISHED",
        "JOB_FAILED",
        "JOB_CANCELED",
        "JOB_FAILOVER_RESTARTING",
    ] = field(name="terminatedReason")


class LatestRescales(Struct, kw_only=True, frozen=True):
    completed: JobRescaleDetails | None
    failed: JobRescaleDetails | None
    ignored: JobRescaleDetails | None


class RescalesCounts(Struct, kw_only=True, frozen=True):
    ignored: int
    in_progress: int = field(name="inProgress")
    completed: int
    failed: int


class JobRescalesOverview(Struct, kw_only=True, frozen=True):
    rescales_counts: RescalesCounts = field(name="rescalesCounts")
    latest: LatestRescales


class Parallelism(Struct, kw_only=True, frozen=True):
    lower_bound: int = field(name="lowerBound")
    upper_bound: int = field(name="upperBound")


class JobVertexResourceRequirements(Struct, kw_only=True, frozen=True):
    parallelism: Parallelism


class JobResourceRequirementsBody(Struct, kw_only=True, frozen=True):
    job_vertex_resource_requirements: dict[str, JobVertexResourceRequirements] = field(
        name="jobVertexResourceRequirements"
    )


class JobStatusInfo(Struct, kw_only=True, frozen=True):
    status: JobState


class JobSubmitRequestBody(Struct, kw_only=True, frozen=True):
    execution_plan_file_name: str | None = field(name="executionPlanFileName", default=None)
    job_jar_file_names: list[str] | None = field(name="jobJarFileNames", default=None)
    job_artifact_file_names: list[DistributedCacheFile] | None = field(name="jobArtifactFileNames", default=None)


class JobSubmitResponseBody(Struct, kw_only=True, frozen=True):
    job_url: str = field(name="jobUrl")


class UserAccumulator(Struct, kw_only=True, frozen=True):
    name: str
    type: str
    value: str


class JobVertexAccumulatorsInfo(Struct, kw_only=True, frozen=True):
    id: str
    user_accumulators: list[UserAccumulator] = field(name="user-accumulators")


class SubtaskBackPressureInfo(Struct, kw_only=True, frozen=True):
    subtask: int
    attempt_number: int = field(name="attempt-number")
    backpressure_level: Literal["ok", "low", "high"] = field(name="backpressureLevel")
    ratio: float
    idle_ratio: float = field(name="idleRatio")
    busy_ratio: float = field(name="busyRatio")
    other_concurrent_attempts: list[SubtaskBackPressureInfo] = field(name="other-concurrent-attempts")
    backpressure_level_: Literal["ok", "low", "high"] = field(name="backpressure-level")


class JobVertexBackPressureInfo(Struct, kw_only=True, frozen=True):
    status: Literal["deprecated", "ok"]
    backpressure_level: Literal["ok", "low", "high"] = field(name="backpressureLevel")
    end_timestamp: int = field(name="end-timestamp")
    subtasks: list[SubtaskBackPressureInfo]
    backpressure_level_: Literal["ok", "low", "high"] = field(name="backpressure-level")


class TaskManagersInfo(Struct, kw_only=True, frozen=True):
    endpoint: str
    status: TaskState
    start_time: int = field(name="start-time")
    end_time: int = field(name="end-time")
    duration: int
    metrics: IOMetricsInfo
    status_counts: dict[str, int] = field(name="status-counts")
    taskmanager_id: str = field(name="taskmanager-id")
    aggregated: AggregatedTaskDetailsInfo


class JobVertexTaskManagersInfo(Struct, kw_only=True, frozen=True):
    id: str
    name: str
    now: int
    taskmanagers: list[TaskManagersInfo]


class LogInfo(Struct, kw_only=True, frozen=True):
    name: str
    size: int
    mtime: int


class LogListInfo(Struct, kw_only=True, frozen=True):
    logs: list[LogInfo]


class LogUrlResponse(Struct, kw_only=True, frozen=True):
    url: str


class MultipleJobsDetails(Struct, kw_only=True, frozen=True):
    jobs: list[JobDetails]


class SavepointDisposalRequest(Struct, kw_only=True, frozen=True):
    savepoint_path: str = field(name="savepoint-path")


class SavepointTriggerRequestBody(Struct, kw_only=True, frozen=True):
    target_directory: str | None = field(name="target-directory", default=None)
    cancel_job: bool | None = field(name="cancel-job", default=None)
    format_type: Literal["CANONICAL", "NATIVE"] | None = field(name="formatType", default=None)
    trigger_id: str | None = field(name="triggerId", default=None)


class SlotInfo(Struct, kw_only=True, frozen=True):
    job_id: str = field(name="jobId")
    resource: ResourceProfileInfo
    assigned_tasks: int = field(name="assignedTasks")


class StopWithSavepointRequestBody(Struct, kw_only=True, frozen=True):
    target_directory: str | None = field(name="targetDirectory", default=None)
    drain: bool | None = None
    format_type: Literal["CANONICAL", "NATIVE"] | None = field(name="formatType", default=None)
    trigger_id: str | None = field(name="triggerId", default=None)


class SubtaskAccumulatorsInfo(Struct, kw_only=True, frozen=True):
    subtask: int
    attempt: int
    endpoint: str
    user_accumulators: list[UserAccumulator] = field(name="user-accumulators")


class SubtaskCheckpointStatistics(Struct, kw_only=True, frozen=True):
    index: int
    status: str


class SubtaskExecutionAttemptAccumulatorsInfo(Struct, kw_only=True, frozen=True):
    subtask: int
    attempt: int
    id: str
    user_accumulators: list[UserAccumulator] = field(name="user-accumulators")


class SubtaskExecutionAttemptDetailsInfo(Struct, kw_only=True, frozen=True):
    subtask: int
    status: TaskState
    attempt: int
    endpoint: str
    start_time: int = field(name="start-time")
    end_time: int = field(name="end-time")
    duration: int
    metrics: IOMetricsInfo
    taskmanager_id: str = field(name="taskmanager-id")
    status_duration: dict[str, int] = field(name="status-duration")
    other_concurrent_attempts: list[SubtaskExecutionAttemptDetailsInfo] = field(name="other-concurrent-attempts")
    start_time_: int = field(name="start_time")


class SubtaskTimeInfo(Struct, kw_only=True, frozen=True):
    subtask: int
    endpoint: str
    duration: int
    timestamps: dict[str, int]


class SubtasksAllAccumulatorsInfo(Struct, kw_only=True, frozen=True):
    id: str
    parallelism: int
    subtasks: list[SubtaskAccumulatorsInfo]


class SubtasksTimesInfo(Struct, kw_only=True, frozen=True):
    id: str
    name: str
    now: int
    subtasks: list[SubtaskTimeInfo]


class TaskCheckpointStatisticsWithSubtaskDetailsSummary(Struct, kw_only=True, frozen=True):
    checkpointed_size: StatsSummaryDto
    state_size: StatsSummaryDto
    end_to_end_duration: StatsSummaryDto
    checkpoint_duration: CheckpointDuration
    alignment: CheckpointAlignment
    start_delay: StatsSummaryDto


class TaskCheckpointStatisticsWithSubtaskDetails(TaskCheckpointStatistics, kw_only=True, frozen=True):
    summary: TaskCheckpointStatisticsWithSubtaskDetailsSummary
    subtasks: list[SubtaskCheckpointStatistics]


class TaskExecutorMemoryConfiguration(Struct, kw_only=True, frozen=True):
    framework_heap: int = field(name="frameworkHeap")
    task_heap: int = field(name="taskHeap")
    framework_off_heap: int = field(name="frameworkOffHeap")
    task_off_heap: int = field(name="taskOffHeap")
    network_memory: int = field(name="networkMemory")
    managed_memory: int = field(name="managedMemory")
    jvm_metaspace: int = field(name="jvmMetaspace")
    jvm_overhead: int = field(name="jvmOverhead")
    total_flink_memory: int = field(name="totalFlinkMemory")
    total_process_memory: int = field(name="totalProcessMemory")


class TaskManagerMetricsInfo(Struct, kw_only=True, frozen=True):
    heap_used: int = field(name="heapUsed")
    heap_committed: int = field(name="heapCommitted")
    heap_max: int = field(name="heapMax")
    non_heap_used: int = field(name="nonHeapUsed")
    non_heap_committed: int = field(name="nonHeapCommitted")
    non_heap_max: int = field(name="nonHeapMax")
    direct_count: int = field(name="directCount")
    direct_used: int = field(name="directUsed")
    direct_max: int = field(name="directMax")
    mapped_count: int = field(name="mappedCount")
    mapped_used: int = field(name="mappedUsed")
    mapped_max: int = field(name="mappedMax")
    netty_shuffle_memory_segments_available: int = field(name="nettyShuffleMemorySegmentsAvailable")
    netty_shuffle_memory_segments_used: int = field(name="nettyShuffleMemorySegmentsUsed")
    netty_shuffle_memory_segments_total: int = field(name="nettyShuffleMemorySegmentsTotal")
    netty_shuffle_memory_available: int = field(name="nettyShuffleMemoryAvailable")
    netty_shuffle_memory_used: int = field(name="nettyShuffleMemoryUsed")
    netty_shuffle_memory_total: int = field(name="nettyShuffleMemoryTotal")
    garbage_collectors: list[GarbageCollectorInfo] = field(name="garbageCollectors")


class TaskManagerInfo(Struct, kw_only=True, frozen=True):
    id: str
    path: str
    data_port: int = field(name="dataPort")
    jmx_port: int = field(name="jmxPort")
    time_since_last_heartbeat: int = field(name="timeSinceLastHeartbeat")
    slots_number: int = field(name="slotsNumber")
    free_slots: int = field(name="freeSlots")
    assigned_tasks: int = field(name="assignedTasks")
    total_resource: ResourceProfileInfo = field(name="totalResource")
    free_resource: ResourceProfileInfo = field(name="freeResource")
    hardware: HardwareDescription
    memory_configuration: TaskExecutorMemoryConfiguration = field(name="memoryConfiguration")
    blocked: bool


class TaskManagerDetailsInfo(TaskManagerInfo, kw_only=True, frozen=True):
    allocated_slots: list[SlotInfo] = field(name="allocatedSlots")
    metrics: TaskManagerMetricsInfo


class ThreadInfo(Struct, kw_only=True, frozen=True):
    thread_name: str = field(name="threadName")
    stringified_thread_info: str = field(name="stringifiedThreadInfo")


class ThreadDumpInfo(Struct, kw_only=True, frozen=True):
    thread_infos: list[ThreadInfo] = field(name="threadInfos")


class TriggerResponse(Struct, kw_only=True, frozen=True):
    request_id: str = field(name="request-id")


class VertexFlameGraphNode(Struct, kw_only=True, frozen=True):
    name: str
    value: int
    children: list[VertexFlameGraphNode]


class VertexFlameGraph(Struct, kw_only=True, frozen=True):
    end_timestamp: int = field(name="endTimestamp")
    data: VertexFlameGraphNode


class VertexDetailsInfo(Struct, kw_only=True, frozen=True):
    id: str
    name: str
    parallelism: int
    max_parallelism: int = field(name="maxParallelism")
    now: int
    subtasks: list[SubtaskExecutionAttemptDetailsInfo]
    aggregated: AggregatedTaskDetailsInfo


class TaskManagersOverview(Struct, kw_only=True, frozen=True):
    taskmanagers: list[TaskManagerInfo]
