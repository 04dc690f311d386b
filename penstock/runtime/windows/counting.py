"""Windows that no time ends: of so many records, or of all."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from penstock.common.typeinfo import Types
from penstock.runtime.windows.assigners import WindowAssigner, require
from penstock.runtime.windows.triggers import CountTrigger, NeverTrigger, PurgingTrigger, Trigger
from penstock.runtime.windows.window import CountWindow, CountWindowSerializer, GlobalWindow, GlobalWindowSerializer
from penstock.state.descriptors import ValueStateDescriptor


class _Counting(WindowAssigner[Any, CountWindow]):
    """Counts the records of each key. A window that is full is purged: it gets no other record."""

    _counter: ValueStateDescriptor

    def __init__(self, window_size: int) -> None:
        require(
            type(window_size) is int and window_size > 0,
            f"Count windows of {window_size!r} records cannot be.",
            "Give a whole number of at least 1.",
        )
        self.window_size = window_size

    def _count(self, context: WindowAssigner.WindowAssignerContext) -> int:
        """How many records the key had before this one."""
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
    """Each `window_size` records of a key are a window."""

    _counter = ValueStateDescriptor("tumble-count-assigner", Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        return [CountWindow(self._count(context) // self.window_size)]

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self.window_size})"


class CountSlidingWindowAssigner(_Counting):
    """With every `window_slide` records of a key a window of `window_size` records begins."""

    _counter = ValueStateDescriptor("slide-count-assigner", Types.LONG())

    def __init__(self, window_size: int, window_slide: int) -> None:
        super().__init__(window_size)
        require(
            type(window_slide) is int and window_slide > 0,
            f"Count windows cannot begin every {window_slide!r} records.",
            "Give a whole number of at least 1.",
        )
        self.window_slide = window_slide

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
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
    """All records of a key are one window; without a trigger of your own it never ends."""

    @staticmethod
    def create() -> GlobalWindows:
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
