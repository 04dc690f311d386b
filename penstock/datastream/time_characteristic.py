"""The time characteristic of PyFlink 1."""

from enum import Enum

__all__ = ["TimeCharacteristic"]


class TimeCharacteristic(Enum):
    """The time that ``time_window`` uses. In PyFlink 2 a program chooses it with each window."""

    ProcessingTime = 0
    IngestionTime = 1
    EventTime = 2
