"""Options of checkpoints and savepoints."""

from __future__ import annotations

from penstock.common.options.definition import option, optional
from penstock.common.setting_types import Choice, Length, Size, Text, Truth, Whole

CHECKPOINT_INTERVAL = optional(
    "execution.checkpointing.interval", Length(), "off", "time between checkpoints, e.g. `10 s`; sets them on"
)
CHECKPOINTING_MODE = option(
    "execution.checkpointing.mode",
    Choice("EXACTLY_ONCE", "AT_LEAST_ONCE"),
    "EXACTLY_ONCE",
    "AT_LEAST_ONCE lets sinks write before the checkpoint is complete",
)
CHECKPOINT_TIMEOUT = option(
    "execution.checkpointing.timeout", Length(1), "10 min", "a checkpoint that takes longer is given up as expired"
)
MIN_PAUSE = option(
    "execution.checkpointing.min-pause",
    Length(),
    "0 ms",
    "least time from the end of a checkpoint to the next barrier",
)
MAX_CONCURRENT_CHECKPOINTS = option(
    "execution.checkpointing.max-concurrent-checkpoints", Whole(), "1", "only 1: an epoch builds on the one before"
)
TOLERABLE_FAILED_CHECKPOINTS = option(
    "execution.checkpointing.tolerable-failed-checkpoints",
    Whole(),
    "0",
    "how often an epoch that expired is run again in its place, before the restart strategy is asked",
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
    "RETAIN_ON_CANCELLATION keeps the checkpoints of a job that has ended; also DELETE_ON_CANCELLATION",
)
RETAINED_CHECKPOINTS = option(
    "execution.checkpointing.num-retained",
    Whole(1),
    "1",
    "completed checkpoints that stay usable",
    aliases=("state.checkpoints.num-retained",),
)
BASE_MIN_BYTES = option(
    "penstock.checkpoint.base.min-bytes", Size(), "1048576", "bytes of a block's deltas that are not worth a new base"
)
UNNAMED_DIRECTORY = option(
    "penstock.checkpoint.unnamed-directory",
    Choice("refuse", "adopt", "ignore"),
    "refuse",
    "checkpoints of an earlier version that can belong to this job or to another with a similar name: adopt or "
    "ignore them, or refuse to start",
)
CHECKPOINTS_DIRECTORY = option(
    "state.checkpoints.dir",
    Text(),
    "",
    "where checkpoints go: a path, or a URI such as `s3://bucket/path`",
    aliases=("execution.checkpointing.dir", "state.checkpoint.dir"),
    default_text="none",
)
STORE_OPTIONS = "state.checkpoints.fs."
"""What begins with this goes to the store of the checkpoints."""
STORE_OPTION = option(
    f"{STORE_OPTIONS}*",
    Text(),
    "",
    "options of the store at that URI, and of that with savepoints, such as "
    "`state.checkpoints.fs.endpoint_url`; never shown",
    default_text="none",
)
SAVEPOINTS_DIRECTORY = option(
    "state.savepoints.dir",
    Text(),
    "",
    "where savepoints go that are given no directory",
    aliases=("execution.checkpointing.savepoint-dir", "state.savepoint.dir"),
    default_text="none",
)
RECOVERY_PATH = option(
    "execution.state-recovery.path",
    Text(),
    "",
    "the savepoint that the job is to begin with",
    aliases=("execution.savepoint.path",),
    default_text="none",
)
CLAIM_MODE = option(
    "execution.state-recovery.claim-mode",
    Choice("CLAIM", "NO_CLAIM"),
    "NO_CLAIM",
    "CLAIM: that savepoint is removed when the job has a checkpoint of its own",
    aliases=("execution.savepoint-restore-mode",),
)
IGNORE_UNCLAIMED_STATE = option(
    "execution.state-recovery.ignore-unclaimed-state",
    Truth(),
    "false",
    "true: what of that savepoint has no operator in the program is left behind",
    aliases=("execution.savepoint.ignore-unclaimed-state",),
)
