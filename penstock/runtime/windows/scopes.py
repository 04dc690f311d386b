"""The states of one window of one key: its contents, its trigger's state and its function's state."""

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

_CONTENTS, _TRIGGER, _FUNCTION = "window", "trigger", "window function"
SCOPES = (_CONTENTS, _TRIGGER, _FUNCTION)
"""Name prefixes of states that belong to a window of a key."""


def in_scope(name: str) -> bool:
    """Return whether a state with this name can belong to windows."""
    return name.startswith(tuple(f"{scope} " for scope in SCOPES))


class NotMergeable(PenstockError):
    """A state that cannot be merged was requested or merged, for windows that merge.

    Operator action: use `global_state()`, or merge a list, reducing or aggregating state.
    """


class Scopes:
    """Three scopes of state names, which keep the states of contents, trigger and function apart."""

    def __init__(self, overlay: Overlay) -> None:
        self.contents = Namespaced(overlay, _CONTENTS, NAME_LENGTH)
        self.trigger = Namespaced(overlay, _TRIGGER, NAME_LENGTH)
        self.function = Namespaced(overlay, _FUNCTION, NAME_LENGTH)

    def enter(self, key: bytes, window: bytes, state_window: bytes | None = None) -> None:
        """Make a window current. `state_window` holds its contents, if it is not the window itself."""
        slot = key + window
        self.trigger.key = self.function.key = slot
        self.contents.key = slot if state_window is None else key + state_window

    def leave(self) -> None:
        self.trigger.key = self.function.key = self.contents.key = None


class KeyedStateStore(StateGetters):
    """States of the current window. The function's ``clear`` method must clear them; nothing else does."""

    def __init__(self, scope: Namespaced, merging: bool) -> None:
        self._scope = scope
        self._merging = merging

    def _register(self, descriptor: StateDescriptor) -> Any:
        if self._merging:
            raise NotMergeable(
                f"Per-window state '{descriptor.name}' was requested, but these windows merge, and per-window states "
                f"cannot be merged.",
                fix="Use global_state(), which belongs to the key.",
            )
        return self._scope.register(descriptor)


def merge_states(state: Any, scope: Namespaced, target: bytes, sources: list[bytes]) -> None:
    """Move a state from the `sources` to `target`. All are keys of the scope, which is left at the target."""
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
                "merge_partitioned_state was called with a state that cannot be merged.",
                fix="Use a ReducingStateDescriptor, AggregatingStateDescriptor or ListStateDescriptor.",
            )
    scope.key = target


def _merge_value(state: Any, scope: Namespaced, target: bytes) -> None:
    # For an aggregating state, `value` is the accumulator; `get` would return the result.
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
