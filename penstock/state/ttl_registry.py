"""The states with time to live of one overlay: their registry, stored form and cleanup."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.entries import StateError, state_id
from penstock.state.ttl import Clock, Form, next_form, timed_name
from penstock.state.ttl_cleanup import Cleaner, cursor_name
from penstock.state.ttl_collections import TimedList, TimedMap
from penstock.state.ttl_states import DefaultedTimedValue, TimedAggregating, TimedReducing, TimedState, TimedValue
from penstock.state.ttl_timers import ExpiryTimers

if TYPE_CHECKING:
    from penstock.state.overlay import Overlay

_STATES: dict[type[StateDescriptor], type[TimedState]] = {
    ValueStateDescriptor: TimedValue,
    ListStateDescriptor: TimedList,
    MapStateDescriptor: TimedMap,
    ReducingStateDescriptor: TimedReducing,
    AggregatingStateDescriptor: TimedAggregating,
}
_NOTHING: Mapping[str, Form] = MappingProxyType({})


def numbers_of(name: str) -> set[int]:
    """Return all state ids that the entries of a state can have."""
    return {state_id(name), state_id(timed_name(name)), state_id(cursor_name(name))}


class TimedStates:
    """The states with TTL of one overlay.

    Order of calls: `restore` before states are registered, and again in each epoch; `make` for each state.
    """

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._clock: Clock | None = None
        self._states: dict[str, TimedState] = {}
        self._cleaners: list[Cleaner] = []
        self._timers: dict[str, ExpiryTimers] = {}
        self.restore({}, _NOTHING, (0, 0))

    def restore(self, schemas: Mapping[str, str], forms: Mapping[str, Form], now: tuple[int, int]) -> None:
        """Set the stored states.

        Args:
            schemas: The schemas of all states.
            forms: The forms of the states that have or had TTL.
            now: Processing and event time of the epoch, the same in all subtasks.
        """
        self._schemas = schemas
        self._stored = forms
        self._restored_at = now

    def go_by(self, clock: Clock) -> None:
        """Set the clock by which states expire. The owner of the overlay calls it if states can have TTL."""
        self._clock = clock

    def make(self, descriptor: StateDescriptor, name: str) -> TimedState | None:
        """Return a state whose descriptor has TTL, or that is stored with TTL; None for all others."""
        config = descriptor.ttl_config
        stored = self._stored.get(name)
        if config is None and stored is None:
            return None
        is_list = isinstance(descriptor, ListStateDescriptor)
        form = next_form(config, stored, name in self._schemas, is_list, self._restored_at)
        if form is None:
            return None
        if self._clock is None:
            raise StateError(
                f"State '{name}' has a time to live, which is not supported here.",
                fix="Remove enable_time_to_live.",
            )
        kind = _STATES[type(descriptor)]
        if isinstance(descriptor, ValueStateDescriptor) and descriptor.default_value is not None:
            kind = DefaultedTimedValue
        state = kind(self._overlay, descriptor, state_id(timed_name(name)))
        state.age_by(form, self._clock, state_id(name))
        self._states[name] = state
        if config is not None and form.ttl_ms is not None:
            self._arrange_clean_up(state, name)
        return state

    def _arrange_clean_up(self, state: TimedState, name: str) -> None:
        assert state.descriptor.ttl_config is not None
        strategies = state.descriptor.ttl_config.get_cleanup_strategies()
        incremental = strategies.get_incremental_cleanup_strategy()
        if incremental is not None:
            size, every_record = incremental.get_cleanup_size(), incremental.run_cleanup_for_every_record()
            self._cleaners.append(Cleaner(state, name, size, every_record))
        if strategies.by_timers():
            kind = "EVENT_TIME" if state.form.event_time else "PROCESSING_TIME"
            if kind not in self._timers:
                self._timers[kind] = ExpiryTimers(self._overlay, kind)
            self._timers[kind].watch(state)

    def forms(self) -> dict[str, Form]:
        """Return the forms for the checkpoint report, including those of stored states not registered here."""
        forms = dict(self._stored)
        forms.update((name, state.form) for name, state in self._states.items())
        return forms

    def begin(self) -> None:
        """Start an epoch."""
        for state in self._states.values():
            state.accesses = 0

    def clean_up(self, groups: range) -> None:
        """Run incremental cleanup at the end of an epoch, before the states are drained."""
        for cleaner in self._cleaners:
            cleaner.clean(self._overlay, groups)
