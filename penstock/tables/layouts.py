"""Convert the entries of each kind of keyed state to the rows of a table, one key group at a time."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa

from penstock.checkpoint.manifest import OperatorSnapshot
from penstock.errors import PenstockError
from penstock.state.entries import HEADER, state_id
from penstock.state.files import GroupChanges, prefix_end
from penstock.state.overlay import TIMER_KINDS
from penstock.state.serializers.leaves import BYTES
from penstock.state.serializers.migrations import versions_of
from penstock.state.ttl import STAMP, UNKNOWN, Form, timed_name
from penstock.state.ttl_reader import with_time
from penstock.tables import windows
from penstock.tables.keys import KeyShape, decode_key
from penstock.tables.plain_text import text_of_key, text_of_part
from penstock.tables.schemas import StateType
from penstock.tables.shapes import Shape

Entry = tuple[bytes, bytes]
Decode = Callable[[bytes], Any]

_TIME = struct.Struct(">QI")
_ONE_TIME = struct.Struct(">Q")
_BIAS = 2**63
_chunk = msgspec.msgpack.Decoder(list[bytes]).decode
read_bytes = msgspec.msgpack.Decoder(bytes).decode
_first = itemgetter(0)


def entries_of(change: GroupChanges, number: int) -> list[Entry]:
    """Return the entries of one state, which are contiguous because entries are sorted."""
    prefix = change.group.to_bytes(2, "big") + number.to_bytes(4, "big")
    start = bisect_left(change.entries, prefix, key=_first)
    end = prefix_end(prefix)
    stop = len(change.entries) if end is None else bisect_left(change.entries, end, start, key=_first)
    return change.entries[start:stop]  # type: ignore[return-value]


def parts_of(entry: bytes) -> tuple[bytes, bytes]:
    """Split an entry into its key and the bytes that follow."""
    end = HEADER.size + int.from_bytes(entry[HEADER.size - 4 : HEADER.size], "big")
    if len(entry) < max(end, HEADER.size):
        raise ValueError("the entry is shorter than its key")
    return entry[HEADER.size : end], entry[end:]


class Layout:
    """The rows of one keyed state of an operator."""

    def __init__(self, snapshot: OperatorSnapshot, name: str, kind: StateType, key: KeyShape, windowed: bool) -> None:
        self.type = kind
        self.key = key
        self.form: Form | None = snapshot.ttl.get(name)
        self.windowed = windowed
        self._numbers = state_id(name), state_id(timed_name(name))
        self._value = value_decoder(kind.value)
        self._present = present(snapshot.migrations.get(name, ()))
        self._map_key = map_key_decoder(kind.key) if kind.key is not None else None
        fields = [pa.field("key", key.arrow)]
        if windowed:
            fields += windows.FIELDS
        if kind.kind == "timeline":
            fields.append(pa.field("timestamp", pa.int64()))
        if kind.kind in ("list", "timeline"):
            fields.append(pa.field("index", pa.int64()))
        if kind.key is not None:
            fields.append(pa.field("map_key", kind.key.arrow))
        fields.append(pa.field("value", kind.value.arrow))
        if kind.other:
            fields.append(pa.field(kind.other, pa.binary() if kind.other == "value_pickle" else pa.string()))
        if self.form is not None:
            fields += [pa.field("last_access", pa.int64()), pa.field("expires", pa.int64())]
        self.schema = pa.schema(fields)

    def entries(self, change: GroupChanges) -> list[Entry]:
        """Return the state's entries in a key group. Those of a state with TTL start with a timestamp."""
        plain, timed = self._numbers
        if self.form is None:
            return entries_of(change, plain)
        found = entries_of(change, timed)
        before = entries_of(change, plain)
        if before:
            number = timed.to_bytes(4, "big")
            found += [(key[:2] + number + key[6:], with_time(data, self.form)) for key, data in before]
            found.sort(key=_first)
        return found

    def goes_on(self, before: bytes, entry: bytes) -> bool:
        """Return whether an entry continues the list of the previous one, and with it the element count."""
        if self.type.kind != "list":
            return False
        end = HEADER.size + int.from_bytes(entry[6 : HEADER.size], "big") + windows.NAME_LENGTH * self.windowed
        return before[:end] == entry[:end]

    def columns(self, entries: list[Entry]) -> list[list[Any]]:
        """Return the columns of these entries. Any exception means that they do not match the state's type."""
        if self._present is None:
            if self.type.kind in ("value", "reducing", "aggregating") and len(self.schema) == 2:
                return self._plain_values(entries)
            if self._map_key is not None and len(self.schema) == 3:
                return self._plain_maps(entries, self._map_key)
        rows = [*self.rows(entries)]
        return [list(column) for column in zip(*rows)] if rows else [[] for _ in self.schema]

    def _plain_values(self, entries: list[Entry]) -> list[list[Any]]:
        # The bulk of most savepoints: 0.6 µs per row for int keys and values.
        start = HEADER.size
        keys = [full[start:] for full, _ in entries]
        if any(int.from_bytes(full[6:10], "big") != len(full) - start for full, _ in entries):
            raise ValueError("a value's entry has extra bytes after its key")
        return [self._keys(keys), [self._value(data) for _, data in entries]]

    def _plain_maps(self, entries: list[Entry], decode_map_key: Decode) -> list[list[Any]]:
        keys, map_keys = [], []
        last, shown = b"", None
        for full, _ in entries:
            key, rest = parts_of(full)
            if key != last:
                last, shown = key, self.key.to_arrow(decode_key(key))
            keys.append(shown)
            map_keys.append(decode_map_key(rest))
        return [keys, map_keys, [self._value(data) for _, data in entries]]

    def _keys(self, keys: list[bytes]) -> list[Any]:
        if self.key.plain and not self.key.nullable and self.key.kind != "none":
            decoded = list(map(decode_key, keys))
            if {type(key) for key in decoded} <= {_EXACT.get(self.key.kind)}:
                return decoded
        return [self.key.to_arrow(decode_key(key)) for key in keys]

    def rows(self, entries: list[Entry]) -> Iterator[tuple[Any, ...]]:
        """Yield each row as Arrow accepts it."""
        last, shown, index = b"", None, 0
        for full, data in entries:
            key, rest = parts_of(full)
            place = full[: len(full) - len(rest)]
            if self.windowed:
                place += rest[: windows.NAME_LENGTH]
            if place != last:
                last, shown, index = place, self.key.to_arrow(decode_key(key)), 0
            head: tuple[Any, ...] = (shown,)
            if self.windowed:
                head += windows.window_of(rest[: windows.NAME_LENGTH])
                rest = rest[windows.NAME_LENGTH :]
            if self.type.kind == "list":
                for element in _chunk(data):
                    yield (*head, index, *self._valued(element))
                    index += 1
            elif self.type.kind == "timeline":
                time = _ONE_TIME.unpack(rest)[0] - _BIAS
                for place_in_list, element in enumerate(_chunk(data)):
                    yield (*head, time, place_in_list, *self._valued(element))
            elif self._map_key is not None:
                yield (*head, self._map_key(rest), *self._valued(data))
            elif rest:
                raise ValueError("a value's entry has extra bytes after its key")
            else:
                yield (*head, *self._valued(data))

    def _valued(self, data: bytes) -> tuple[Any, ...]:
        timed: tuple[Any, ...] = ()
        if self.form is not None:
            by_event_time, stamped = STAMP.unpack_from(data)
            time = stamped if by_event_time is self.form.event_time else self.form.time_of_unstamped()
            expires = None if time == UNKNOWN or self.form.ttl_ms is None else time + self.form.ttl_ms
            timed = None if time == UNKNOWN else time, expires if expires is None or expires < _BIAS else None
            data = data[STAMP.size :]
        if self._present is not None:
            data = self._present(data)
        if not self.type.other:
            return (self._value(data), *timed)
        if data[0] in BYTES:
            other = read_bytes(data)
            return (None, other if self.type.other == "value_pickle" else text_of_part(other), *timed)
        return (self._value(data), None, *timed)


