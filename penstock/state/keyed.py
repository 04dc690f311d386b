"""Base of all keyed states in an overlay.

A state keeps this epoch's writes in dicts by canonical key bytes, and below them a cache of reads, so a hot key costs
one dict access. Values of immutable types are kept decoded. Mutable ones are kept encoded: modifying an object after
reading or storing it never changes state; only `update`, `add` and `put` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.state.descriptors import StateDescriptor
from penstock.state.engines.base import Reader
from penstock.state.entries import HEADER, StateError, key_hash
from penstock.state.files import GroupChanges
from penstock.state.serializers.migrations import versions_of

if TYPE_CHECKING:
    from penstock.state.namespaced import Namespaced
    from penstock.state.overlay import Overlay

MISSING: Any = object()
"""Marks a missing dict entry, because None means that a key has no value."""

INT_MIN, INT_MAX = -(2**63), 2**63 - 1


def coded(
    descriptor: StateDescriptor, migrations: tuple[bytes, ...]
) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return the encoder and decoder of a state's values, after these migrations of its type."""
    serializer = descriptor.serializer
    if not migrations:
        return serializer.encode, serializer.decode
    versions = versions_of(migrations)
    return versions.encoder(serializer.encode), versions.decoder(serializer.decode)


class KeyedState:
    """Base class of keyed states: finds stored entries and checks written values."""

    cache_limit = 200_000
    """Maximum number of cached entries that were read but not written. The cache is dropped when it is exceeded."""

    def __init__(self, overlay: Overlay | Namespaced, descriptor: StateDescriptor, number: int) -> None:
        self.descriptor = descriptor
        self._overlay = overlay
        self._id = number
        self._suffix = overlay.suffix
        self.migrations: tuple[bytes, ...] = ()
        """From each version of the type to the next: see `serializers.migrations`."""
        serializer = descriptor.serializer
        self._encode = serializer.encode
        self._decode = serializer.decode
        self._immutable = serializer.immutable
        self._exact = serializer.exact

    def evolve(self, migrations: tuple[bytes, ...]) -> None:
        """Set the migrations of this state's type. Call it only between epochs, or before the state is used."""
        if migrations != self.migrations:
            self.migrations = migrations
            self._encode, self._decode = coded(self.descriptor, migrations)

    def reset(self) -> None:
        """Drop everything read and written, for a new epoch."""
        raise NotImplementedError

    def drain(self, groups: dict[int, GroupChanges]) -> None:
        """Add this epoch's writes to the changes of their key groups."""
        raise NotImplementedError

    def weight(self) -> int:
        """Return the approximate memory taken by reads and writes, in bytes."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop cached reads."""

    def written(self) -> Iterator[tuple[bytes, bool]]:
        """Yield the keys that were written this epoch, and whether each has state now."""
        raise NotImplementedError

    def _key(self) -> bytes:
        return self._overlay.key or self._overlay.current_key(self.descriptor.name)

    def _locate(self, key: bytes) -> tuple[Reader | None, bytes]:
        group, entry = self._entry(key)
        return self._overlay.reader(group), entry

    def _entry(self, key: bytes) -> tuple[int, bytes]:
        """Return the key group of a key and the prefix of its entries. A namespace does not affect the key group."""
        length = len(key) - self._suffix
        group = key_hash(key[:length]) % self._overlay.max_parallelism
        return group, HEADER.pack(group, self._id, length) + key

    def _hold(self, value: Any) -> Any:
        """Return `value` in the form the overlay keeps. A value of the wrong type raises an error naming the state."""
        kind = type(value)
        if kind is self._exact and (kind is not int or INT_MIN <= value <= INT_MAX):
            return value
        try:
            data = self._encode(value)
        except PenstockError as error:
            raise StateError(f"State '{self.descriptor.name}': {error.statement()}.", fix=error.fix) from None
        return self._decode(data) if self._immutable else data

    def _give(self, held: Any) -> Any:
        """Convert a value from the form the overlay keeps to the user's."""
        return held if self._immutable else self._decode(held)

    def _load(self, data: bytes) -> Any:
        """Convert a stored value to the form the overlay keeps."""
        return self._decode(data) if self._immutable else data

    def _store(self, held: Any) -> bytes:
        return self._encode(held) if self._immutable else held

    def _changes_of(self, groups: dict[int, GroupChanges], key: bytes) -> tuple[GroupChanges, bytes]:
        group, entry = self._entry(key)
        changes = groups.get(group)
        if changes is None:
            changes = groups[group] = GroupChanges(group, [], [])
        return changes, entry
