"""The checkpointing mode: exactly once or at least once."""

from enum import Enum


class CheckpointingMode(Enum):
    """How sinks treat the output of an epoch.

    ``EXACTLY_ONCE`` commits it when the checkpoint completes. ``AT_LEAST_ONCE`` writes it immediately and can write it
    again after a recovery.
    """

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
