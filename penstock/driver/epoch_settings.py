"""How a job checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.state.backends import Backend
from penstock.state.overlay import OVERLAY_BYTES


@dataclass
class Settings:
    """How a job checkpoints; made from the configuration."""

    backend: Backend = field(default_factory=Backend)
    inline_bytes: int = 16 * 1024
    """Deltas up to this size ride inside the manifest."""
    memory_limit: int = 5 * 1024 * 1024
    """Largest state of one operator under the Memory backend."""
    merge_bytes: int = 256 * 1024
    """Memory backend: deltas up to this size, all together, are not worth merging into bases."""
    base_bytes: int = 1024 * 1024
    """Deltas of a block up to this size are not worth merging into a base."""
    retained: int = 1
    """Completed checkpoints that stay usable."""
    asynchronous: bool = True
    """Whether bases are made, and files removed, beside the epochs."""
    timeout_ms: int = 10 * 60 * 1000
    min_pause_ms: int = 0
    """Least time from the end of a checkpoint to the trigger of the next."""
    tolerable_failures: int = 0
    """How many times an epoch that expired or was declined is run again in its place."""
    overlay_bytes: int = OVERLAY_BYTES
    """Memory that the keyed state of one task may take in one epoch before it spills to local disk."""
    retries: int = 3
    """The least of that for an epoch the engine lost: Spark gives up what one lost worker can make whole."""
    at_least_once: bool = False
    """Whether sinks that can show an epoch's records before its checkpoint is complete."""
