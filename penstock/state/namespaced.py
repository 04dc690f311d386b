"""State scoped to a part of a key, such as a window, in the key's overlay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.state.descriptors import StateDescriptor
from penstock.state.entries import HEADER, StateError, key_hash, state_id
from penstock.state.files import GroupChanges

if TYPE_CHECKING:
    from penstock.state.overlay import Overlay

_LEFTOVER_BYTES = 250
"""Approximate memory of one entry prefix to remove."""


class Namespaced:
    """Scope of states that belong to a part of a key, such as a window. `key` is the key followed by the part's name.

    All part names have the same length. The user of the states sets `key`; everything else is the overlay's.
    """

    def __init__(self, overlay: Overlay, name: str, suffix: int) -> None:
        self.key: bytes | None = None
        self.name = name
        self.suffix = suffix
        self.max_parallelism = overlay.max_parallelism
        self.reader = overlay.reader
        self._overlay = overlay

    @property
    def epoch(self) -> int:
        return self._overlay.epoch

    @property
    def part(self) -> bytes:
        return self._overlay.part

    def current_key(self, state: str) -> bytes:
        if self.key is None:
            raise StateError(f"State '{state}' was used outside of its {self.name}.")
        return self.key

    def register(self, descriptor: StateDescriptor) -> Any:
        return self._overlay.register(descriptor, self)

    def leftovers(self) -> Leftovers:
        """Return an object that removes entries of states in this scope that the program no longer declares."""
        found = Leftovers(self)
        self._overlay.add_leftovers(found)
        return found


class Leftovers:
    """Entries of states that an earlier version of the program had in a scope and the current one does not.

    Only the names of these states are known, so their entries can be removed but not read.
    """

    def __init__(self, scope: Namespaced) -> None:
        self._scope = scope
        self.reset()

    def reset(self) -> None:
        self._removed: set[tuple[int, bytes]] = set()

    def remove(self, names: Iterable[str]) -> None:
        """Remove the entries of the named states for the scope's current key."""
        key = self._scope.current_key("leftovers")
        length = len(key) - self._scope.suffix
        group = key_hash(key[:length]) % self._scope.max_parallelism
        reader = self._scope.reader(group)
        if reader is None:
            return
        for name in names:
            prefix = HEADER.pack(group, state_id(name), length) + key
            if next(reader.scan(prefix), None) is not None:
                self._removed.add((group, prefix))

    def weight(self) -> int:
        return _LEFTOVER_BYTES * len(self._removed)

    def drain(self, groups: dict[int, GroupChanges]) -> None:
        for group, prefix in self._removed:
            changes = groups.get(group)
            if changes is None:
                changes = groups[group] = GroupChanges(group, [], [])
            changes.cleared.append(prefix)
