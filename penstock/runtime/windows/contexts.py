"""The contexts passed to triggers, evictors, assigners and window functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.runtime.context import RuntimeContext
from penstock.runtime.metrics import MetricGroup
from penstock.runtime.timers import check_time
from penstock.runtime.watermarks import GREATEST, LEAST
from penstock.runtime.windows.assigners import WindowAssigner
from penstock.runtime.windows.evictors import Evictor
from penstock.runtime.windows.scopes import KeyedStateStore, Scopes, merge_states
from penstock.runtime.windows.triggers import Trigger
from penstock.state.descriptors import StateDescriptor

if TYPE_CHECKING:
    from penstock.runtime.operators import Operator

W = TypeVar("W")


class _Times:
    def __init__(self, operator: Operator, runtime_context: RuntimeContext) -> None:
        self._operator = operator
        self._runtime_context = runtime_context

    def get_current_processing_time(self) -> int:
        return self._operator.moment.processing_time

    def get_current_watermark(self) -> int:
        return self._operator.watermark

    def get_metric_group(self) -> MetricGroup:
        return self._runtime_context.get_metrics_group()


class AssignerContext(_Times, WindowAssigner.WindowAssignerContext):
    def get_runtime_context(self) -> RuntimeContext:
        return self._runtime_context


class EvictingContext(_Times, Evictor.EvictorContext):
    pass


class TriggeringContext(_Times, Trigger.OnMergeContext):
    """A trigger's context, shared by all windows of a subtask. The operator sets `name`, the current window's name."""

    def __init__(self, operator: Operator, runtime_context: RuntimeContext, scopes: Scopes) -> None:
        super().__init__(operator, runtime_context)
        assert operator.overlay is not None
        self.name = b""
        self.merging = False
        """Whether windows can be merged."""
        self.merged: list[bytes] = []
        """During a merge, the slots of the merged windows: key and name."""
        self._scope = scopes.trigger
        self._event_timers = operator.overlay.timers["EVENT_TIME"]
        self._clock_timers = operator.overlay.timers["PROCESSING_TIME"]
        self._known: dict[str, tuple[StateDescriptor, Any]] = {}

    def register_processing_time_timer(self, time: int) -> None:
        self._clock_timers.register(check_time(time), self.name)

    def register_event_time_timer(self, time: int) -> None:
        self._event_timers.register(check_time(time), self.name)

    def delete_processing_time_timer(self, time: int) -> None:
        if LEAST <= time <= GREATEST:
            self._clock_timers.delete(time, self.name)

    def delete_event_time_timer(self, time: int) -> None:
        if LEAST <= time <= GREATEST:
            self._event_timers.delete(time, self.name)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        known = self._known.get(state_descriptor.name)
        if known is not None and known[0] is state_descriptor:
            return known[1]
        state = self._scope.register(state_descriptor)
        self._known[state_descriptor.name] = state_descriptor, state
        return state

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        state = self.get_partitioned_state(state_descriptor)
        assert self._scope.key is not None
        merge_states(state, self._scope, self._scope.key, self.merged)


class WindowContext(Generic[W]):
    """Passed to process window functions: the window, the current times, and the states of the window and the key."""

    def __init__(
        self, operator: Operator, runtime_context: RuntimeContext, window_state: KeyedStateStore, window: W
    ) -> None:
        self._operator = operator
        self._runtime_context = runtime_context
        self._window_state = window_state
        self._window = window

    def begin(self, window: W) -> WindowContext[W]:
        """Set the current window."""
        self._window = window
        return self

    def window(self) -> W:
        """Return the window that is being evaluated."""
        return self._window

    def current_processing_time(self) -> int:
        """Return the epoch's processing time, in milliseconds."""
        return self._operator.moment.processing_time

    def current_watermark(self) -> int:
        """Return the current event-time watermark."""
        return self._operator.watermark

    def window_state(self) -> KeyedStateStore:
        """Return states of the current key and window. The function's ``clear`` method must clear them."""
        return self._window_state

    def global_state(self) -> RuntimeContext:
        """Return states of the current key, shared by all its windows."""
        return self._runtime_context
