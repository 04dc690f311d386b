"""The overlay: what one operator subtask reads and writes in one epoch, above its replicas.

It holds the keyed states (`penstock.state.keyed`) and the current key. At the end of an epoch `changes()` is its delta.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from penstock.errors import PenstockError
from penstock.state.descriptors import StateDescriptor
from penstock.state.engines.base import Reader
from penstock.state.entries import StateError, key_hash, state_id, stored_keys
from penstock.state.files import GroupChanges
from penstock.state.keyed import STATES, KeyedState, entry_key


class Replicated(Protocol):
    """What the overlay stands on: committed state by key group."""

    def reader(self, group: int) -> Reader | None: ...


class Nothing:
    """The committed state before the first checkpoint."""

    def reader(self, group: int) -> Reader | None:
        return None


class Overlay:
    """All keyed states of one operator subtask. The task sets `key` before each record.

    Order of calls: `register` while functions open; then per epoch `begin`, records, `changes`.
    """

    def __init__(self, max_parallelism: int) -> None:
        self.key: bytes | None = None
        self.epoch = 0
        self.max_parallelism = max_parallelism
        self._replicas: Replicated = Nothing()
        self._states: dict[str, KeyedState] = {}

    def begin(self, epoch: int, replicas: Replicated) -> None:
        """Forget everything of the last epoch and stand on `replicas`."""
        self.epoch = epoch
        self.key = None
        self._replicas = replicas
        for state in self._states.values():
            state.reset()

    def release(self) -> None:
        """Let go of an epoch's data; the states stay registered."""
        self.begin(0, Nothing())

    def register(self, descriptor: StateDescriptor) -> Any:
        """The state of this name; the same object for the same descriptor, an error for another type."""
        known = self._states.get(descriptor.name)
        if known is not None:
            if known.descriptor.schema() != descriptor.schema():
                raise StateError(
                    f"State '{descriptor.name}' is registered twice with different types: "
                    f"{known.descriptor.schema()} and {descriptor.schema()}. Give one of them another name."
                )
            return known
        if any(state_id(name) == state_id(descriptor.name) for name in self._states):
            raise StateError(
                f"The name '{descriptor.name}' collides with another state of this operator; choose another name."
            )
        state = STATES[type(descriptor)](self, descriptor)
        self._states[descriptor.name] = state
        return state

    def schemas(self) -> dict[str, str]:
        return {name: state.descriptor.schema() for name, state in sorted(self._states.items())}

    def current_key(self, state: str) -> bytes:
        key = self.key
        if key is None:
            raise StateError(
                f"State '{state}' was used without a current key: keyed state can be read and written only "
                f"while a record is processed, not in open() or close()."
            )
        return key

    def reader(self, group: int) -> Reader | None:
        return self._replicas.reader(group)

    def keys(self, state: str, groups: Iterable[int]) -> Iterator[bytes]:
        """Every key of these key groups that has a value state of this name now, each once, sorted by (group, key)."""
        changed: dict[int, dict[bytes, bool]] = {}
        for key, is_set in self._states[state].written():
            changed.setdefault(key_hash(key) % self.max_parallelism, {})[key] = is_set
        for group in groups:
            reader = self.reader(group)
            keys = dict.fromkeys(stored_keys(reader, group, state) if reader is not None else (), True)
            keys |= changed.get(group, {})
            yield from sorted(key for key, is_set in keys.items() if is_set)

    def changes(self) -> list[GroupChanges]:
        """The epoch's effect on committed state, by key group, sorted."""
        groups: dict[int, GroupChanges] = {}
        for name, state in sorted(self._states.items()):
            try:
                state.drain(groups)
            except PenstockError as error:
                raise StateError(f"State '{name}': {error}") from None
        result = [groups[group] for group in sorted(groups)]
        for change in result:
            change.cleared.sort()
            change.entries.sort(key=entry_key)
        return result
