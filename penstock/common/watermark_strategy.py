"""How event time follows from records: declared with a source, carried out where its records are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from penstock.absent import explain_absent
from penstock.common.time import Duration, to_millis


class TimestampAssigner(ABC):
    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The event time of a record, in milliseconds; `record_timestamp` is the one its source gave, if any."""


@dataclass(frozen=True)
class WatermarkStrategy:
    """Start with one of the static methods."""

    max_out_of_orderness_ms: int | None
    """None for a strategy that makes no watermarks."""
    timestamp_assigner: TimestampAssigner | None = None
    idle_timeout_ms: int | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Timestamps never go back within a channel."""
        return WatermarkStrategy(0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        """A record comes at most this long after one with a later timestamp."""
        return WatermarkStrategy(to_millis(max_out_of_orderness))

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        return WatermarkStrategy(None)

    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner) -> WatermarkStrategy:
        return replace(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Duration) -> WatermarkStrategy:
        """A channel without records for this long no longer holds back the others."""
        return replace(self, idle_timeout_ms=to_millis(idle_timeout))


explain_absent(__name__)
