"""Timers as user functions see them, and what fires them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.runtime.watermarks import GREATEST, LEAST
from penstock.state.timers import Timers

if TYPE_CHECKING:
    from penstock.runtime.operators import Operator
    from penstock.state.overlay import Overlay


class TimeDomain(Enum):
    """Which clock a timer goes by."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class OfTimer:
    """What the context of `on_timer` says of the timer. One object for all timers of a subtask: `begin` before each."""

    def begin(self, time: int, domain: TimeDomain) -> None:
        self._time = time
        self._domain = domain

    def timestamp(self) -> int:
        """The time the timer was set for."""
        return self._time

    def time_domain(self) -> TimeDomain:
        return self._domain


class NoTimers(PenstockError):
    """A timer was set where there is no key: timers belong to a key, as keyed state does."""


class StateClock:
    """The times by which state with TTL ages."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def processing_time(self) -> int:
        return self._operator.moment.processing_time

    def event_time(self) -> int:
        """The watermark. Before the first one and after the last, the time of the record or timer at hand."""
        operator = self._operator
        watermark = operator.watermark
        if watermark in (LEAST, GREATEST):
            timestamp = operator.moment.timestamp
            return watermark if timestamp is None else timestamp
        return watermark


class TimerService:
    """The current times, and the timers of the current key. Times are milliseconds since the epoch."""

    def __init__(self, operator: Operator, overlay: Overlay | None) -> None:
        self._operator = operator
        self._overlay = overlay
        operator.shows_watermark = True

    def current_processing_time(self) -> int:
        """The clock of the epoch: the same for all its records."""
        return self._operator.moment.processing_time

    def current_watermark(self) -> int:
        return self._operator.watermark

    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the watermark reaches this time. For one key and time there is one timer."""
        self._timers(TimeDomain.EVENT_TIME).register(check_time(timestamp))

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` in the first epoch whose clock has reached this time; one is run for it if need be."""
        self._timers(TimeDomain.PROCESSING_TIME).register(check_time(timestamp))

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._timers(TimeDomain.EVENT_TIME).delete(check_time(timestamp))

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._timers(TimeDomain.PROCESSING_TIME).delete(check_time(timestamp))

    def _timers(self, domain: TimeDomain) -> Timers:
        if self._overlay is None:
            raise NoTimers(
                f"Operator '{self._operator.name}' (uid '{self._operator.uid}') sets a timer, but its stream is not "
                f"keyed.",
                fix="Call key_by(...) before it: a timer belongs to a key.",
                locations=(self._operator.location,),
            )
        if not hasattr(self._operator.function, "on_timer"):
            raise NoTimers(
                f"Operator '{self._operator.name}' (uid '{self._operator.uid}') sets a timer, but its function has no "
                f"method for it.",
                fix="Write a KeyedProcessFunction with on_timer(self, timestamp, ctx).",
                locations=(self._operator.location,),
            )
        return self._overlay.timers[domain.name]


def check_time(timestamp: int) -> int:
    """Return the time of a timer, if it can be one."""
    if type(timestamp) is not int or not -(2**63) <= timestamp < 2**63:
        raise PenstockError(
            f"A timer is set for a time in whole milliseconds, an int of 64 bits, not {timestamp!r}.",
            fix="Convert it to milliseconds since 1970." if type(timestamp) is int else "Write int(...) around it.",
        )
    return timestamp
