"""Triggers, which decide when a window emits its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, TypeVar

from penstock.common.time import Duration, Time, to_millis
from penstock.common.typeinfo import Types
from penstock.errors import PenstockError
from penstock.runtime.metrics import MetricGroup
from penstock.runtime.watermarks import GREATEST
from penstock.runtime.windows.window import Window
from penstock.state.descriptors import ReducingStateDescriptor, StateDescriptor, ValueStateDescriptor

T = TypeVar("T")
W = TypeVar("W")


class TriggerResult(Enum):
    """What happens to a window: whether its function is called, and whether its contents are discarded."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Return whether the window's function is called."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Return whether the window's contents are discarded."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Called for every record of a window and every timer that it set. Must keep everything it remembers in state."""

    class TriggerContext(ABC):
        """The current times, and the trigger's own timers and states for the current window."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the epoch's processing time, in milliseconds."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Return the group in which to register metrics."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the current event-time watermark."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Call ``on_processing_time`` in the first epoch at or after this time."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Call ``on_event_time`` when the watermark reaches this time."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Delete the window's processing-time timer for this time, if it exists."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Delete the window's event-time timer for this time, if it exists."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """Return the trigger's state for the current key and window."""

    class OnMergeContext(TriggerContext):
        """Passed to ``on_merge``."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge the merged windows' values of a reducing, aggregating or list state."""

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """React to a record that was added to the window."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """React to a processing-time timer that was set for the window."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """React to an event-time timer that was set for the window."""

    def can_merge(self) -> bool:
        """Return whether the trigger supports windows that merge, such as sessions."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Merge the states of windows into this one, and set its timers. The merged windows are cleared afterwards."""

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Clear the states and delete the timers of a window that is removed."""


def _least(first: int, second: int) -> int:
    return min(first, second)


def _sum(first: int, second: int) -> int:
    return first + second


_FIRE_TIME = ReducingStateDescriptor("fire-time", _least, Types.LONG())
_COUNT = ReducingStateDescriptor("count", _sum, Types.LONG())


class _Quiet(Trigger[T, W]):
    """Base of triggers that do nothing by default."""

    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        pass

    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        pass


class NeverTrigger(_Quiet[Any, Window]):
    """Never fires. The default trigger of global windows."""


class EventTimeTrigger(_Quiet[Any, Window]):
    """Fires when the watermark passes the end of the window, and again for every late record within the lateness."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """Return the trigger."""
        return EventTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(_Quiet[Any, Window]):
    """Fires in the first epoch whose processing time has passed the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """Return the trigger."""
        return ProcessingTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


class _Continuous(_Quiet[Any, Window]):
    def __init__(self, interval: int) -> None:
        if interval <= 0:
            raise PenstockError(
                f"{type(self).__name__} cannot fire every {interval} ms.", fix="Use an interval of at least 1 ms."
            )
        self.interval = interval

    def can_merge(self) -> bool:
        return True

    @abstractmethod
    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None: ...

    def register_next_fire_timestamp(
        self, time: int, window: Window, ctx: Trigger.TriggerContext, fire_timestamp_state: Any
    ) -> None:
        """Register the timer of the next firing: one interval after ``time``, or at the end of the window."""
        following = min(time + self.interval, window.max_timestamp())
        fire_timestamp_state.add(following)
        self._register(following, ctx)

    def _is_former(self, time: int, ctx: Trigger.TriggerContext) -> bool:
        """Return whether an earlier version of the program, with another interval, set the timer named in the state.

        For windows that merge, a timer set for the end of a merged window is as good as any other.
        """
        return time % self.interval != 0 and not getattr(ctx, "merging", True)


