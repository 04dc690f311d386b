"""Watermark strategies: how event time is derived from the records of a source or stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from penstock.absent import explain_absent
from penstock.common.time import Duration, Time, to_millis
from penstock.common.tuning import accept
from penstock.errors import PenstockError


class Watermark(NamedTuple):
    """A declaration that no more records with this timestamp or an earlier one are expected."""

    timestamp: int


class TimestampAssigner(ABC):
    """Extracts the event time of records."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event time of a record in milliseconds.

        Args:
            value: The record.
            record_timestamp: The record's current timestamp, or -2**63 if it has none.
        """


class WatermarkOutput(Protocol):
    """The output to which a watermark generator emits its watermarks."""

    def emit_watermark(self, watermark: Watermark | int) -> None:
        """Emit a watermark: event time has reached this point."""


class WatermarkGenerator:
    """Generates watermarks. A new one is created for each channel and epoch. Watermarks that go back are ignored."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Called after each record. Punctuated generators emit here."""

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called at the end of each epoch in which the channel had records. Periodic generators emit here."""


@dataclass(frozen=True)
class WatermarkStrategy:
    """How to assign timestamps and generate watermarks. Create one with the static methods."""

    max_out_of_orderness_ms: int | None = None
    """None for a strategy without watermarks or with a user-defined generator."""
    generator: Callable[[], WatermarkGenerator] | None = None
    timestamp_assigner: Any = None
    """A TimestampAssigner, or a function of (value, timestamp)."""
    idle_timeout_ms: int | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Return a strategy for timestamps that never decrease within a channel."""
        return WatermarkStrategy(0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration | Time | timedelta) -> WatermarkStrategy:
        """Return a strategy for records that arrive at most this much event time out of order."""
        delay = to_millis(max_out_of_orderness)
        if delay < 0:
            raise PenstockError(
                f"The bound on out-of-orderness must not be negative, but is {delay} ms.",
                fix="Use for_monotonous_timestamps() if records arrive in order.",
            )
        return WatermarkStrategy(delay)

    @staticmethod
    def for_generator(generator: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Return a strategy with user-defined watermarks.

        Args:
            generator: A function, or a class, that returns a new ``WatermarkGenerator``.
        """
        if not callable(generator):
            raise PenstockError(
                f"for_generator requires a callable that returns a WatermarkGenerator, not {type(generator).__name__}.",
                fix="Pass the generator class itself, or a function.",
            )
        return WatermarkStrategy(generator=generator)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Return a strategy that generates no watermarks."""
        return WatermarkStrategy()

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any, int], int]
    ) -> WatermarkStrategy:
        """Return a copy of this strategy that extracts event times from records.

        Args:
            timestamp_assigner: A ``TimestampAssigner``, or a function of a record and its current timestamp.
        """
        if not isinstance(timestamp_assigner, TimestampAssigner) and not callable(timestamp_assigner):
            raise PenstockError(
                f"with_timestamp_assigner requires a TimestampAssigner or a function of (value, timestamp), not "
                f"{type(timestamp_assigner).__name__}."
            )
        return replace(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Duration | Time | timedelta) -> WatermarkStrategy:
        """Return a copy of this strategy in which a channel without records for this long is considered idle.

        An idle channel does not hold back the watermark of the others.
        """
        timeout = to_millis(idle_timeout)
        if timeout <= 0:
            raise PenstockError(f"The idle timeout must be positive, but is {timeout} ms.")
        return replace(self, idle_timeout_ms=timeout)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration | Time | timedelta,
        update_interval: Duration | Time | timedelta | None = None,
    ) -> WatermarkStrategy:
        """Accept the call without effect: sources are read epoch by epoch, so none gets ahead by more than one.

        Args:
            watermark_group: The sources that Flink would align.
            max_allowed_watermark_drift: How far one of them could be ahead.
            update_interval: How often Flink would compare them.
        """
        for length in (max_allowed_watermark_drift, update_interval):
            if length is not None:
                to_millis(length)
        accept("WatermarkStrategy.with_watermark_alignment")
        return self


explain_absent(__name__)
