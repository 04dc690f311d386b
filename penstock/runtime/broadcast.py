"""The broadcast state pattern: one input reaches every subtask and updates a map, the other input reads the map."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.common.type_parameters import K, K_co, V
from penstock.runtime.checkpointed import Restored
from penstock.runtime.operators import Emit, describe, method_of
from penstock.runtime.process_operators import CoProcessOperator
from penstock.runtime.timers import OfTimer, TimeDomain, TimerService
from penstock.state.descriptors import BroadcastState, MapStateDescriptor, ReadOnlyBroadcastState, StateDescriptor
from penstock.state.entries import StateError
from penstock.state.keys import decode_key
from penstock.state.operator_state import OperatorMap, ReadOnlyView

if TYPE_CHECKING:
    from penstock.runtime.context import RuntimeContext


S = TypeVar("S")


class BroadcastProcessOperator(CoProcessOperator):
    """A function of two inputs, the second of them broadcast, with one broadcast state per descriptor."""

    methods = ("process_element", "process_broadcast_element")
    stateful = keeps_state = True

    def __init__(self, function: Any, keyed: bool, descriptors: list[MapStateDescriptor]) -> None:
        super().__init__(function, keyed)
        self.descriptors = descriptors

    def initialize(self, context: RuntimeContext, restored: Restored) -> None:
        super().initialize(context, restored)
        states = [self.store.get_broadcast_state(descriptor) for descriptor in self.descriptors]
        self.states: dict[str, OperatorMap] = {
            state.descriptor.name: state for state in states if isinstance(state, OperatorMap)
        }
        operator = f"'{self.name}' (uid '{self.uid}')"
        self.views = {name: ReadOnlyView(state, operator) for name, state in self.states.items()}

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        reading, writing, firing = _KEYED if self.keyed else _PLAIN
        self.reading, self.writing = reading(self), writing(self)
        self.firing = firing(self) if firing is not None else None

    def process(self, value: Any) -> None:
        self._emit_all(self.first(value, self.reading), self.methods[0])

    def process_second(self, value: Any) -> None:
        if self.overlay is not None:
            # The record applies to all keys, so it has no current key.
            self.overlay.key = None
        self._emit_all(self.second(value, self.writing), self.methods[1])

    def on_timer(self, time: int, namespace: bytes, domain: TimeDomain) -> None:
        assert self.firing is not None
        self.firing.begin(time, domain)
        self._emit_all(self.function.on_timer(time, self.firing), "on_timer")

    def unknown_state(self, name: str) -> StateError:
        return StateError(
            f"{describe(self.function)} of operator '{self.name}' (uid '{self.uid}') requests broadcast state "
            f"'{name}', but its broadcast stream only has {sorted(self.states)}.",
            fix="Pass its descriptor to broadcast(...) as well.",
        )


class BroadcastBaseContext:
    """The context that both sides of a broadcast process function share. A subtask uses one object for all records."""

    def __init__(self, operator: BroadcastProcessOperator) -> None:
        self._operator = operator
        self._moment = operator.moment

    def timestamp(self) -> int | None:
        """Return the record's event time in milliseconds, or None if no timestamps were assigned."""
        return self._moment.timestamp

    def current_processing_time(self) -> int:
        """Return the epoch's processing time, which is the same for all its records."""
        return self._moment.processing_time

    def current_watermark(self) -> int:
        """Return the current event-time watermark, in milliseconds."""
        return self._operator.watermark


class BroadcastContext(BroadcastBaseContext):
    """Passed to ``process_broadcast_element``: can update broadcast state, in the same way in every subtask."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
        """Return the writable broadcast state of a descriptor that was passed to ``broadcast(...)``."""
        state = self._operator.states.get(state_descriptor.name)
        if state is None:
            raise self._operator.unknown_state(state_descriptor.name)
        return state


class BroadcastReadOnlyContext(BroadcastBaseContext):
    """Passed to ``process_element``: can read broadcast state."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> ReadOnlyBroadcastState[K, V]:
        """Return a read-only view of the broadcast state of a descriptor that was passed to ``broadcast(...)``."""
        view = self._operator.views.get(state_descriptor.name)
        if view is None:
            raise self._operator.unknown_state(state_descriptor.name)
        return view


class KeyedBroadcastContext(BroadcastContext, Generic[K_co]):
    """Passed to ``process_broadcast_element`` on a keyed stream: can also iterate over keyed state."""

    def apply_to_keyed_state(self, state_descriptor: StateDescriptor[S], function: Callable[[K_co, S], Any]) -> None:
        """Call ``function(key, state)`` for every key of this subtask that has the given state.

        The order of the keys does not depend on epoch boundaries. The function can change the state. A state with a
        time to live can already be empty. The call reads all keys of the subtask, so use it for rare records only.
        """
        operator = self._operator
        overlay = operator.overlay
        assert overlay is not None
        call = method_of(function, "process")
        _, groups, _ = operator.runtime.key_groups(f"state '{state_descriptor.name}'")
        state = overlay.register(state_descriptor)
        for key in overlay.keys(state_descriptor.name, groups):
            overlay.key = key
            call(decode_key(key), state)
            # Together, the keys can be larger than memory.
            overlay.grown(len(key), 1)
        overlay.key = None


class KeyedBroadcastReadOnlyContext(BroadcastReadOnlyContext, Generic[K_co]):
    """Passed to ``process_element`` on a keyed stream: adds timers and the current key."""

    def __init__(self, operator: BroadcastProcessOperator) -> None:
        super().__init__(operator)
        self._timer_service = TimerService(operator, operator.overlay)

    def timer_service(self) -> TimerService:
        """Return the service that registers and deletes timers and reports the current times."""
        return self._timer_service

    def get_current_key(self) -> K_co:
        """Return the key of the current record or timer."""
        assert self._operator.overlay is not None
        return decode_key(self._operator.overlay.current_key("the current key"))  # type: ignore[no-any-return]


class KeyedBroadcastTimerContext(OfTimer, KeyedBroadcastReadOnlyContext[K_co]):
    """Passed to ``on_timer``. The current key is the timer's key."""


_PLAIN = (BroadcastReadOnlyContext, BroadcastContext, None)
_KEYED = (KeyedBroadcastReadOnlyContext, KeyedBroadcastContext, KeyedBroadcastTimerContext)
