"""What all keyed states share, as they work in an overlay.

Each keeps what was written this epoch in dicts by canonical key bytes, and below them a cache of what was read; a hot
key costs a dict access. Values of immutable types are kept decoded; mutable ones are kept encoded, so that changing an
object after reading or storing it never changes state: only `update`, `add` and `put` do.
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
"""Marks what a dict does not hold, for None means that a key has no value."""

INT_MIN, INT_MAX = -(2**63), 2**63 - 1


def coded(
    descriptor: StateDescriptor, migrations: tuple[bytes, ...]
) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """How a state's values are written and read, after these migrations of its type."""
    serializer = descriptor.serializer
    if not migrations:
        return serializer.encode, serializer.decode
    versions = versions_of(migrations)
    return versions.encoder(serializer.encode), versions.decoder(serializer.decode)


class KeyedState:
    """What all keyed states share: finding entries below, and checking values on the way in."""

    cache_limit = 200_000
    """Entries read but not written that a state keeps decoded; past it the cache starts anew."""

    def __init__(self, overlay: Overlay | Namespaced, descriptor: StateDescriptor, number: int) -> None:
        self.descriptor = descriptor
        self._overlay = overlay
        self._id = number
        self._suffix = overlay.suffix
        self.migrations: tuple[bytes, ...] = ()
        """Of the versions of its type, from each to the next: see `serializers.migrations`."""
        serializer = descriptor.serializer
        self._encode = serializer.encode
        self._decode = serializer.decode
        self._immutable = serializer.immutable
        self._exact = serializer.exact

    def evolve(self, migrations: tuple[bytes, ...]) -> None:
        """Its type has had so many versions. Only between epochs, or before the state is used."""
        if migrations != self.migrations:
            self.migrations = migrations
            self._encode, self._decode = coded(self.descriptor, migrations)

    def reset(self) -> None:
        raise NotImplementedError

    def drain(self, groups: dict[int, GroupChanges]) -> None:
        raise NotImplementedError

    def weight(self) -> int:
        """About the bytes of memory that what was read and written takes."""
        raise NotImplementedError

    def forget(self) -> None:
        """Let go of what was only read."""

    def written(self) -> Iterator[tuple[bytes, bool]]:
        """The keys whose state was written this epoch, and whether they have any now."""
        raise NotImplementedError

    def _key(self) -> bytes:
        return self._overlay.key or self._overlay.current_key(self.descriptor.name)

    def _locate(self, key: bytes) -> tuple[Reader | None, bytes]:
        group, entry = self._entry(key)
        return self._overlay.reader(group), entry

    def _entry(self, key: bytes) -> tuple[int, bytes]:
        """The key group and the beginning of a key's entries; a namespace is not part of the key."""
        length = len(key) - self._suffix
        group = key_hash(key[:length]) % self._overlay.max_parallelism
        return group, HEADER.pack(group, self._id, length) + key

    def _hold(self, value: Any) -> Any:
        """`value` as the overlay keeps it; raises, naming the state, if it is not of the declared type."""
        kind = type(value)
        if kind is self._exact and (kind is not int or INT_MIN <= value <= INT_MAX):
            return value
        try:
            data = self._encode(value)
        except PenstockError as error:
            raise StateError(f"State '{self.descriptor.name}': {error.statement()}.", fix=error.fix) from None
        return self._decode(data) if self._immutable else data

    def _give(self, held: Any) -> Any:
        """A value for the user from what the overlay keeps."""
        return held if self._immutable else self._decode(held)

    def _load(self, data: bytes) -> Any:
        """What was stored, as the overlay keeps it."""
        return self._decode(data) if self._immutable else data

    def _store(self, held: Any) -> bytes:
        return self._encode(held) if self._immutable else held

    def _changes_of(self, groups: dict[int, GroupChanges], key: bytes) -> tuple[GroupChanges, bytes]:
        group, entry = self._entry(key)
        changes = groups.get(group)
        if changes is None:
            changes = groups[group] = GroupChanges(group, [], [])
        return changes, entry
