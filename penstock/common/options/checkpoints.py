"""Options for checkpoints and savepoints."""

from __future__ import annotations

from penstock.common.options.definition import option, optional
from penstock.common.setting_types import Choice, Length, Size, Text, Truth, Whole

CHECKPOINT_INTERVAL = optional(
    "execution.checkpointing.interval",
    Length(),
    "off",
    "Time between checkpoints, e.g. `10 s`. Setting it enables checkpointing.",
)
CHECKPOINTING_MODE = option(
    "execution.checkpointing.mode",
    Choice("EXACTLY_ONCE", "AT_LEAST_ONCE"),
    "EXACTLY_ONCE",
    "`AT_LEAST_ONCE` lets sinks write before the checkpoint is complete.",
)
CHECKPOINT_TIMEOUT = option(
    "execution.checkpointing.timeout", Length(1), "10 min", "Time after which a pending checkpoint expires."
)
MIN_PAUSE = option(
    "execution.checkpointing.min-pause",
    Length(),
    "0 ms",
    "Minimum time between the end of a checkpoint and the next barrier.",
)
MAX_CONCURRENT_CHECKPOINTS = option(
    "execution.checkpointing.max-concurrent-checkpoints",
    Whole(),
    "1",
    "Only 1 is supported: each epoch builds on the previous one.",
)
TOLERABLE_FAILED_CHECKPOINTS = option(
    "execution.checkpointing.tolerable-failed-checkpoints",
    Whole(),
    "0",
    "How many times an epoch that expired is retried in place before the restart strategy takes over.",
)
CHECKPOINT_RETENTION = option(
    "execution.checkpointing.externalized-checkpoint-retention",
    Choice(
        "RETAIN_ON_CANCELLATION",
        "DELETE_ON_CANCELLATION",
        "NO_EXTERNALIZED_CHECKPOINTS",
        also={"NO_EXTERNALIZED": "NO_EXTERNALIZED_CHECKPOINTS"},
    ),
    "NO_EXTERNALIZED_CHECKPOINTS",
    "`RETAIN_ON_CANCELLATION` keeps the checkpoints after the job has ended; also `DELETE_ON_CANCELLATION`.",
)
CHECKPOINT_STORAGE = optional(
    "execution.checkpointing.storage",
    Choice("filesystem", "jobmanager"),
    "`filesystem` if `state.checkpoints.dir` is set",
    "`jobmanager` keeps checkpoints and state in memory, even if a directory is set.",
    aliases=("state.checkpoint-storage",),
)
RETAINED_CHECKPOINTS = option(
    "execution.checkpointing.num-retained",
    Whole(1),
    "1",
    "Number of completed checkpoints to keep.",
    aliases=("state.checkpoints.num-retained",),
)
BASE_MIN_BYTES = option(
    "penstock.checkpoint.base.min-bytes",
    Size(),
    "1048576",
    "Write a new base for a sixteenth of an operator's key groups only when their deltas exceed this size. A smaller "
    "block needs proportionally less.",
)
UNNAMED_DIRECTORY = option(
    "penstock.checkpoint.unnamed-directory",
    Choice("refuse", "adopt", "ignore"),
    "refuse",
    "What to do with checkpoints of an earlier version that could belong to this job or to one with a similar name: "
    "`adopt` them, `ignore` them, or `refuse` to start.",
)
CHECKPOINTS_DIRECTORY = option(
    "state.checkpoints.dir",
    Text(),
    "",
    "Checkpoint directory: a path, or a URI such as `s3://bucket/path`.",
    aliases=("execution.checkpointing.dir", "state.checkpoint.dir", "state.backend.fs.checkpointdir"),
    default_text="none",
)
STORE_OPTIONS = "state.checkpoints.fs."
"""Settings with this prefix are passed to the checkpoint store."""
STORE_OPTION = option(
    f"{STORE_OPTIONS}*",
    Text(),
    "",
    "Options of the stores that hold checkpoints and savepoints, such as `state.checkpoints.fs.endpoint_url`. "
    "Their values are never printed.",
    default_text="none",
)
SAVEPOINTS_DIRECTORY = option(
    "state.savepoints.dir",
    Text(),
    "",
    "Default directory for savepoints.",
    aliases=("execution.checkpointing.savepoint-dir", "state.savepoint.dir", "savepoints.state.backend.fs.dir"),
    default_text="none",
)
RECOVERY_PATH = option(
    "execution.state-recovery.path",
    Text(),
    "",
    "Savepoint to start the job from.",
    aliases=("execution.savepoint.path",),
    default_text="none",
)
CLAIM_MODE = option(
    "execution.state-recovery.claim-mode",
    Choice("CLAIM", "NO_CLAIM", also={"LEGACY": "NO_CLAIM"}),
    "NO_CLAIM",
    "`CLAIM`: the job owns the savepoint it starts from, and removes it after its own first checkpoint.",
    aliases=("execution.savepoint-restore-mode",),
)
IGNORE_UNCLAIMED_STATE = option(
    "execution.state-recovery.ignore-unclaimed-state",
    Truth(),
    "false",
    "`true`: drop savepoint state that belongs to no operator of the program.",
    aliases=("execution.savepoint.ignore-unclaimed-state",),
)
