"""Windows that do not end by time: by number of records, or never."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from penstock.common.typeinfo import Types
from penstock.runtime.windows.assigners import WindowAssigner, require
from penstock.runtime.windows.triggers import CountTrigger, NeverTrigger, PurgingTrigger, Trigger
from penstock.runtime.windows.window import CountWindow, CountWindowSerializer, GlobalWindow, GlobalWindowSerializer
from penstock.state.descriptors import ValueStateDescriptor


class _Counting(WindowAssigner[Any, CountWindow]):
    """Counts the records of each key. A full window is purged and receives no further records."""

    _counter: ValueStateDescriptor

    def __init__(self, window_size: int) -> None:
        require(
            type(window_size) is int and window_size > 0,
            f"Count windows cannot have a size of {window_size!r} records.",
            "Use an int of at least 1.",
        )
        self.window_size = window_size

    def _count(self, context: WindowAssigner.WindowAssignerContext) -> int:
        """Return the number of the key's earlier records, and count this one."""
        state = context.get_runtime_context().get_state(self._counter)
        count: int = state.value() or 0
        state.update(count + 1)
        return count

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return PurgingTrigger.of(CountTrigger.of(self.window_size))

    def get_window_serializer(self) -> CountWindowSerializer:
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        return False


class CountTumblingWindowAssigner(_Counting):
    """Non-overlapping windows of ``window_size`` records of a key."""

    _counter = ValueStateDescriptor("tumble-count-assigner", Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Return windows of ``window_size`` records."""
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        return [CountWindow(self._count(context) // self.window_size)]

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self.window_size})"


class CountSlidingWindowAssigner(_Counting):
    """Windows of ``window_size`` records of a key, of which one starts every ``window_slide`` records."""

    _counter = ValueStateDescriptor("slide-count-assigner", Types.LONG())

    def __init__(self, window_size: int, window_slide: int) -> None:
        super().__init__(window_size)
        require(
            type(window_slide) is int and window_slide > 0,
            f"Count windows cannot have a slide of {window_slide!r} records.",
            "Use an int of at least 1.",
        )
        self.window_slide = window_slide

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Return windows of ``window_size`` records, of which one starts every ``window_slide`` records."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        count = self._count(context)
        last = count // self.window_slide
        first = max(0, -(-(count - self.window_size + 1) // self.window_slide))
        return [CountWindow(number) for number in range(last, first - 1, -1)]

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self.window_size}, {self.window_slide})"


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """One window for all records of a key. It never fires unless you set a trigger."""

    @staticmethod
    def create() -> GlobalWindows:
        """Return the assigner."""
        return GlobalWindows()

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return NeverTrigger()

    def get_window_serializer(self) -> GlobalWindowSerializer:
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "GlobalWindows()"
