"""Session windows, which grow while records arrive and end after a gap."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Any

from penstock.runtime.windows.assigners import (
    BadWindows,
    ByEventTime,
    ByProcessingTime,
    Length,
    MergingWindowAssigner,
    WindowAssigner,
    require,
    window_millis,
)
from penstock.runtime.windows.window import TimeWindow


class SessionWindowTimeGapExtractor(ABC):
    """Returns, for each record, how long a session stays open after it."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Return the gap in milliseconds, greater than 0."""


class _Sessions(MergingWindowAssigner[Any, TimeWindow]):
    _now: Any

    def __init__(self, session_gap: int) -> None:
        name = type(self).__name__
        require(session_gap > 0, f"{name} cannot have a gap of {session_gap} ms.", "Use a gap of at least 1 ms.")
        self.session_gap = session_gap

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        now = self._now(timestamp, context)
        return [TimeWindow(now, now + self.session_gap)]

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session_gap})"


class EventTimeSessionWindows(ByEventTime, _Sessions):
    """Sessions of records of a key that are less than the gap apart, by their timestamps."""

    @staticmethod
    def with_gap(size: Length) -> EventTimeSessionWindows:
        """Return sessions with a fixed gap."""
        return EventTimeSessionWindows(window_millis(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicEventTimeSessionWindows:
        """Return sessions with a gap computed from each record."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(ByProcessingTime, _Sessions):
    """Sessions of records of a key that are less than the gap apart, by processing time."""

    @staticmethod
    def with_gap(size: Length) -> ProcessingTimeSessionWindows:
        """Return sessions with a fixed gap."""
        return ProcessingTimeSessionWindows(window_millis(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicProcessingTimeSessionWindows:
        """Return sessions with a gap computed from each record."""
        return DynamicProcessingTimeSessionWindows(extractor)


class _DynamicSessions(MergingWindowAssigner[Any, TimeWindow]):
    _now: Any

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor | Callable[[Any], int]) -> None:
        extractor = session_window_time_gap_extractor
        require(
            isinstance(extractor, SessionWindowTimeGapExtractor) or callable(extractor),
            f"{type(self).__name__} need a function that returns the gap of a record, not {type(extractor).__name__}.",
            "Pass a SessionWindowTimeGapExtractor or a function of the record.",
        )
        self.extractor = extractor
        self._gap: Callable[[Any], Any] = getattr(extractor, "extract", extractor)  # type: ignore[arg-type]

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        now, gap = self._now(timestamp, context), self._gap(element)
        if type(gap) is not int or gap <= 0:
            raise BadWindows(
                f"{type(self.extractor).__name__} returned {gap!r} as the gap of a session.",
                fix="Return an int greater than 0, in milliseconds.",
            )
        return [TimeWindow(now, now + gap)]

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.extractor).__name__})"


class DynamicEventTimeSessionWindows(ByEventTime, _DynamicSessions):
    """Sessions with a different gap for each record, by the records' timestamps."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicEventTimeSessionWindows:
        """Return sessions with a gap computed from each record."""
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(ByProcessingTime, _DynamicSessions):
    """Sessions with a different gap for each record, by processing time."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicProcessingTimeSessionWindows:
        """Return sessions with a gap computed from each record."""
        return DynamicProcessingTimeSessionWindows(extractor)
