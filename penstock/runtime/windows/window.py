"""Windows: the parts into which a key's records are grouped, and how they are named in state."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.runtime.watermarks import GREATEST

if TYPE_CHECKING:
    from penstock.runtime.windows.assigners import MergingWindowAssigner

NAME_LENGTH = 16
"""Every window is named by this many bytes, in the order of the windows."""

_PAIR = struct.Struct(">QQ")
_BIAS = 2**63
"""Added to a time, so that negative ones sort before the others."""


class Window(ABC):
    """A part of a key's records. Windows of one kind that are equal are one window."""

    @abstractmethod
    def max_timestamp(self) -> int:
        """The last time that belongs to it."""


class TimeWindow(Window):
    """The times from `start` to just before `end`, in milliseconds."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Whether they overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that holds both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Where the window of this size begins that holds `timestamp`, if one begins at `offset`."""
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]) -> None:
        """Tell `callback` of every group of windows that overlap or touch."""
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
    """A run of a key's records; `id` is its number, from 0 on."""

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
    """The one window of all records."""

    @staticmethod
    def get() -> GlobalWindow:
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
    """An assigner gave something that is no window of the kind it says, or one beyond all times."""


class TimeWindowSerializer:
    """How time windows are named in state."""

    def encode(self, window: TimeWindow) -> bytes:
        try:
            return _PAIR.pack(window.start + _BIAS, window.end + _BIAS)
        except struct.error:
            raise WrongWindow(
                f"A record is in {window!r}, but times go from -2**63 to 2**63 - 1.",
                fix="Look at the timestamp of the record: it is in milliseconds since 1970. Or make windows smaller.",
            ) from None
        except (AttributeError, TypeError):
            raise _wrong(window, "TimeWindow whose start and end are milliseconds of 64 bits") from None

    def decode(self, name: bytes) -> TimeWindow:
        start, end = _PAIR.unpack(name)
        return TimeWindow(start - _BIAS, end - _BIAS)


class CountWindowSerializer:
    """How count windows are named in state."""

    def encode(self, window: CountWindow) -> bytes:
        try:
            return _PAIR.pack(window.id + _BIAS, 0)
        except (struct.error, AttributeError, TypeError):
            raise _wrong(window, "CountWindow whose id is an int of 64 bits") from None

    def decode(self, name: bytes) -> CountWindow:
        return CountWindow(_PAIR.unpack(name)[0] - _BIAS)


class GlobalWindowSerializer:
    """How the global window is named in state."""

    def encode(self, window: GlobalWindow) -> bytes:
        if not isinstance(window, GlobalWindow):
            raise _wrong(window, "GlobalWindow")
        return bytes(NAME_LENGTH)

    def decode(self, name: bytes) -> GlobalWindow:
        return _GLOBAL


WindowSerializer = TimeWindowSerializer | CountWindowSerializer | GlobalWindowSerializer


def _wrong(window: Any, expected: str) -> WrongWindow:
    return WrongWindow(
        f"A window assigner gave {window!r}; by its get_window_serializer it gives a {expected}.",
        fix="Give such a window, or the serializer of the windows it gives.",
    )
