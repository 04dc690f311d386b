"""Window assigners: which windows a record belongs to. Here: what they are, and windows of a fixed size in time."""

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
"""What is taken as a length of time; an int is milliseconds."""


class BadWindows(PenstockError):
    """Windows were asked for that cannot be: of no size, or with an offset beyond it."""


class WindowAssigner(ABC, Generic[T, W]):
    """Gives each record its windows. Must be picklable and keep nothing between records but in state."""

    class WindowAssignerContext(ABC):
        @abstractmethod
        def get_current_processing_time(self) -> int: ...

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """Gives keyed state, of the record's key."""

    @abstractmethod
    def assign_windows(self, element: T, timestamp: int, context: WindowAssignerContext) -> Collection[W]: ...

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[T, W]: ...

    @abstractmethod
    def get_window_serializer(self) -> WindowSerializer:
        """TimeWindowSerializer(), CountWindowSerializer() or GlobalWindowSerializer(): which windows it gives."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether its windows end by the watermark, rather than by the clock."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may become one."""

    class MergeCallback(ABC, Generic[W2]):
        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """These windows become that one."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]) -> None:
        """Tell `callback` which of these windows, all of one key, are to be merged."""


class ByEventTime:
    """What the assigners have in common whose windows end by the watermark."""

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return EventTimeTrigger()

    def get_window_serializer(self) -> TimeWindowSerializer:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return True

    def _now(self, timestamp: int, context: WindowAssigner.WindowAssignerContext) -> int:
        return timestamp


class ByProcessingTime:
    """What the assigners have in common whose windows end by the clock."""

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return ProcessingTimeTrigger()

    def get_window_serializer(self) -> TimeWindowSerializer:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return False

    def _now(self, timestamp: int, context: WindowAssigner.WindowAssignerContext) -> int:
        return context.get_current_processing_time()


class _Tumbling(WindowAssigner[Any, TimeWindow]):
    _now: Any

    def __init__(self, size: int, offset: int = 0) -> None:
        name = type(self).__name__
        require(size > 0, f"{name} of {size} ms hold no time.", "Give a size of at least a millisecond.")
        require(
            abs(offset) < size,
            f"{name} of {size} ms cannot have an offset of {offset} ms.",
            "Give an offset that is less than the size.",
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
    """Windows of one size, one after the other, by the records' timestamps."""

    @staticmethod
    def of(size: Length, offset: Length | None = None) -> TumblingEventTimeWindows:
        """With an offset, windows begin that much after the full hour, say, of UTC."""
        return TumblingEventTimeWindows(window_millis(size), window_millis(offset or 0))


class TumblingProcessingTimeWindows(ByProcessingTime, _Tumbling):
    """Windows of one size, one after the other, by the clock of the epoch."""

    @staticmethod
    def of(size: Length, offset: Length | None = None) -> TumblingProcessingTimeWindows:
        return TumblingProcessingTimeWindows(window_millis(size), window_millis(offset or 0))


class _Sliding(WindowAssigner[Any, TimeWindow]):
    _now: Any

    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        name = type(self).__name__
        require(size > 0, f"{name} of {size} ms hold no time.", "Give a size of at least a millisecond.")
        require(slide > 0, f"{name} cannot begin every {slide} ms.", "Give a slide of at least a millisecond.")
        require(
            abs(offset) < slide,
            f"{name} that begin every {slide} ms cannot have an offset of {offset} ms.",
            "Give an offset that is less than the slide.",
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
    """Windows of one size that begin every `slide`, by the records' timestamps: a record is in several."""

    @staticmethod
    def of(size: Length, slide: Length, offset: Length | None = None) -> SlidingEventTimeWindows:
        return SlidingEventTimeWindows(window_millis(size), window_millis(slide), window_millis(offset or 0))


class SlidingProcessingTimeWindows(ByProcessingTime, _Sliding):
    """Windows of one size that begin every `slide`, by the clock of the epoch."""

    @staticmethod
    def of(size: Length, slide: Length, offset: Length | None = None) -> SlidingProcessingTimeWindows:
        return SlidingProcessingTimeWindows(window_millis(size), window_millis(slide), window_millis(offset or 0))


def window_millis(length: Length) -> int:
    try:
        return to_millis(length)
    except (TypeError, ValueError) as error:
        raise BadWindows(str(error), locations=(calling_location(),)) from None


def require(holds: bool, problem: str, fix: str) -> None:
    if not holds:
        raise BadWindows(problem, fix=fix, locations=(calling_location(),))
