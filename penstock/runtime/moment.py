"""What time it is in a chain, for the record or timer at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.errors import PenstockError


class WrongTimestamp(PenstockError):
    """A timestamp assigner or a source gave something that is no time."""


class NoTimestamp(PenstockError):
    """A record without event time came to an operator that goes by event time."""


class Timestamped(NamedTuple):
    """A record as a source gives it that knows its event time."""

    value: Any
    timestamp: int


class OfSplit(NamedTuple):
    """Some records of one split, as a source's chain is fed with them."""

    split: str
    records: list[Any]
    ended: bool = False
    """Whether nothing will follow in this split."""
    letters: Sequence[Any] = ()
    """Dead letters among them, which go to the side output."""


class Moment:
    """One for all operators of a chain and subtask. The task that feeds the chain sets it before each record.

    What an operator emits has the timestamp of what it was given: records are handed on within the call. So an operator
    that emits with another timestamp sets it for the call and then puts back the one that it found: the operators
    before it and its siblings, which are still at work on their record, go on with their own. All others pay nothing.
    """

    __slots__ = ("channel", "processing_time", "timestamp")

    def __init__(self) -> None:
        self.timestamp: int | None = None
        """Event time of the record, in milliseconds; None where none was assigned."""
        self.channel = ""
        """In a source's chain, the split that the record is from; empty where splits have no identity."""
        self.processing_time = 0
        """The epoch's clock."""

    def begin_epoch(self, processing_time: int) -> None:
        """Set the epoch's clock, before its first record."""
        self.processing_time = processing_time
        self.timestamp = None

    def begin_record(self, timestamp: int | None) -> None:
        """Set the event time of the next record. Tasks assign `timestamp` themselves, which saves a call per record."""
        self.timestamp = timestamp
