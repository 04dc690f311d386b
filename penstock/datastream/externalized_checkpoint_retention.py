"""The retention policy for the checkpoints of a job that has ended."""

from enum import Enum


class ExternalizedCheckpointRetention(Enum):
    """Whether to keep the checkpoints of a job that has ended.

    ``RETAIN_ON_CANCELLATION`` keeps them; the other modes delete them. The checkpoints of a failed job are always kept.
    """

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2


class ExternalizedCheckpointCleanup(Enum):
    """The name of ``ExternalizedCheckpointRetention`` in PyFlink 1."""

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2
