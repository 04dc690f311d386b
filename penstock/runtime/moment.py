"""The current time in a chain, for the current record or timer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.errors import PenstockError


class WrongTimestamp(PenstockError):
    """A timestamp assigner or a source returned an invalid timestamp.

    Operator action: return milliseconds since 1970 as an int.
    """


class NoTimestamp(PenstockError):
    """A record without a timestamp reached an operator that works in event time.

    Operator action: assign timestamps with a `WatermarkStrategy` before the operator.
    """


class Timestamped(NamedTuple):
    """A record with its event time, from a source that assigns timestamps itself."""

    value: Any
    timestamp: int


class OfSplit(NamedTuple):
    """Records of one split, as input for a source's chain."""

    split: str
    records: list[Any]
    ended: bool = False
    """Whether the split has no further records."""
    letters: Sequence[Any] = ()
    """Dead letters among the records, for the side output."""


class Moment:
    """The current times, shared by all operators of a chain and subtask. The task sets them before each record.

    Records are passed on within the call, so an operator's results have the timestamp of its input. An operator that
    emits with another timestamp sets it for the call and then restores the previous one: upstream and sibling operators
    are still processing their own record. Other operators pay nothing for this.
    """

    __slots__ = ("channel", "processing_time", "timestamp")

    def __init__(self) -> None:
        self.timestamp: int | None = None
        """Event time of the record, in milliseconds; None if none was assigned."""
        self.channel = ""
        """In a source's chain, the split of the record; empty if splits have no identity."""
        self.processing_time = 0
        """Processing time of the epoch."""

    def begin_epoch(self, processing_time: int) -> None:
        """Set the epoch's processing time, before its first record."""
        self.processing_time = processing_time
        self.timestamp = None

    def begin_record(self, timestamp: int | None) -> None:
        """Set the event time of the next record. Tasks assign `timestamp` directly, which saves a call per record."""
        self.timestamp = timestamp
