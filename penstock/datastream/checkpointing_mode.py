"""The checkpointing mode: exactly once or at least once."""

from enum import Enum


class CheckpointingMode(Enum):
    """Whether sinks commit with the manifest, or write at once and may repeat after a recovery."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
