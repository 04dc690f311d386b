"""Timers as seen by user functions, and the clocks that fire them."""

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
    """The clock of a timer."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class OfTimer:
    """The timer's part of the context passed to ``on_timer``. A subtask uses one object for all timers."""

    def begin(self, time: int, domain: TimeDomain) -> None:
        """Set the current timer, before each call of ``on_timer``."""
        self._time = time
        self._domain = domain

    def timestamp(self) -> int:
        """Return the time for which the timer was set."""
        return self._time

    def time_domain(self) -> TimeDomain:
        """Return whether the timer runs on event time or processing time."""
        return self._domain


class NoTimers(PenstockError):
    """A timer was set without a current key. Like keyed state, timers belong to a key.

    Operator action: call `key_by(...)` before the operator, and register timers in `process_element` or `on_timer`.
    """


class StateClock:
    """The clocks that expire state with TTL."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def processing_time(self) -> int:
        return self._operator.moment.processing_time

    def event_time(self) -> int:
        """Return the watermark; before the first and after the final one, the time of the current record or timer."""
        operator = self._operator
        watermark = operator.watermark
        if watermark in (LEAST, GREATEST):
            timestamp = operator.moment.timestamp
            return watermark if timestamp is None else timestamp
        return watermark


class TimerService:
    """Provides the current times, and the timers of the current key. Times are milliseconds since 1970-01-01."""

    def __init__(self, operator: Operator, overlay: Overlay | None) -> None:
        self._operator = operator
        self._overlay = overlay
        operator.shows_watermark = True

    def current_processing_time(self) -> int:
        """Return the epoch's processing time, which is the same for all its records."""
        return self._operator.moment.processing_time

    def current_watermark(self) -> int:
        """Return the current event-time watermark."""
        return self._operator.watermark

    def register_event_time_timer(self, timestamp: int) -> None:
        """Call ``on_timer`` when the watermark reaches this time. There is one timer per key and time."""
        self._timers(TimeDomain.EVENT_TIME).register(check_time(timestamp))

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call ``on_timer`` in the first epoch at or after this processing time; an epoch is started if necessary."""
        self._timers(TimeDomain.PROCESSING_TIME).register(check_time(timestamp))

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete the current key's event-time timer for this time, if it exists."""
        self._timers(TimeDomain.EVENT_TIME).delete(check_time(timestamp))

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete the current key's processing-time timer for this time, if it exists."""
        self._timers(TimeDomain.PROCESSING_TIME).delete(check_time(timestamp))

    def _timers(self, domain: TimeDomain) -> Timers:
        if self._overlay is None:
            raise NoTimers(
                f"Operator '{self._operator.name}' (uid '{self._operator.uid}') sets a timer, but its stream is not "
                f"keyed.",
                fix="Call key_by(...) before this operator: a timer belongs to a key.",
                locations=(self._operator.location,),
            )
        if not hasattr(self._operator.function, "on_timer"):
            raise NoTimers(
                f"Operator '{self._operator.name}' (uid '{self._operator.uid}') sets a timer, but its function has no "
                f"on_timer method.",
                fix="Write a KeyedProcessFunction with on_timer(self, timestamp, ctx).",
                locations=(self._operator.location,),
            )
        return self._overlay.timers[domain.name]


def check_time(timestamp: int) -> int:
    """Return the time of a timer if it is valid."""
    if type(timestamp) is not int or not -(2**63) <= timestamp < 2**63:
        raise PenstockError(
            f"The time of a timer must be an int of at most 64 bits, in milliseconds, not {timestamp!r}.",
            fix=(
                "Convert it to milliseconds since 1970-01-01."
                if type(timestamp) is int
                else "Convert it to an int with int(...)."
            ),
        )
    return timestamp
