"""The keyed states with time to live: as those without, but what the overlay holds of a value is `(time, held)`.

Which a state is, is decided when it is registered, so that states without TTL have no part in this. Reading looks at
the time; what has expired is removed, as if the function had cleared it, and so is in the epoch's delta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.engines.base import Reader
from penstock.state.files import GroupChanges
from penstock.state.keyed import KeyedState
from penstock.state.keyed import _Aggregating as Aggregating
from penstock.state.keyed import _List as List
from penstock.state.keyed import _Map as Map
from penstock.state.keyed import _Reducing as Reducing
from penstock.state.keyed import _Value as Value
from penstock.state.ttl import FOREVER, STAMP, UNKNOWN, Clock, Form, decode_elements, encode_elements
from penstock.state.ttl_config import StateTtlConfig
from penstock.state.ttl_reader import StampingReader

if TYPE_CHECKING:
    from penstock.state.ttl_timers import ExpiryTimers

_MISSING: Any = object()
_PLACE = slice(2, 6)

Timed = tuple[int, Any]
"""The time of the last access, and the value as the overlay keeps it."""


class TimedState(KeyedState):
    """What the states with TTL share. After it is made, and before it is used, `age_by` is called."""

    form: Form
    accesses = 0
    """In this epoch; what incremental clean-up goes by."""
    timers: ExpiryTimers | None = None
    """Where values are removed by timers."""

    def age_by(self, form: Form, clock: Clock, unstamped: int) -> None:
        """`unstamped`: the number under which the state's entries are that carry no time."""
        self.form = form
        self.unstamped = unstamped.to_bytes(4, "big")
        self._ttl = FOREVER if form.ttl_ms is None else form.ttl_ms
        self._clock: Callable[[], int] = clock.event_time if form.event_time else clock.processing_time
        config = self.descriptor.ttl_config if form.ttl_ms is not None else None
        self._on_read = config is not None and config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
        visible = StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
        self._shows_expired = config is not None and config.get_state_visibility() is visible

    def reset(self) -> None:
        self.accesses = 0
        super().reset()

    @property
    def number(self) -> int:
        return self._id

    def remove_expired(self, key: bytes, rest: bytes) -> None:
        """A timer set for something of this key has come; `rest` is the map key, if any."""
        raise NotImplementedError

    def look_at(self, key: bytes, rest: bytes, data: bytes) -> None:
        """Clean-up has come to this stored entry: remove it if it has expired and was not written in this epoch."""
        raise NotImplementedError

    def _has_expired(self, time: int) -> bool:
        return time + self._ttl <= self._clock() and time != UNKNOWN

    def _hold(self, value: Any) -> Timed:
        return self._clock(), super()._hold(value)

    def _load(self, data: bytes) -> Timed:
        return self._time_of(data), super()._load(data[STAMP.size :])

    def _time_of(self, data: bytes) -> int:
        event_time, time = STAMP.unpack_from(data)
        return time if event_time is self.form.event_time else self.form.time_of_unstamped()

    def _store(self, timed: Timed) -> bytes:
        return STAMP.pack(self.form.event_time, timed[0]) + super()._store(timed[1])

    def _locate(self, key: bytes) -> tuple[Reader | None, bytes]:
        reader, entry = super()._locate(key)
        if reader is not None and self.form.since is not None:
            reader = StampingReader(reader, self.unstamped, self.form)
        return reader, entry

    def drain(self, groups: dict[int, GroupChanges]) -> None:
        if self.form.since is None:
            self._write(groups)
            return
        ours: dict[int, GroupChanges] = {}
        self._write(ours)
        for group, changes in ours.items():
            into = groups.setdefault(group, GroupChanges(group, [], []))
            into.cleared.extend(changes.cleared)
            into.cleared.extend(map(self._unstamped_key, changes.cleared))
            into.entries.extend(changes.entries)
            reader = self._overlay.reader(group)
            if reader is not None:
                before = (self._unstamped_key(entry) for entry, _ in changes.entries)
                into.entries.extend((entry, None) for entry in before if reader.get(entry) is not None)

    def _write(self, groups: dict[int, GroupChanges]) -> None:
        """As `drain`, of the entries that carry a time."""
        raise NotImplementedError

    def _unstamped_key(self, entry: bytes) -> bytes:
        return entry[: _PLACE.start] + self.unstamped + entry[_PLACE.stop :]

    def _set_timer(self, time: int, rest: bytes = b"") -> None:
        if self.timers is not None and time != UNKNOWN:
            self.timers.set(self, time + self._ttl, rest)

    def _move_timer(self, before: int | None, time: int, rest: bytes = b"") -> None:
        """One timer for each value, however often it is written."""
        if self.timers is not None:
            if before is not None and before != UNKNOWN:
                self.timers.unset(self, before + self._ttl, rest)
            self._set_timer(time, rest)