_EXACT: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool, "bytes": bytes}


class TimerLayout:
    """The rows of the timers that an operator's functions and windows have set."""

    schema = pa.schema([])

    def __init__(self, key: KeyShape) -> None:
        self.key = key
        self._kinds = [(state_id(f"_timers {kind}"), kind) for kind in TIMER_KINDS]
        self.schema = pa.schema(
            [
                pa.field("key", key.arrow),
                pa.field("timestamp", pa.int64()),
                pa.field("domain", pa.string()),
                *windows.FIELDS,
                pa.field("namespace", pa.binary()),
            ]
        )

    def entries(self, change: GroupChanges) -> list[Entry]:
        """Return the timer entries of a key group."""
        return [entry for number, _ in self._kinds for entry in entries_of(change, number)]

    def goes_on(self, before: bytes, entry: bytes) -> bool:
        """Return False: every timer is one row."""
        return False

    def columns(self, entries: list[Entry]) -> list[list[Any]]:
        """Return the entries as columns."""
        rows = [self._row(full) for full, _ in entries]
        return [list(column) for column in zip(*rows)] if rows else [[] for _ in self.schema]

    def _row(self, full: bytes) -> tuple[Any, ...]:
        time, key, namespace = timer_of(full)
        number = int.from_bytes(full[2:6], "big")
        domain = next(kind for known, kind in self._kinds if known == number)
        none = (None, None, None)
        window = windows.window_of(namespace) if len(namespace) == windows.NAME_LENGTH else none
        return (self.key.to_arrow(decode_key(key)), time, domain, *window, namespace)


