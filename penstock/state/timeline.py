"""State ordered by time: the elements an operator keeps per key, looked up by time interval.

Entry key: `key group · state id · length of the key · key · time`; the value is the list of elements at that time. A
lookup reads only the entries of its interval, however much state exists.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.common.pickling import Frozen
from penstock.common.typeinfo import Types
from penstock.state.descriptors import StateDescriptor
from penstock.state.files import GroupChanges
from penstock.state.keyed import KeyedState
from penstock.state.serializers import Hinted
from penstock.state.weight import weigh_nested

if TYPE_CHECKING:
    from penstock.state.namespaced import Namespaced
    from penstock.state.overlay import Overlay

_TIME = struct.Struct(">Q")
_BIAS = 2**63
"""Added to a time, which makes negative times sort before positive ones."""

_LINE_BYTES = 400
"""Approximate memory of a key without its elements."""

_encode_elements = msgspec.msgpack.Encoder().encode
_decode_elements = msgspec.msgpack.Decoder(list[bytes]).decode


class TimelineDescriptor(StateDescriptor):
    """Descriptor of a timeline of stream records. They are encoded by their declared type, or by an annotated type if
    that pays off, and are otherwise pickled."""

    kind = "timeline"

    def __init__(self, name: str, type_info: Any) -> None:
        hint = type_info if isinstance(type_info, Hinted) and type_info.pays_in_state() else None
        if type_info is None or isinstance(type_info, Hinted):
            type_info = Types.PICKLED_BYTE_ARRAY() if hint is None else hint.spec
        super().__init__(name, type_info)
        if hint is not None:
            self.use_hint(hint.spec)


class _Line:
    """The changes of this epoch to one key."""

    __slots__ = ("added", "removed", "times")

    def __init__(self) -> None:
        self.times: list[int] = []
        """The times in `added`, in ascending order."""
        self.added: dict[int, list[Any]] = {}
        self.removed: set[int] = set()
        """Times whose stored elements are removed."""


class Timeline(KeyedState):
    """Elements of the current key by time. Adding never reads; elements of the same time keep their insertion order."""

    def __init__(self, overlay: Overlay | Namespaced, descriptor: TimelineDescriptor, number: int) -> None:
        super().__init__(overlay, descriptor, number)
        self.reset()

    def reset(self) -> None:
        self._lines: dict[bytes, _Line] = {}

    def add(self, time: int, value: Any) -> None:
        """Add an element at a time."""
        held = self._hold(value)
        key = self._key()
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        elements = line.added.get(time)
        if elements is None:
            line.added[time] = [held]
            insort(line.times, time)
        else:
            elements.append(held)

    def between(self, first: int, last: int) -> Iterator[tuple[int, Any]]:
        """Yield (time, element) for the times from `first` to `last`, inclusive, in order.

        The elements are those at the time of the call.
        """
        key = self._key()
        line = self._lines.get(key)
        found = self._stored(key, line, first, last)
        if line is not None:
            times = line.times
            start = bisect_left(times, first)
            ours = times[start : bisect_right(times, last, start)]
            if ours:
                both = bool(found)
                found += [(time, held) for time in ours for held in line.added[time]]
                if both:
                    # A stable sort: stored elements come first among those of the same time.
                    found.sort(key=itemgetter(0))
        return self._each(found)

    def _each(self, found: list[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        give = self._give
        for time, held in found:
            yield time, give(held)

    def remove_until(self, time: int) -> set[int]:
        """Remove all elements up to and including this time, and return their times."""
        key = self._key()
        line = self._lines.get(key)
        # Most elements that are added and removed in one epoch were never stored and need no deletion.
        removed = {time for time, _ in self._entries_between(key, line, -_BIAS, time)}
        if removed:
            if line is None:
                line = self._lines[key] = _Line()
            line.removed |= removed
        if line is not None:
            end = bisect_right(line.times, time)
            for each in line.times[:end]:
                del line.added[each]
            removed.update(line.times[:end])
            del line.times[:end]
        return removed

    def times(self) -> list[int]:
        """Return the times that have elements, in order."""
        key = self._key()
        line = self._lines.get(key)
        stored = {time for time, _ in self._entries_between(key, line, -_BIAS, _BIAS - 1)}
        return sorted(stored if line is None else stored.union(line.times))

    def value(self) -> dict[int, list[Any]] | None:
        """Return all elements of the current key by time, or None if it has no elements."""
        everything: dict[int, list[Any]] = {}
        for time, element in self.between(-_BIAS, _BIAS - 1):
            everything.setdefault(time, []).append(element)
        return everything or None

    def _give(self, held: Any) -> Any:
        given = super()._give(held)
        return given.thaw() if type(given) is Frozen else given

    def _stored(self, key: bytes, line: _Line | None, first: int, last: int) -> list[tuple[int, Any]]:
        load = self._load
        return [
            (time, load(data))
            for time, elements in self._entries_between(key, line, first, last)
            for data in _decode_elements(elements)
        ]

    def _entries_between(self, key: bytes, line: _Line | None, first: int, last: int) -> list[tuple[int, bytes]]:
        group, entry = self._entry(key)
        reader = self._overlay.reader(group)
        first, last = max(first, -_BIAS), min(last, _BIAS - 1)
        if reader is None or first > last:
            return []
        found = []
        start, end = entry + _TIME.pack(first + _BIAS), entry + _TIME.pack(last + _BIAS) + b"\0"
        for full, elements in reader.between(start, end):
            time = _TIME.unpack_from(full, len(entry))[0] - _BIAS
            if line is None or time not in line.removed:
                found.append((time, elements))
        return found

    def weight(self) -> int:
        added = {key: line.added for key, line in self._lines.items()}
        return weigh_nested(added) + sum(_LINE_BYTES + 60 * len(line.removed) for line in self._lines.values())

    def drain(self, groups: dict[int, GroupChanges]) -> None:
        store = self._store
        for key, line in self._lines.items():
            group, entry = self._entry(key)
            reader = self._overlay.reader(group)
            entries: list[tuple[bytes, bytes | None]] = []
            for time, elements in line.added.items():
                at = entry + _TIME.pack(time + _BIAS)
                before = reader.get(at) if reader is not None and time not in line.removed else None
                kept = [] if before is None else _decode_elements(before)
                entries.append((at, _encode_elements(kept + [store(held) for held in elements])))
            for time in line.removed:
                if time not in line.added:
                    entries.append((entry + _TIME.pack(time + _BIAS), None))
            if entries:
                self._changes_of(groups, key)[0].entries.extend(entries)
