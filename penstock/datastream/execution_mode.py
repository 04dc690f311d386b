"""The runtime mode: streaming, batch or automatic."""

from enum import Enum


class RuntimeExecutionMode(Enum):
    """How a program treats bounded input.

    ``STREAMING`` emits a result of a keyed reduce for every record. ``BATCH`` emits only the last result of each key,
    at the end of the input, and requires bounded sources. ``AUTOMATIC`` selects ``BATCH`` if all sources are bounded,
    otherwise ``STREAMING``.
    """

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
