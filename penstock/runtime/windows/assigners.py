"""Window assigners, which choose the windows of a record: the base classes, and time windows of a fixed size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from penstock.common.source_locations import calling_location
from penstock.common.time import Duration, Time, to_millis
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.windows.triggers import (
    EventTimeTrigger,
    ProcessingTimeTrigger,
    Trigger,
)
from penstock.runtime.windows.window import TimeWindow, TimeWindowSerializer, WindowSerializer

T = TypeVar("T")
W = TypeVar("W")
W2 = TypeVar("W2")

Length = Time | Duration | timedelta | int
"""A length of time; an int is in milliseconds."""


class BadWindows(PenstockError):
    """Windows have an invalid size, slide, offset or gap.

    Operator action: use a positive size, slide and gap, and an offset smaller than the size.
    """


class WindowAssigner(ABC, Generic[T, W]):
    """Assigns each record to windows. Must be picklable, and must keep everything between records in state."""

    class WindowAssignerContext(ABC):
        """Passed to ``assign_windows``."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the epoch's processing time, in milliseconds."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """Return the runtime context, which provides keyed state for the record's key."""

    @abstractmethod
    def assign_windows(self, element: T, timestamp: int, context: WindowAssignerContext) -> Collection[W]:
        """Return the windows of a record."""

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[T, W]:
        """Return the trigger for windows without a trigger set by the user."""

    @abstractmethod
    def get_window_serializer(self) -> WindowSerializer:
        """Return ``TimeWindowSerializer()``, ``CountWindowSerializer()`` or ``GlobalWindowSerializer()``, depending on
        the kind of windows it assigns."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Return whether its windows end by the watermark rather than by processing time."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows can be merged."""

    class MergeCallback(ABC, Generic[W2]):
        """Receives the merges that ``merge_windows`` decides on."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """Merge windows into ``merge_result``."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]) -> None:
        """Call ``callback`` for every group of these windows, all of one key, that must be merged."""


class ByEventTime:
    """Base of assigners whose windows end by the watermark."""

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Return the trigger that fires when event time reaches the end of the window."""
        return EventTimeTrigger()

    def get_window_serializer(self) -> TimeWindowSerializer:
        """Return the serializer of time windows."""
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        """Return True: these windows use event time."""
        return True

    def _now(self, timestamp: int, context: WindowAssigner.WindowAssignerContext) -> int:
        return timestamp


class ByProcessingTime:
    """Base of assigners whose windows end by processing time."""

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Return the trigger that fires when processing time reaches the end of the window."""
        return ProcessingTimeTrigger()

    def get_window_serializer(self) -> TimeWindowSerializer:
        """Return the serializer of time windows."""
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        """Return False: these windows use processing time."""
        return False

    def _now(self, timestamp: int, context: WindowAssigner.WindowAssignerContext) -> int:
        return context.get_current_processing_time()


class _Tumbling(WindowAssigner[Any, TimeWindow]):
    _now: Any

    def __init__(self, size: int, offset: int = 0) -> None:
        name = type(self).__name__
        require(size > 0, f"{name} cannot have a size of {size} ms.", "Use a size of at least 1 ms.")
        require(
            abs(offset) < size,
            f"{name} with a size of {size} ms cannot have an offset of {offset} ms.",
            "Use an offset that is smaller than the size.",
        )
        self.size = size
        self.offset = offset

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        start = TimeWindow.get_window_start_with_offset(self._now(timestamp, context), self.offset, self.size)
        return [TimeWindow(start, start + self.size)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, {self.offset})"


class TumblingEventTimeWindows(ByEventTime, _Tumbling):
    """Non-overlapping windows of a fixed size, by the records' timestamps."""

    @staticmethod
    def of(size: Length, offset: Length | None = None) -> TumblingEventTimeWindows:
        """Return windows of this size.

        Args:
            size: Length of a window.
            offset: Shifts the start of all windows, which are otherwise aligned with 1970-01-01 UTC.
        """
        return TumblingEventTimeWindows(window_millis(size), window_millis(offset or 0))


class TumblingProcessingTimeWindows(ByProcessingTime, _Tumbling):
    """Non-overlapping windows of a fixed size, by processing time."""

    @staticmethod
    def of(size: Length, offset: Length | None = None) -> TumblingProcessingTimeWindows:
        """Return windows of this size. ``offset`` shifts the start of all windows."""
        return TumblingProcessingTimeWindows(window_millis(size), window_millis(offset or 0))


class _Sliding(WindowAssigner[Any, TimeWindow]):
    _now: Any

    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        name = type(self).__name__
        require(size > 0, f"{name} cannot have a size of {size} ms.", "Use a size of at least 1 ms.")
        require(slide > 0, f"{name} cannot have a slide of {slide} ms.", "Use a slide of at least 1 ms.")
        require(
            abs(offset) < slide,
            f"{name} with a slide of {slide} ms cannot have an offset of {offset} ms.",
            "Use an offset that is smaller than the slide.",
        )
        self.size = size
        self.slide = slide
        self.offset = offset

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        now, size, slide = self._now(timestamp, context), self.size, self.slide
        last = TimeWindow.get_window_start_with_offset(now, self.offset, slide)
        return [TimeWindow(start, start + size) for start in range(last, now - size, -slide)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, {self.slide}, {self.offset})"


class SlidingEventTimeWindows(ByEventTime, _Sliding):
    """Windows of a fixed size that start every ``slide``, by the records' timestamps. A record can be in several."""

    @staticmethod
    def of(size: Length, slide: Length, offset: Length | None = None) -> SlidingEventTimeWindows:
        """Return windows of this size that start every ``slide``. ``offset`` shifts the start of all windows."""
        return SlidingEventTimeWindows(window_millis(size), window_millis(slide), window_millis(offset or 0))


class SlidingProcessingTimeWindows(ByProcessingTime, _Sliding):
    """Windows of a fixed size that start every ``slide``, by processing time."""

    @staticmethod
    def of(size: Length, slide: Length, offset: Length | None = None) -> SlidingProcessingTimeWindows:
        """Return windows of this size that start every ``slide``. ``offset`` shifts the start of all windows."""
        return SlidingProcessingTimeWindows(window_millis(size), window_millis(slide), window_millis(offset or 0))


def window_millis(length: Length) -> int:
    try:
        return to_millis(length)
    except (TypeError, ValueError) as error:
        raise BadWindows(str(error), locations=(calling_location(),)) from None


def require(holds: bool, problem: str, fix: str) -> None:
    if not holds:
        raise BadWindows(problem, fix=fix, locations=(calling_location(),))
