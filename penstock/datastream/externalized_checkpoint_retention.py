"""What happens to the checkpoints of a job that has ended."""

from enum import Enum


class ExternalizedCheckpointRetention(Enum):
    """What becomes of the checkpoints of a job that has ended. Those of a failed one are always kept."""

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2
