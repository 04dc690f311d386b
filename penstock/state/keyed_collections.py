"""Keyed states with several elements per key: lists and maps."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import PenstockError
from penstock.state.descriptors import ListState, MapState, MapStateDescriptor, StateDescriptor
from penstock.state.entries import StateError, entry_key
from penstock.state.files import GroupChanges
from penstock.state.keyed import MISSING, KeyedState
from penstock.state.keys import KeyTypeError, decode_key, encode_key
from penstock.state.serializers.leaves import Pickled, pickled
from penstock.state.weight import MEMBER_BYTES, weigh, weigh_nested

if TYPE_CHECKING:
    from penstock.state.namespaced import Namespaced
    from penstock.state.overlay import Overlay

_SEQUENCE = struct.Struct(">Q")

_encode_chunk = msgspec.msgpack.Encoder().encode
_decode_chunk = msgspec.msgpack.Decoder(list[bytes]).decode


def map_key_codec(descriptor: MapStateDescriptor) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return functions that convert map keys to bytes and back. Keys that could be stream keys are encoded canonically,
    so that equal keys share one entry."""
    serializer = descriptor.key_serializer
    # Entries are looked up by their key bytes, so keys without a type must be pickled in the original format.
    write = pickled if type(serializer.node) is Pickled else serializer.encode

    def encode(key: Any) -> bytes:
        try:
            key = serializer.check(key)
            try:
                return b"\0" + encode_key(key)
            except KeyTypeError:
                return b"\1" + write(key)
        except PenstockError as error:
            raise StateError(f"State '{descriptor.name}', map key: {error.statement()}.", fix=error.fix) from None

    def decode(data: bytes) -> Any:
        if data[0] == 1:
            return serializer.decode(data[1:])
        return serializer.check(decode_key(data[1:]))

    return encode, decode


class KeyedList(KeyedState, ListState[Any]):
    """One entry per key and epoch: `key · epoch` → the elements added in that epoch. Adding never reads.

    If an epoch spills, each further part has its own entry after the first: `key · epoch · part`.
    """

    def __init__(self, overlay: Overlay | Namespaced, descriptor: StateDescriptor, number: int) -> None:
        super().__init__(overlay, descriptor, number)
        self.reset()

    def reset(self) -> None:
        self._added: dict[bytes, list[Any]] = {}
        self._replaced: set[bytes] = set()
        self._read: dict[bytes, list[Any]] = {}
        self._read_before: dict[bytes, list[Any]] = {}
        self._loaded = 0

    def add(self, value: Any) -> None:
        if value is None:
            raise StateError(f"State '{self.descriptor.name}': None cannot be added to a list state.")
        held = self._hold(value)
        key = self._key()
        added = self._added.get(key)
        if added is None:
            self._added[key] = [held]
        else:
            added.append(held)

    def add_all(self, values: Iterable[Any]) -> None:
        for value in list(values):
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:
        values = list(values)
        if any(value is None for value in values):
            raise StateError(f"State '{self.descriptor.name}': None cannot be added to a list state.")
        held = [self._hold(value) for value in values]
        self.clear()
        if held:
            self._added[self._key()] = held

    def clear(self) -> None:
        key = self._key()
        self._replaced.add(key)
        self._added.pop(key, None)

    def get(self) -> Iterator[Any]:
        key = self._key()
        below = [] if key in self._replaced else self._below(key)
        added = self._added.get(key, ())
        return self._iterate(below, added, len(added))

    def _iterate(self, below: list[Any], added: Any, count: int) -> Iterator[Any]:
        # `count` is fixed at the call: elements added during iteration are not yielded, and lists never shrink.
        give = self._give
        for held in below:
            yield give(held)
        for index in range(count):
            yield give(added[index])

    def _below(self, key: bytes) -> list[Any]:
        elements = self._read.get(key)
        if elements is None:
            elements = self._read_before.pop(key, None)
            if elements is None:
                elements = self._scan(key)
                self._loaded += len(elements) + 1
                if self._loaded > self.cache_limit:
                    # Lists can be long. Drop those that were not used while this many elements were loaded. A list in
                    # use is kept however long it is: reloading it for every record would be quadratic.
                    self._read_before, self._read, self._loaded = self._read, {}, 0
            self._read[key] = elements
        return elements

    def _scan(self, key: bytes) -> list[Any]:
        elements: list[Any] = []
        reader, entry = self._locate(key)
        if reader is not None:
            for _, chunk in reader.scan(entry):
                elements.extend(map(self._load, _decode_chunk(chunk)))
        return elements

    def weight(self) -> int:
        replaced = len(self._replaced) * MEMBER_BYTES
        return replaced + sum(map(weigh_nested, (self._added, self._read, self._read_before)))

    def forget(self) -> None:
        self._read, self._read_before, self._loaded = {}, {}, 0

    def written(self) -> Iterator[tuple[bytes, bool]]:
        yield from (dict.fromkeys(self._replaced, False) | dict.fromkeys(self._added, True)).items()

    def drain(self, groups: dict[int, GroupChanges]) -> None:
        for key in self._replaced:
            changes, entry = self._changes_of(groups, key)
            changes.cleared.append(entry)
        sequence = _SEQUENCE.pack(self._overlay.epoch) + self._overlay.part
        for key, added in self._added.items():
            changes, entry = self._changes_of(groups, key)
            changes.entries.append((entry + sequence, _encode_chunk([self._store(held) for held in added])))


