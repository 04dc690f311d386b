"""How a job checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.common.options.checkpoints import (
    BASE_MIN_BYTES,
    CHECKPOINT_TIMEOUT,
    CHECKPOINTING_MODE,
    MIN_PAUSE,
    RETAINED_CHECKPOINTS,
    TOLERABLE_FAILED_CHECKPOINTS,
)
from penstock.common.options.state import ASYNCHRONOUS_SNAPSHOTS, MAX_STATE_SIZE
from penstock.state.backends import Backend
from penstock.state.overlay import OVERLAY_BYTES

_NEVER_MS = 10 * 365 * 24 * 3600 * 1000


@dataclass
class Settings:
    """How a job checkpoints; made from the configuration."""

    backend: Backend = field(default_factory=Backend)
    inline_bytes: int = 16 * 1024
    """Deltas up to this size ride inside the manifest."""
    memory_limit: int = MAX_STATE_SIZE.default
    """Largest state of one operator under the Memory backend."""
    merge_bytes: int = 256 * 1024
    """Memory backend: deltas up to this size, all together, are not worth merging into bases."""
    base_bytes: int = BASE_MIN_BYTES.default
    """Deltas of a block up to this size are not worth merging into a base."""
    retained: int = RETAINED_CHECKPOINTS.default
    """Completed checkpoints that stay usable."""
    asynchronous: bool = ASYNCHRONOUS_SNAPSHOTS.default
    """Whether bases are made, and files removed, beside the epochs."""
    timeout_ms: int = CHECKPOINT_TIMEOUT.default
    min_pause_ms: int = MIN_PAUSE.default
    """Least time from the end of a checkpoint to the trigger of the next."""
    tolerable_failures: int = TOLERABLE_FAILED_CHECKPOINTS.default
    """How many times an epoch that expired or was declined is run again in its place."""
    overlay_bytes: int = OVERLAY_BYTES
    """Memory that the keyed state of one task may take in one epoch before it spills to local disk."""
    retries: int = 3
    """The least of that for an epoch the engine lost: Spark gives up what one lost worker can make whole."""
    at_least_once: bool = CHECKPOINTING_MODE.default == "AT_LEAST_ONCE"
    """Whether sinks that can show an epoch's records before its checkpoint is complete."""

    def of_batch(self) -> Settings:
        """The same without a timeout: a batch is one epoch, which can take as long as it takes."""
        return replace(self, timeout_ms=_NEVER_MS)
