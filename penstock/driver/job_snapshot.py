"""A snapshot of a job: everything that the REST interface and the web page show of it, at one moment.

A JobManager pushes a snapshot to the Dispatcher when it changes. The Dispatcher makes one from the job's records while
no process runs the job, so every field except id, name and state has a default. The last snapshot of an ended job is
stored as its history. Structs that occur once per subtask are arrays: append fields to them, and never reorder.

Times ending in `_ms` are milliseconds since 1970, or durations in milliseconds. -1 stands for a time that has not come.
"""

from __future__ import annotations

import msgspec

Number = int | float


class HeaviestKey(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A key that many records of a subtask have, according to a sample of the last epoch."""

    group: int
    """Its key group."""
    key: str = ""
    """The key as Python writes it, shortened; empty if it is very long, or if the page shows no state."""
    share: float = 0.0
    """About which share of the subtask's records has it."""


class SubtaskSnapshot(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One subtask of a vertex. Counts cover the epochs that this driver completed."""

    state: str = "CREATED"
    """The name of a task state of Flink."""
    host: str = ""
    executor: str = ""
    """Spark's id of the executor that ran the last epoch; empty if it is unknown."""
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy_ms: float = 0.0
    idle_ms: float = 0.0
    backpressured_ms: float = 0.0
    busy: float = 0.0
    """Share of the last epoch's cycle, from 0 to 1; see `driver/vertex_log.py`."""
    backpressured: float = 0.0
    records_in_rate: float = 0.0
    """Records per second in the last epoch's cycle."""
    records_out_rate: float = 0.0
    bytes_in_rate: float = 0.0
    bytes_out_rate: float = 0.0
    watermark: int | None = None
    """None before the first watermark."""
    heaviest: list[HeaviestKey] = []
    """The keys with the largest share of the records, in a chain that is partitioned by key."""


class VertexInput(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An exchange that a vertex reads."""

    vertex: str
    strategy: str
    """FORWARD, HASH, REBALANCE, …"""


class OperatorFacts(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One operator or source of a vertex."""

    uid: str
    name: str
    kind: str


class VertexSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One vertex: a chain of operators that run in the same task."""

    id: str
    """32 hexadecimal digits, derived from the uid of its first operator."""
    uid: str
    name: str
    level: int = 0
    """Spark's stages run one after the other, level by level. Sources are level 0."""
    parallelism: int = 1
    max_parallelism: int = -1
    operators: list[OperatorFacts] = []
    inputs: list[VertexInput] = []
    subtasks: list[SubtaskSnapshot] = []
    tasks: dict[str, int] = {}
    """Number of subtasks in each state."""
    state: str = "CREATED"
    totals: SubtaskSnapshot = SubtaskSnapshot()
    """Sums over all subtasks, with those that a rescale removed."""
    metrics: dict[str, list[Number | None]] = {}
    """Metrics by `<operator uid>.<name>`, with one value per subtask: those of Penstock and of user functions."""
    driver_metrics: dict[str, Number] = {}
    """Metrics of the whole vertex, which the driver measures, such as the credits of a source."""
    counters: dict[str, list[int | None]] = {}
    """Counters of user functions by `<operator uid>.<name>`, with one value per subtask: Flink's accumulators."""


class CheckpointSummary(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Minimum, maximum, mean and percentiles of a number of values."""

    min: int = 0
    max: int = 0
    avg: int = 0
    p50: float = 0.0
    p90: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    p999: float = 0.0


class TaskCheckpoint(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The part of one vertex in a checkpoint."""

    vertex: str
    subtasks: int
    missing: list[int] = []
    """Subtasks that have not acknowledged, or had not when the checkpoint failed."""
    latest_ack_ms: int = -1
    checkpointed_bytes: int = 0
    """Bytes written for this checkpoint."""
    state_bytes: int = 0
    """Bytes of the complete state."""
    duration_ms: int = 0
    """From the trigger to the last acknowledgement."""
    checkpointed: CheckpointSummary = CheckpointSummary()
    """This and the following values, over the subtasks."""
    state: CheckpointSummary = CheckpointSummary()
    duration: CheckpointSummary = CheckpointSummary()
    sync_duration: CheckpointSummary = CheckpointSummary()
    """Time to write the state, at the end of the task."""
    start_delay: CheckpointSummary = CheckpointSummary()
    """From the trigger to the start of the task."""
    align_ms: int = 0
    """Longest time that a subtask took to receive the buffers of all channels, up to their barriers."""
    upload_ms: int = 0
    """Longest time that the checkpoint storage took, which is a part of `sync_duration`."""

    @property
    def acknowledged(self) -> int:
        """Number of subtasks that have acknowledged."""
        return self.subtasks - len(self.missing)


class CheckpointSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint or savepoint."""

    id: int
    status: str
    """IN_PROGRESS, COMPLETED or FAILED."""
    savepoint: bool = False
    ends_job: bool = False
    """Whether the job was stopped with this savepoint."""
    triggered_ms: int = 0
    latest_ack_ms: int = -1
    duration_ms: int = 0
    checkpointed_bytes: int = 0
    state_bytes: int = 0
    subtasks: int = 0
    acknowledged: int = 0
    tasks: list[TaskCheckpoint] = []
    path: str = ""
    """Path of a savepoint. Empty for a checkpoint, which only its own job resumes from."""
    failed_ms: int = -1
    failure: str = ""
    publish_ms: int = -1
    """Time to publish the manifest, which completes the checkpoint; -1 if it is not known."""
    commit_ms: int = -1
    """Time in which the epoch waited for its sinks to commit; -1 if it is not known."""


class RestoredCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint or savepoint that the job last resumed from."""

    id: int
    restored_ms: int
    savepoint: bool = False
    path: str = ""


class CheckpointsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints and savepoints of a job since its driver started."""

    restored: int = 0
    """How often the job resumed from a checkpoint."""
    completed: int = 0
    failed: int = 0
    in_progress: int = 0
    latest_completed: CheckpointSnapshot | None = None
    """This and the next two have no tasks if the history contains them."""
    latest_savepoint: CheckpointSnapshot | None = None
    latest_failed: CheckpointSnapshot | None = None
    latest_restored: RestoredCheckpoint | None = None
    history: list[CheckpointSnapshot] = []
    """The most recent ones, newest first."""
    checkpointed: CheckpointSummary = CheckpointSummary()
    """This and the following values, over the recent completed checkpoints."""
    state: CheckpointSummary = CheckpointSummary()
    duration: CheckpointSummary = CheckpointSummary()


class CheckpointFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint settings of a job."""

    enabled: bool = False
    exactly_once: bool = True
    interval_ms: int = 0
    timeout_ms: int = 0
    min_pause_ms: int = 0
    tolerable_failures: int = 0
    retained: bool = False
    """Whether checkpoints outlive a cancelled job."""
    backend: str = ""
    storage: str = ""
    """Location of the checkpoints; empty if they are in the driver's memory."""


class ExceptionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A failure of the job, or the loss of its process. Each caused a restart, or the end of the job."""

    name: str
    message: str = ""
    trace: str = ""
    at_ms: int = 0
    attempt: int = 0
    """The attempt of the cluster, from 1; 0 for a program run by hand."""
    restart: int = 0
    """How often the restart strategy had restarted the job before."""
    task: str = ""
    """The vertex and subtask that failed, as in `Map (2/4)`; empty if the failure belongs to no task."""
    host: str = ""
    executor: str = ""
    concurrent: list[ExceptionSnapshot] = []
    """Failures of other tasks in the same epoch, or the first eight of them."""


class EpochSnapshot(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One completed epoch."""

    number: int
    records: int
    duration_ms: float
    cycle_ms: float
    state_bytes: int
    ended_ms: int
    stages_ms: list[float] = []
    """Time of each level's tasks, and finally of the commit."""


class ExecutorSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """An executor that Spark runs for the job."""

    id: str
    """Spark's id, unique within the application."""
    address: str = ""
    """Host and port."""
    cores: int = 0
    slots: int = 0
    """Tasks that it can run concurrently."""
    active_tasks: int = 0
    excluded: bool = False
    """Whether Spark gives it no tasks, because too many failed there."""
    heap_max: int = 0
    heap_used: int = 0
    heap_committed: int = 0
    storage_memory_max: int = 0
    storage_memory_used: int = 0
    off_heap_used: int = 0
    physical_memory: int = 0
    seen_ms: int = 0
    """When Spark last reported it."""
    python_memory: int = 0
    """Memory of the Python workers that ran tasks lately."""
    python_workers: int = 0
    disk_total: int = 0
    """Size of the file system that holds the replicas; 0 if it is not known."""
    disk_free: int = 0
    collectors: dict[str, tuple[int, int]] = {}
    """Number of collections and their total time, by name of the garbage collector."""
    blocks: int = 0
    """Blocks of keyed state of the subtasks that it ran last. It has a replica of each."""
    block_bytes: int = 0
    """Bytes of these blocks in the last checkpoint."""
    standby_blocks: int = 0
    """Blocks of subtasks of other executors that it follows, to take them over."""
    standby_bytes: int = 0
    host: str = ""
    """The name that its host has for itself; empty before the first epoch."""
    directory: str = ""
    """The working directory of its Python workers; empty if they run in the driver."""
    logs: dict[str, str] = {}
    """The addresses of Spark's pages with its logs, such as `stderr`, by name; none for an executor in the driver."""


class SlotsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of a job."""

    needed: int = 0
    available: int = 0
    waits: bool = False
    """Whether the job now waits for missing slots."""
    takes_turns: bool = False
    """Whether tasks of the job now take turns, because slots are missing and the job does not wait for them."""


class Operation(msgspec.Struct, tag="operation", frozen=True, kw_only=True):
    """A long operation on a job, by the id that its client chose."""

    trigger_id: str
    kind: str = ""
    """The kind of a request to the job: savepoint, stop (also a cancellation with a savepoint), cancel, rescale or
    checkpoint. Empty for other operations, and for those of processes of earlier versions.
    """
    done: bool = False
    savepoint: str = ""
    checkpoint: int = -1
    failure_kind: str = ""
    """The class of the error; empty if the operation succeeded or is in progress."""
    failure: str = ""
    fix: str = ""
    """What to do about the failure; empty if the error does not say it."""


class JobSnapshot(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot"):
    """One job at one moment."""

    id: str
    name: str
    state: str
    """The name of a JobStatus, or INITIALIZING."""
    attempt: int = 0
    """The attempt of the cluster, from 1; 0 for a program run by hand."""
    started_ms: int = 0
    """When the job was submitted."""
    ended_ms: int = -1
    """When the job ended."""
    state_since_ms: dict[str, int] = {}
    """When the job last entered each state."""
    restarts: int = 0
    """How often the restart strategy or the cluster restarted the job."""
    reason: str = ""
    """Why the job failed or waits."""
    savepoint: str = ""
    """The savepoint that the job was stopped with."""
    operations: list[Operation] = []
    """Operations that clients can poll, oldest first."""
    taken_ms: int = 0
    """When the snapshot was taken."""
    batch: bool = False
    stoppable: bool = False
    """Whether the job can be stopped with a savepoint now."""
    application: str = ""
    """Spark's id of the application."""
    parallelism: int = -1
    max_parallelism: int = -1
    tasks_since_ms: dict[str, int] = {}
    """When the tasks of this restart entered each task state."""
    vertices: list[VertexSnapshot] = []
    """In topological order."""
    plan: str = "{}"
    """The operators of the program as JSON, in the format of Flink's plan visualizer."""
    epochs: int = 0
    """Number of the last completed epoch."""
    recent_epochs: list[EpochSnapshot] = []
    """The most recent ones, oldest first."""
    checkpoints: CheckpointsSnapshot = CheckpointsSnapshot()
    checkpointing: CheckpointFacts = CheckpointFacts()
    exceptions: list[ExceptionSnapshot] = []
    """The most recent ones, oldest first."""
    exceptions_dropped: int = 0
    """Number of older ones, which were dropped."""
    configuration: dict[str, str] = {}
    """Settings of the job, with secrets masked."""
    parameters: dict[str, str] = {}
    """The program's global job parameters, with secrets masked."""
    restart_strategy: str = ""
    slots: SlotsSnapshot = SlotsSnapshot()
    executors: list[ExecutorSnapshot] = []