class KeyedMap(KeyedState, MapState[Any, Any]):
    """One entry per map key: `key · map key` → value. Changing an entry writes only that entry."""

    def __init__(self, overlay: Overlay | Namespaced, descriptor: MapStateDescriptor, number: int) -> None:
        super().__init__(overlay, descriptor, number)
        self._map_key, self._decode_key = map_key_codec(descriptor)
        self.reset()

    def reset(self) -> None:
        self._written: dict[bytes, dict[bytes, Any]] = {}
        self._replaced: set[bytes] = set()
        self._read: dict[tuple[bytes, bytes], Any] = {}

    def put(self, key: Any, value: Any) -> None:
        if value is None:
            raise StateError(f"State '{self.descriptor.name}': None cannot be put into a map state; use remove().")
        held = self._hold(value)
        self._of_key()[self._map_key(key)] = held

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in list(dict_value.items()):
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._of_key()[self._map_key(key)] = None

    def clear(self) -> None:
        key = self._key()
        self._replaced.add(key)
        self._written[key] = {}

    def get(self, key: Any) -> Any:
        held = self._find(self._map_key(key))
        return None if held is None else self._give(held)

    def contains(self, key: Any) -> bool:
        return self._find(self._map_key(key)) is not None

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter([(self._decode_key(key), self._give(held)) for key, held in self._merged()])

    def keys(self) -> Iterator[Any]:
        return iter([self._decode_key(key) for key, _ in self._merged()])

    def values(self) -> Iterator[Any]:
        return iter([self._give(held) for _, held in self._merged()])

    def is_empty(self) -> bool:
        return not self._holds_any(self._key())

    def _holds_any(self, key: bytes) -> bool:
        written = self._written.get(key, {})
        if any(held is not None for held in written.values()):
            return True
        return key not in self._replaced and any(map_key not in written for map_key, _ in self._scan(key))

    def written(self) -> Iterator[tuple[bytes, bool]]:
        return ((key, self._holds_any(key)) for key in list(self._written))

    def _of_key(self) -> dict[bytes, Any]:
        key = self._key()
        written = self._written.get(key)
        if written is None:
            written = self._written[key] = {}
        return written

    def _find(self, map_key: bytes) -> Any:
        key = self._key()
        written = self._written.get(key)
        if written is not None:
            held = written.get(map_key, MISSING)
            if held is not MISSING:
                return held
        if key in self._replaced:
            return None
        held = self._read.get((key, map_key), MISSING)
        if held is MISSING:
            if len(self._read) > self.cache_limit:
                self._read.clear()
            reader, entry = self._locate(key)
            data = reader.get(entry + map_key) if reader is not None else None
            held = self._read[key, map_key] = None if data is None else self._load(data)
        return held

    def _scan(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        reader, entry = self._locate(key)
        if reader is not None:
            skip = len(entry)
            for full, data in reader.scan(entry):
                yield full[skip:], data

    def _merged(self) -> list[tuple[bytes, Any]]:
        key = self._key()
        merged: dict[bytes, Any] = {}
        if key not in self._replaced:
            merged.update((map_key, self._load(data)) for map_key, data in self._scan(key))
        merged.update(self._written.get(key, {}))
        return sorted((entry for entry in merged.items() if entry[1] is not None), key=entry_key)

    def weight(self) -> int:
        return len(self._replaced) * MEMBER_BYTES + weigh_nested(self._written) + weigh(self._read)

    def forget(self) -> None:
        self._read = {}

    def drain(self, groups: dict[int, GroupChanges]) -> None:
        for key in self._replaced:
            changes, entry = self._changes_of(groups, key)
            changes.cleared.append(entry)
        for key, written in self._written.items():
            changes, entry = self._changes_of(groups, key)
            changes.entries.extend(
                (entry + map_key, None if held is None else self._store(held)) for map_key, held in written.items()
            )