def timer_of(full: bytes) -> tuple[int, bytes, bytes]:
    """Return the time, key and namespace of a timer's entry."""
    time, length = _TIME.unpack_from(full, 6)
    start = 6 + _TIME.size
    if len(full) < start + length:
        raise ValueError("the timer is shorter than its key")
    return time - _BIAS, full[start : start + length], full[start + length :]


def value_decoder(shape: Shape) -> Decode:
    """Return the function that converts stored bytes to a cell."""
    if shape.read_whole is not None:
        return shape.read_whole
    decode: Decode = msgspec.msgpack.Decoder(shape.wire).decode
    read = shape.read
    return decode if read is None else lambda data: read(decode(data))


def present(migrations: tuple[bytes, ...]) -> Callable[[bytes], bytes] | None:
    """Return a function that migrates stored bytes to the current version; None for a type that never changed."""
    if not migrations:
        return None
    versions = versions_of(migrations)

    def bring(data: bytes) -> bytes:
        try:
            return versions.current(data)
        except PenstockError as error:
            # The caller adds the file name.
            raise ValueError(error.statement()) from None

    return bring


def map_key_decoder(shape: Shape) -> Decode:
    """Return the decoder for map keys, which are stored as canonical keys or as values."""
    decode = value_decoder(shape)
    show = text_of_key if shape.text == "any" else shape.to_arrow

    def decode_map_key(data: bytes) -> Any:
        return decode(data[1:]) if data[0] == 1 else show(decode_key(data[1:]))

    return decode_map_key


def is_windowed(name: str, kind: str, rest: bytes) -> bool:
    """Return whether a state belongs to windows, judging by its name and the bytes after the key of an entry."""
    if not windows.in_scope(name):
        return False
    if kind == "map":
        try:
            decode_key(rest[1:])
        except Exception:  # not a key: the entry starts with a window name
            return len(rest) > windows.NAME_LENGTH
        return False
    return len(rest) >= windows.NAME_LENGTH
