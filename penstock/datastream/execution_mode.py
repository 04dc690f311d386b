"""The runtime mode: streaming, batch or automatic."""

from enum import Enum


class RuntimeExecutionMode(Enum):
    """What is wanted of bounded input: BATCH gives of a keyed reduce only each key's last value, at the end.

    STREAMING gives one result per record; AUTOMATIC is BATCH where all sources are bounded, else STREAMING.
    """

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
