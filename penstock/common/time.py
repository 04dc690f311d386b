"""Durations and instants under Flink's names; the API accepts a ``timedelta`` wherever it accepts these."""

from __future__ import annotations

from datetime import timedelta

from penstock.errors import PenstockError

__all__ = ["Duration", "Instant", "Time", "to_millis"]

_NANOS_PER_MILLI = 1_000_000
_MILLI = timedelta(milliseconds=1)


class Time:
    """A duration in milliseconds."""

    __slots__ = ("_milliseconds",)

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def to_milliseconds(self) -> int:
        """Return the duration in milliseconds."""
        return self._milliseconds

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """Return a duration in milliseconds."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """Return a duration in seconds."""
        return Time(seconds * 1000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """Return a duration in minutes."""
        return Time(minutes * 60_000)

    @staticmethod
    def hours(hours: int) -> Time:
        """Return a duration in hours."""
        return Time(hours * 3_600_000)

    @staticmethod
    def days(days: int) -> Time:
        """Return a duration in days of 24 hours."""
        return Time(days * 86_400_000)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and self._milliseconds == other._milliseconds

    def __hash__(self) -> int:
        return hash((Time, self._milliseconds))

    def __str__(self) -> str:
        return f"{self._milliseconds} ms"

    def __repr__(self) -> str:
        return f"Time.milliseconds({self._milliseconds})"


class Duration:
    """A duration in nanoseconds. Create one with the ``of_`` methods."""

    __slots__ = ("_nanos",)

    def __init__(self, nanos: int) -> None:
        self._nanos = nanos

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Return a duration in nanoseconds."""
        return Duration(nanos)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Return a duration in milliseconds."""
        return Duration(millis * _NANOS_PER_MILLI)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """Return a duration in seconds."""
        return Duration.of_millis(seconds * 1000)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Return a duration in minutes."""
        return Duration.of_millis(minutes * 60_000)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Return a duration in hours."""
        return Duration.of_millis(hours * 3_600_000)

    @staticmethod
    def of_days(days: int) -> Duration:
        """Return a duration in days of 24 hours."""
        return Duration.of_millis(days * 86_400_000)

    def to_milliseconds(self) -> int:
        """Return the duration in milliseconds, rounded down."""
        return self._nanos // _NANOS_PER_MILLI

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self._nanos == other._nanos

    def __hash__(self) -> int:
        return hash((Duration, self._nanos))

    def __repr__(self) -> str:
        if self._nanos % _NANOS_PER_MILLI:
            return f"Duration.of_nanos({self._nanos})"
        return f"Duration.of_millis({self.to_milliseconds()})"


class Instant:
    """A point in time: ``seconds`` since 1970-01-01T00:00:00Z plus ``nanos``, 0 to 999,999,999.

    Treat it as immutable: do not set either attribute.
    """

    __slots__ = ("nanos", "seconds")

    def __init__(self, seconds: int, nanos: int) -> None:
        self.seconds = seconds
        self.nanos = nanos

    def to_epoch_milli(self) -> int:
        """Return the milliseconds since 1970-01-01T00:00:00Z, rounded down."""
        return self.seconds * 1000 + self.nanos // _NANOS_PER_MILLI

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """Return the instant at these milliseconds since 1970-01-01T00:00:00Z."""
        seconds, millis = divmod(epoch_milli, 1000)
        return Instant(seconds, millis * _NANOS_PER_MILLI)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Instant) and self.seconds == other.seconds and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash((self.seconds, self.nanos))

    def __repr__(self) -> str:
        return f"Instant<{self.seconds}, {self.nanos}>"


class BadLength(PenstockError, ValueError):
    """A duration is shorter than a millisecond or does not fit into 64 bits.

    Operator action: pass a duration between 1 ms and 2**63 - 1 ms.
    """


_LONGEST = 2**63 - 1


def to_millis(length: Time | Duration | timedelta | int) -> int:
    """Return any duration that the API accepts in milliseconds; a plain int already is in milliseconds.

    Fractions of a millisecond are truncated.

    Raises:
        BadLength: The duration would be truncated to 0, which is rarely intended, or exceeds 64 bits.
        TypeError: The argument is not a duration.
    """
    if isinstance(length, int) and not isinstance(length, bool):
        return _bounded(length)
    if isinstance(length, Time):
        return _bounded(length.to_milliseconds())
    if isinstance(length, Duration):
        millis, empty = length.to_milliseconds(), length == Duration(0)
    elif isinstance(length, timedelta):
        millis, empty = length // _MILLI, not length
    else:
        raise TypeError(
            f"Expected a duration, not a value of type {type(length).__name__}. "
            "Use Time.seconds(5), Duration.of_seconds(5), timedelta(seconds=5) or milliseconds as an int."
        )
    if millis == 0 and not empty:
        raise BadLength(f"{length!r} is shorter than a millisecond, the shortest duration Penstock supports.")
    return _bounded(millis)


def _bounded(millis: int) -> int:
    if not -_LONGEST <= millis <= _LONGEST:
        raise BadLength(
            f"A duration of {millis} ms exceeds 2**63 - 1 ms, the longest that Penstock supports.",
            fix="Use a shorter duration.",
        )
    return millis