class TimedValue(TimedState, Value):
    # About 0.5 µs for a key already seen in this epoch, where a value without TTL takes 0.1.
    def value(self) -> Any:
        key = self._key()
        self.accesses += 1
        timed = self._current(key)
        if timed is None:
            return None
        time, held = timed
        now = self._clock()
        if time + self._ttl <= now and time != UNKNOWN:
            self._written[key] = None
            if not self._shows_expired:
                return None
        elif self._on_read and now > time:
            self._put(key, (now, held))
        return held if self._immutable else self._decode(held)

    def update(self, value: Any) -> None:
        key = self._key()
        self.accesses += 1
        if value is None:
            self._written[key] = None
        else:
            self._put(key, self._hold(value))

    def remove_expired(self, key: bytes, rest: bytes) -> None:
        timed = self._current(key)
        if timed is not None:
            if self._has_expired(timed[0]):
                self._written[key] = None
            else:
                self._set_timer(timed[0])

    def look_at(self, key: bytes, rest: bytes, data: bytes) -> None:
        if key not in self._written and self._has_expired(self._time_of(data)):
            self._written[key] = None

    def _current(self, key: bytes) -> Timed | None:
        timed: Timed | None = self._written.get(key, _MISSING)
        return self._below(key) if timed is _MISSING else timed

    def _put(self, key: bytes, timed: Timed) -> None:
        if self.timers is not None:
            before = self._current(key)
            self._move_timer(None if before is None else before[0], timed[0])
        self._written[key] = timed

    def _write(self, groups: dict[int, GroupChanges]) -> None:
        for key, timed in self._written.items():
            changes, entry = self._changes_of(groups, key)
            changes.entries.append((entry, None if timed is None else self._store(timed)))


class TimedReducing(TimedValue, Reducing):
    pass


class TimedAggregating(TimedValue, Aggregating):
    pass


class TimedList(TimedState, List):
    """Each element has its time. A chunk of which an element has expired is written again without it."""

    def reset(self) -> None:
        super().reset()
        self._rewritten: dict[bytes, dict[bytes, list[Timed]]] = {}
        """By key and chunk, what is left of stored chunks."""

    def add(self, value: Any) -> None:
        self.accesses += 1
        super().add(value)
        self._set_timer(self._clock())

    def update(self, values: Iterable[Any]) -> None:
        self.accesses += 1
        super().update(values)
        if self._added.get(self._key()):
            self._set_timer(self._clock())

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
        """Show every list of elements to `look`, which gives what shall be there instead, or the very same."""
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
        now, ttl = self._clock(), self._ttl
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
                self._move_timer(time, now)
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
        List.drain(self, groups)


class TimedMap(TimedState, Map):
    """Each entry has its time."""

    def put(self, key: Any, value: Any) -> None:
        self.accesses += 1
        if self.timers is not None and value is not None:
            map_key = self._map_key(key)
            before = super()._find(map_key)
            self._move_timer(None if before is None else before[0], self._clock(), map_key)
        super().put(key, value)

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
        return None if timed is None else self._see(map_key, timed, self._clock())

    def _merged(self) -> list[tuple[bytes, Any]]:
        self.accesses += 1
        now = self._clock()
        seen = ((map_key, self._see(map_key, timed, now)) for map_key, timed in super()._merged())
        return [(map_key, held) for map_key, held in seen if held is not None]

    def _see(self, map_key: bytes, timed: Timed, now: int) -> Any:
        time, held = timed
        if time + self._ttl <= now and time != UNKNOWN:
            self._of_key()[map_key] = None
            return held if self._shows_expired else None
        if self._on_read and now > time:
            self._move_timer(time, now, map_key)
            self._of_key()[map_key] = now, held
        return held

    def _write(self, groups: dict[int, GroupChanges]) -> None:
        Map.drain(self, groups)


class DefaultedTimedValue(TimedValue):
    """A value state that gives its default where a key has no value, or none any more."""

    def value(self) -> Any:
        value = super().value()
        return self.descriptor.default() if value is None else value  # type: ignore[attr-defined]


TIMED_STATES: dict[type[StateDescriptor], type[TimedState]] = {
    ValueStateDescriptor: TimedValue,
    ListStateDescriptor: TimedList,
    MapStateDescriptor: TimedMap,
    ReducingStateDescriptor: TimedReducing,
    AggregatingStateDescriptor: TimedAggregating,
}
