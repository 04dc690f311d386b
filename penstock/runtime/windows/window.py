"""Windows, which group the records of a key, and their names in state."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, BinaryIO

from penstock.common.serializer import TypeSerializer
from penstock.errors import PenstockError
from penstock.runtime.watermarks import GREATEST

if TYPE_CHECKING:
    from penstock.runtime.windows.assigners import MergingWindowAssigner

NAME_LENGTH = 16
"""Every window is named by this many bytes, which sort in the order of the windows."""

_PAIR = struct.Struct(">QQ")
_BIAS = 2**63
"""Added to a time to make negative times sort first."""


class Window(ABC):
    """A group of a key's records. Two equal windows of one kind are the same window."""

    @abstractmethod
    def max_timestamp(self) -> int:
        """Return the last timestamp that belongs to the window."""


class TimeWindow(Window):
    """The times from ``start`` (inclusive) to ``end`` (exclusive), in milliseconds."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Return whether the windows overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that covers both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start of the window that contains ``timestamp``, for windows aligned with ``offset``."""
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]) -> None:
        """Call ``callback`` for every group of windows that overlap or touch."""
        merged: list[tuple[TimeWindow, set[TimeWindow]]] = []
        for window in sorted(windows):
            if merged and merged[-1][0].intersects(window):
                covered, parts = merged[-1]
                parts.add(window)
                merged[-1] = covered.cover(window), parts
            else:
                merged.append((window, {window}))
        for covered, parts in merged:
            if len(parts) > 1:
                callback.merge(parts, covered)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.start == other.start and self.end == other.end

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __lt__(self, other: TimeWindow) -> bool:
        return (self.start, self.end) < (other.start, other.end)

    def __le__(self, other: TimeWindow) -> bool:
        return (self.start, self.end) <= (other.start, other.end)

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


class CountWindow(Window):
    """A run of a key's records; ``id`` is its index, starting at 0."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id

    def max_timestamp(self) -> int:
        return GREATEST

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"CountWindow(id={self.id})"


class GlobalWindow(Window):
    """The single window of all records."""

    @staticmethod
    def get() -> GlobalWindow:
        """Return the global window."""
        return _GLOBAL

    def max_timestamp(self) -> int:
        return GREATEST

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "GlobalWindow"


_GLOBAL = GlobalWindow()


class WrongWindow(PenstockError):
    """An assigner returned something other than the declared kind of window, or one outside the range of times.

    Operator action: return windows of the kind that the assigner declares.
    """


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Encodes the names of time windows in state."""

    def serialize(self, element: TimeWindow, stream: BinaryIO) -> None:
        """Write a window."""
        stream.write(self.encode(element))

    def deserialize(self, stream: BinaryIO) -> TimeWindow:
        """Read a window."""
        return self.decode(stream.read(NAME_LENGTH))

    def encode(self, window: TimeWindow) -> bytes:
        """Return the bytes of a window, which order like the windows."""
        try:
            return _PAIR.pack(window.start + _BIAS, window.end + _BIAS)
        except struct.error:
            raise WrongWindow(
                f"A record is in {window!r}, but times range from -2**63 to 2**63 - 1.",
                fix="Check that the record's timestamp is in milliseconds since 1970-01-01, or use smaller windows.",
            ) from None
        except (AttributeError, TypeError):
            raise _wrong(window, "TimeWindow whose start and end are ints of at most 64 bits") from None

    def decode(self, name: bytes) -> TimeWindow:
        """Return the window of these bytes."""
        start, end = _PAIR.unpack(name)
        return TimeWindow(start - _BIAS, end - _BIAS)


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """Encodes the names of count windows in state."""

    def serialize(self, element: CountWindow, stream: BinaryIO) -> None:
        """Write a window."""
        stream.write(self.encode(element))

    def deserialize(self, stream: BinaryIO) -> CountWindow:
        """Read a window."""
        return self.decode(stream.read(NAME_LENGTH))

    def encode(self, window: CountWindow) -> bytes:
        """Return the bytes of a window, which order like the windows."""
        try:
            return _PAIR.pack(window.id + _BIAS, 0)
        except (struct.error, AttributeError, TypeError):
            raise _wrong(window, "CountWindow whose id is an int of at most 64 bits") from None

    def decode(self, name: bytes) -> CountWindow:
        """Return the window of these bytes."""
        return CountWindow(_PAIR.unpack(name)[0] - _BIAS)


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """Encodes the name of the global window in state."""

    def serialize(self, element: GlobalWindow, stream: BinaryIO) -> None:
        """Write a window."""
        stream.write(self.encode(element))

    def deserialize(self, stream: BinaryIO) -> GlobalWindow:
        """Read a window."""
        return self.decode(stream.read(NAME_LENGTH))

    def encode(self, window: GlobalWindow) -> bytes:
        """Return the bytes of a window, which order like the windows."""
        if not isinstance(window, GlobalWindow):
            raise _wrong(window, "GlobalWindow")
        return bytes(NAME_LENGTH)

    def decode(self, name: bytes) -> GlobalWindow:
        """Return the window of these bytes."""
        return _GLOBAL


WindowSerializer = TimeWindowSerializer | CountWindowSerializer | GlobalWindowSerializer


def _wrong(window: Any, expected: str) -> WrongWindow:
    return WrongWindow(
        f"A window assigner returned {window!r}; according to its get_window_serializer it must return a {expected}.",
        fix="Return such a window, or change get_window_serializer to match the windows.",
    )