class ContinuousEventTimeTrigger(_Continuous):
    """Fires every ``interval`` of event time, and at the end of the window."""

    @staticmethod
    def of(interval: Time | Duration | int) -> ContinuousEventTimeTrigger:
        """Return a trigger that fires every ``interval``."""
        return ContinuousEventTimeTrigger(to_millis(interval))

    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_event_time_timer(time)

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        state = ctx.get_partitioned_state(_FIRE_TIME)
        following = state.get()
        if following is None:
            self.register_next_fire_timestamp(timestamp - timestamp % self.interval, window, ctx, state)
        elif following <= ctx.get_current_watermark():
            # In an earlier version of the program, the timer might have belonged to another trigger.
            ctx.register_event_time_timer(following)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        state = ctx.get_partitioned_state(_FIRE_TIME)
        if state.get() != time:
            return TriggerResult.CONTINUE
        state.clear()
        if window.max_timestamp() == ctx.get_current_watermark() == GREATEST:
            # The input has ended and the window never does: its contents do not change until the last timer.
            return TriggerResult.FIRE
        if self._is_former(time, ctx):
            self.register_next_fire_timestamp(time - time % self.interval, window, ctx, state)
            return TriggerResult.CONTINUE
        self.register_next_fire_timestamp(time, window, ctx, state)
        return TriggerResult.FIRE

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(_FIRE_TIME)
        following = ctx.get_partitioned_state(_FIRE_TIME).get()
        if following is not None:
            ctx.register_event_time_timer(following)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())
        state = ctx.get_partitioned_state(_FIRE_TIME)
        following = state.get()
        if following is not None:
            ctx.delete_event_time_timer(following)
            state.clear()


class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires every ``interval`` of processing time, in the first epoch at or after each interval."""

    @staticmethod
    def of(interval: Time | Duration | int) -> ContinuousProcessingTimeTrigger:
        """Return a trigger that fires every ``interval``."""
        return ContinuousProcessingTimeTrigger(to_millis(interval))

    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_processing_time_timer(time)

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        state = ctx.get_partitioned_state(_FIRE_TIME)
        now = ctx.get_current_processing_time()
        following = state.get()
        if following is None:
            self.register_next_fire_timestamp(now - now % self.interval, window, ctx, state)
        elif following <= now and following < window.max_timestamp():
            # As with event time.
            ctx.register_processing_time_timer(following)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        state = ctx.get_partitioned_state(_FIRE_TIME)
        if state.get() != time:
            return TriggerResult.CONTINUE
        state.clear()
        if self._is_former(time, ctx):
            self.register_next_fire_timestamp(time - time % self.interval, window, ctx, state)
            return TriggerResult.CONTINUE
        self.register_next_fire_timestamp(time, window, ctx, state)
        return TriggerResult.FIRE

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(_FIRE_TIME)
        following = ctx.get_partitioned_state(_FIRE_TIME).get()
        if following is not None:
            ctx.register_processing_time_timer(following)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        state = ctx.get_partitioned_state(_FIRE_TIME)
        following = state.get()
        if following is not None:
            ctx.delete_processing_time_timer(following)
            state.clear()


class CountTrigger(_Quiet[Any, Window]):
    """Fires after every ``window_size`` records of a window."""

    def __init__(self, window_size: int) -> None:
        if type(window_size) is not int or window_size < 1:
            raise PenstockError(
                f"CountTrigger cannot fire every {window_size!r} records.", fix="Use an int of at least 1."
            )
        self.window_size = window_size

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """Return a trigger that fires after every ``window_size`` records."""
        return CountTrigger(window_size)

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        state = ctx.get_partitioned_state(_COUNT)
        count = (state.get() or 0) + 1
        if count >= self.window_size:
            state.clear()
            return TriggerResult.FIRE
        state.add(1)
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(_COUNT)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(_COUNT).clear()


class DeltaTrigger(_Quiet[Any, Window]):
    """Fires for a record whose distance from the record of the last firing exceeds ``threshold``."""

    def __init__(self, threshold: float, delta_function: Callable[[Any, Any], float], type_info: Any = None) -> None:
        self.threshold = threshold
        self.delta_function = delta_function
        self._last = ValueStateDescriptor("last-element", type_info or Types.PICKLED_BYTE_ARRAY())

    @staticmethod
    def of(threshold: float, delta_function: Callable[[Any, Any], float], type_info: Any = None) -> DeltaTrigger:
        """Return the trigger.

        Args:
            threshold: Largest distance that does not fire.
            delta_function: Called with the old and the new record; returns their distance.
            type_info: Type of the records in state; pickled if omitted.
        """
        return DeltaTrigger(threshold, delta_function, type_info)

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        state = ctx.get_partitioned_state(self._last)
        last = state.value()
        if last is None:
            state.update(element)
        elif self.delta_function(last, element) > self.threshold:
            state.update(element)
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._last).clear()


class PurgingTrigger(Trigger[Any, Any]):
    """Discards the contents of a window whenever the nested trigger fires."""

    def __init__(self, nested_trigger: Trigger[Any, Any]) -> None:
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger:
        """Return a trigger that purges whenever ``nested_trigger`` fires."""
        return PurgingTrigger(nested_trigger)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        self.nested_trigger.clear(window, ctx)


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result
