"""A job's checkpoint settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.checkpoint.pins import PinLimits
from penstock.common.options.checkpoints import (
    BASE_MIN_BYTES,
    CHECKPOINT_TIMEOUT,
    CHECKPOINTING_MODE,
    MIN_PAUSE,
    RETAINED_CHECKPOINTS,
    TOLERABLE_FAILED_CHECKPOINTS,
)
from penstock.common.options.query import PIN_AGE, PIN_CHECKPOINTS, QUERYABLE_STATE
from penstock.common.options.state import ASYNCHRONOUS_SNAPSHOTS, MAX_STATE_SIZE, STANDBY_REPLICAS
from penstock.state.backends import Backend
from penstock.state.overlay import OVERLAY_BYTES

_NEVER_MS = 10 * 365 * 24 * 3600 * 1000


@dataclass
class Settings:
    """A job's checkpoint settings, built from the configuration."""

    backend: Backend = field(default_factory=Backend)
    inline_bytes: int = 16 * 1024
    """Deltas up to this size are stored inside the manifest, unless there are too many of them."""
    inline_total: int = 1024 * 1024
    """Maximum size of all deltas inside one manifest. They pass through the driver, and every worker process reads the
    manifest. With more than 64 tasks that have keyed state, smaller deltas become files."""
    memory_limit: int = MAX_STATE_SIZE.default
    """Maximum state size of one operator with the Memory backend."""
    merge_bytes: int = 256 * 1024
    """Memory backend: deltas are merged into bases once they exceed this size in total."""
    base_bytes: int = BASE_MIN_BYTES.default
    """A block's deltas are merged into a base once they exceed this size."""
    retained: int = RETAINED_CHECKPOINTS.default
    """Number of completed checkpoints to retain."""
    asynchronous: bool = ASYNCHRONOUS_SNAPSHOTS.default
    """Whether bases are written and files removed concurrently with epochs."""
    timeout_ms: int = CHECKPOINT_TIMEOUT.default
    min_pause_ms: int = MIN_PAUSE.default
    """Minimum pause between the end of a checkpoint and the trigger of the next."""
    tolerable_failures: int = TOLERABLE_FAILED_CHECKPOINTS.default
    """How often an expired or declined epoch is retried."""
    overlay_bytes: int = OVERLAY_BYTES
    """Memory limit for the keyed state of one task in one epoch. Above it, state spills to local disk."""
    retries: int = 3
    """Minimum number of retries for an epoch that the engine lost. Spark fails the epoch even if one new worker would
    be enough to complete it."""
    queryable: bool = QUERYABLE_STATE.default
    """Whether states can be read from outside the job."""
    pins: PinLimits = field(default_factory=lambda: PinLimits(PIN_AGE.default, PIN_CHECKPOINTS.default))
    """How long files are kept for a state server."""
    standby_replicas: int = STANDBY_REPLICAS.default
    """How many further executors follow the state of each subtask."""
    at_least_once: bool = CHECKPOINTING_MODE.default == "AT_LEAST_ONCE"
    """Whether sinks that support it publish an epoch's records before its checkpoint is complete."""

    def inline_limit(self, tasks: int) -> int:
        """Return the size up to which each of `tasks` tasks with keyed state puts its delta inside the manifest."""
        return min(self.inline_bytes, self.inline_total // max(tasks, 1))

    def of_batch(self) -> Settings:
        """Return these settings without a timeout. A batch is one epoch, which can take any amount of time."""
        return replace(self, timeout_ms=_NEVER_MS)
