"""How event time follows from records: declared with a source or a stream, carried out where its records are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from penstock.absent import explain_absent
from penstock.common.time import Duration, Time, to_millis
from penstock.errors import PenstockError


class Watermark(NamedTuple):
    """Says that no record with this timestamp, or an earlier one, is to be expected any more."""

    timestamp: int


class TimestampAssigner(ABC):
    """Gives records their event time."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The event time of a record, in milliseconds; `record_timestamp` is the one it had, -2**63 for none."""


class WatermarkOutput(Protocol):
    """Where a watermark generator puts its watermarks."""

    def emit_watermark(self, watermark: Watermark | int) -> None:
        """Say that event time has reached this point."""


class WatermarkGenerator:
    """Made anew for each channel and epoch. A watermark that is behind an earlier one is passed over."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Called after each record: the punctuated kind emits here."""

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called at the end of each epoch in which the channel had records: the periodic kind emits here."""


@dataclass(frozen=True)
class WatermarkStrategy:
    """Start with one of the static methods."""

    max_out_of_orderness_ms: int | None = None
    """None for a strategy that makes no watermarks, or makes them with a generator of the user's own."""
    generator: Callable[[], WatermarkGenerator] | None = None
    timestamp_assigner: Any = None
    """A TimestampAssigner, or a function of (value, timestamp)."""
    idle_timeout_ms: int | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Timestamps never go back within a channel."""
        return WatermarkStrategy(0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration | Time | timedelta) -> WatermarkStrategy:
        """A record comes at most this long after one with a later timestamp."""
        delay = to_millis(max_out_of_orderness)
        if delay < 0:
            raise PenstockError(
                f"The bound of out-of-orderness must not be negative, but is {delay} ms.",
                fix="Use for_monotonous_timestamps() where nothing is out of order.",
            )
        return WatermarkStrategy(delay)

    @staticmethod
    def for_generator(generator: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Watermarks of your own: `generator()` gives a WatermarkGenerator, for example its class."""
        if not callable(generator):
            raise PenstockError(
                f"for_generator needs something to call that gives a WatermarkGenerator, not "
                f"{type(generator).__name__}.",
                fix="Give it the class itself, or a function.",
            )
        return WatermarkStrategy(generator=generator)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Return a strategy that makes no watermarks."""
        return WatermarkStrategy()

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any, int], int]
    ) -> WatermarkStrategy:
        """Return the same strategy with event times from records.

        Args:
            timestamp_assigner: A `TimestampAssigner`, or a function of a record and the timestamp it has.
        """
        if not isinstance(timestamp_assigner, TimestampAssigner) and not callable(timestamp_assigner):
            raise PenstockError(
                f"with_timestamp_assigner needs a TimestampAssigner or a function of (value, timestamp), not "
                f"{type(timestamp_assigner).__name__}."
            )
        return replace(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Duration | Time | timedelta) -> WatermarkStrategy:
        """A channel without records for this long no longer holds back the others."""
        timeout = to_millis(idle_timeout)
        if timeout <= 0:
            raise PenstockError(f"The idle timeout must be longer than nothing, but is {timeout} ms.")
        return replace(self, idle_timeout_ms=timeout)


explain_absent(__name__)
