"""Lists and maps with time to live: each list element and each map entry has its own time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.state.files import GroupChanges
from penstock.state.keyed_collections import KeyedList, KeyedMap
from penstock.state.ttl import UNKNOWN, decode_elements, encode_elements
from penstock.state.ttl_states import Timed, TimedState
from penstock.state.weight import weigh_nested


class TimedList(TimedState, KeyedList):
    """List state in which each element has a time. A chunk with an expired element is rewritten without it."""

    def reset(self) -> None:
        super().reset()
        self._rewritten: dict[bytes, dict[bytes, list[Timed]]] = {}
        """The remaining elements of stored chunks that changed, by key and chunk."""

    def weight(self) -> int:
        return super().weight() + weigh_nested(self._rewritten)

    def add(self, value: Any) -> None:
        self.accesses += 1
        super().add(value)
        self._set_timer(self.now())

    def update(self, values: Iterable[Any]) -> None:
        self.accesses += 1
        super().update(values)
        if self._added.get(self._key()):
            self._set_timer(self.now())

    def clear(self) -> None:
        super().clear()
        self._rewritten.pop(self._key(), None)

    def get(self) -> Iterator[Any]:
        self.accesses += 1
        key = self._key()
        seen: list[Any] = []
        self._pass(key, lambda elements: self._see(elements, seen))
        return map(self._give, seen)

    def remove_expired(self, key: bytes, rest: bytes) -> None:
        left: list[int] = []

        def live(elements: list[Timed]) -> list[Timed]:
            kept = [timed for timed in elements if not self._has_expired(timed[0])]
            left.extend(time for time, _ in kept)
            return elements if len(kept) == len(elements) else kept

        self._pass(key, live)
        if left:
            self._set_timer(min(left))

    def times_of(self, data: bytes) -> Iterable[int]:
        return map(self._time_of, decode_elements(data))

    def look_at(self, key: bytes, rest: bytes, data: bytes) -> None:
        if key in self._replaced or rest in self._rewritten.get(key, ()):
            return
        elements = decode_elements(data)
        live = [element for element in elements if not self._has_expired(self._time_of(element))]
        if len(live) < len(elements):
            self._rewrite(key, rest, [self._load(element) for element in live])
            self._read.pop(key, None)
            self._read_before.pop(key, None)

    def _pass(self, key: bytes, look: Callable[[list[Timed]], list[Timed]]) -> None:
        """Pass every list of elements to `look`, and replace it with the returned list unless it is the same object."""
        if key not in self._replaced:
            for chunk in self._below(key):
                kept = look(chunk[1])
                if kept is not chunk[1]:
                    chunk[1] = kept
                    self._rewrite(key, chunk[0], kept)
        added = self._added.get(key)
        if added is not None:
            kept = look(added)
            if kept is not added:
                if kept:
                    self._added[key] = kept
                else:
                    del self._added[key]

    def _see(self, elements: list[Timed], seen: list[Any]) -> list[Timed]:
        now, ttl = self.now(), self._ttl
        kept = []
        changed = False
        for timed in elements:
            time, held = timed
            if time + ttl <= now and time != UNKNOWN:
                changed = True
                if self._shows_expired:
                    seen.append(held)
                continue
            if self._on_read and now > time:
                changed = True
                self._unset_timer(timed)
                self._set_timer(now)
                timed = now, held
            seen.append(held)
            kept.append(timed)
        return kept if changed else elements

    def _rewrite(self, key: bytes, chunk: bytes, elements: list[Timed]) -> None:
        self._rewritten.setdefault(key, {})[chunk] = elements

    def _scan(self, key: bytes) -> list[Any]:
        reader, entry = self._locate(key)
        rewritten = self._rewritten.get(key, {})
        chunks: list[Any] = []
        if reader is not None:
            for full, data in reader.scan(entry):
                place = full[len(entry) :]
                elements = rewritten.get(place)
                if elements is None:
                    elements = [self._load(element) for element in decode_elements(data)]
                self._loaded += len(elements)
                chunks.append([place, elements])
        return chunks

    def _write(self, groups: dict[int, GroupChanges]) -> None:
        for key, chunks in self._rewritten.items():
            changes, entry = self._changes_of(groups, key)
            for place, elements in chunks.items():
                data = encode_elements([self._store(timed) for timed in elements]) if elements else None
                changes.entries.append((entry + place, data))
        KeyedList.drain(self, groups)


class TimedMap(TimedState, KeyedMap):
    """Map state in which each entry has a time."""

    def put(self, key: Any, value: Any) -> None:
        self.accesses += 1
        if self.timers is not None and value is not None:
            map_key = self._map_key(key)
            self._unset_timer(super()._find(map_key), map_key)
            self._set_timer(self.now(), map_key)
        super().put(key, value)

    def remove(self, key: Any) -> None:
        if self.timers is not None:
            map_key = self._map_key(key)
            self._unset_timer(super()._find(map_key), map_key)
        super().remove(key)

    def is_empty(self) -> bool:
        self.accesses += 1
        key = self._key()
        written = self._written.get(key, {})
        if any(timed is not None and self._is_there(timed[0]) for timed in written.values()):
            return False
        if key in self._replaced:
            return True
        stored = ((map_key, self._time_of(data)) for map_key, data in self._scan(key))
        return not any(map_key not in written and self._is_there(time) for map_key, time in stored)

    def _is_there(self, time: int) -> bool:
        return self._shows_expired or not self._has_expired(time)

    def remove_expired(self, key: bytes, rest: bytes) -> None:
        timed = super()._find(rest)
        if timed is not None:
            if self._has_expired(timed[0]):
                self._of_key()[rest] = None
            else:
                self._set_timer(timed[0], rest)

    def look_at(self, key: bytes, rest: bytes, data: bytes) -> None:
        if key in self._replaced or rest in self._written.get(key, ()):
            return
        if self._has_expired(self._time_of(data)):
            self._written.setdefault(key, {})[rest] = None

    def _find(self, map_key: bytes) -> Any:
        self.accesses += 1
        timed = super()._find(map_key)
        return None if timed is None else self._see(map_key, timed, self.now())

    def _merged(self) -> list[tuple[bytes, Any]]:
        self.accesses += 1
        now = self.now()
        seen = ((map_key, self._see(map_key, timed, now)) for map_key, timed in super()._merged())
        return [(map_key, held) for map_key, held in seen if held is not None]

    def _see(self, map_key: bytes, timed: Timed, now: int) -> Any:
        time, held = timed
        if time + self._ttl <= now and time != UNKNOWN:
            self._of_key()[map_key] = None
            return held if self._shows_expired else None
        if self._on_read and now > time:
            self._unset_timer(timed, map_key)
            self._set_timer(now, map_key)
            self._of_key()[map_key] = now, held
        return held

    def _write(self, groups: dict[int, GroupChanges]) -> None:
        KeyedMap.drain(self, groups)
