"""The states of one window of one key: its contents, its trigger's and its function's."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError
from penstock.runtime.state_getters import StateGetters
from penstock.runtime.windows.window import NAME_LENGTH
from penstock.state.descriptors import (
    AggregatingState,
    ListState,
    ReducingState,
    StateDescriptor,
)
from penstock.state.namespaced import Namespaced
from penstock.state.overlay import Overlay


class NotMergeable(PenstockError):
    """State was asked for, or to be merged, that has no meaning where windows merge."""


class Scopes:
    """Three scopes of state names, so that what a trigger and a function call their states never collides."""

    def __init__(self, overlay: Overlay) -> None:
        self.contents = Namespaced(overlay, "window", NAME_LENGTH)
        self.trigger = Namespaced(overlay, "trigger", NAME_LENGTH)
        self.function = Namespaced(overlay, "window function", NAME_LENGTH)

    def enter(self, key: bytes, window: bytes, state_window: bytes | None = None) -> None:
        """Make a window the current one. `state_window`: under whose name its contents are, if not its own."""
        slot = key + window
        self.trigger.key = self.function.key = slot
        self.contents.key = slot if state_window is None else key + state_window

    def leave(self) -> None:
        self.trigger.key = self.function.key = self.contents.key = None


class KeyedStateStore(StateGetters):
    """States of the window at hand. Clear them in the function's `clear`: nobody else does."""

    def __init__(self, scope: Namespaced, merging: bool) -> None:
        self._scope = scope
        self._merging = merging

    def _register(self, descriptor: StateDescriptor) -> Any:
        if self._merging:
            raise NotMergeable(
                f"Per-window state '{descriptor.name}' was asked for, but the windows merge, and nobody could say how "
                f"the states of two become one.",
                fix="Use global_state(), which is the key's.",
            )
        return self._scope.register(descriptor)


def merge_states(state: Any, scope: Namespaced, target: bytes, sources: list[bytes]) -> None:
    """Bring what the `sources` hold of a state to `target`; all are keys of the scope, which is left at the target."""
    for source in sources:
        scope.key = source
        if isinstance(state, ListState):
            elements = list(state.get())
            state.clear()
            scope.key = target
            state.add_all(elements)
        elif isinstance(state, (ReducingState, AggregatingState)):
            _merge_value(state, scope, target)
        else:
            raise NotMergeable(
                "merge_partitioned_state was asked to merge a state that cannot be.",
                fix="Use a ReducingStateDescriptor, AggregatingStateDescriptor or ListStateDescriptor.",
            )
    scope.key = target


def _merge_value(state: Any, scope: Namespaced, target: bytes) -> None:
    # Of an aggregating state `value` is the accumulator, where `get` would be its result.
    moved = state.value()
    state.clear()
    scope.key = target
    if moved is None:
        return
    if isinstance(state, ReducingState):
        state.add(moved)
    else:
        present = state.value()
        merge = state.descriptor.get_agg_function().merge
        state.update(moved if present is None else merge(present, moved))
