"""Convert a state's table that a function has changed back to entries. Unchanged rows keep their stored bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.state.entries import HEADER, state_id
from penstock.state.key_groups import key_group_of
from penstock.state.keys import encode_key
from penstock.state.overlay import TIMER_KINDS
from penstock.state.serializers import codec
from penstock.state.serializers.migrations import versions_of
from penstock.state.shares import BROADCAST, GROUPED, Shares, in_group
from penstock.state.ttl import STAMP, UNKNOWN, timed_name
from penstock.tables import windows
from penstock.tables.contents import KeyedContent, OperatorContent, decode_pair
from penstock.tables.frames import as_frame, as_table
from penstock.tables.keys import canonical
from penstock.tables.layouts import Entry, Layout, map_key_decoder, parts_of, timer_of, value_decoder
from penstock.tables.plain_text import key_of_text, part_of_text
from penstock.tables.shapes import NotWritable, Shape, same_value

Change = Callable[[Any], Any]
Row = dict[str, Any]
_TIME = struct.Struct(">QI")
_ONE_TIME = struct.Struct(">Q")
_BIAS = 2**63
_chunk = msgspec.msgpack.Decoder(list[bytes]).decode
_COMPARED = ("value", "value_pickle", "value_any", "last_access")
_NOT_CANONICAL = ("enum ", "dataclass ", "struct ", "typeddict ", "set<", "instant", "pickle")
"""Types of map keys whose stored form differs from that of stream keys."""


class KeyedRewrite:
    """Rewrites one state of one operator."""

    def __init__(self, content: KeyedContent, name: str, described: str, epoch: int, groups: int, now: int) -> None:
        """Prepare the rewrite of one state.

        Args:
            content: The current contents of the state.
            name: The state's name.
            described: A description of the state for error messages.
            epoch: The number of the savepoint's checkpoint.
            groups: The new number of key groups.
            now: The access time of new entries, if the state has a TTL.
        """
        self._content = content
        self._described = described
        self._epoch = epoch
        self._groups = groups
        self._now = now
        self._timed = isinstance(content.layout, Layout) and content.layout.form is not None
        self._id = state_id(timed_name(name) if self._timed else name)
        self._check_value = value_decoder(content.type.value)
        self._tag = version_tag(content.migrations)
        self._keys: dict[str, bytes] = {}
        """Stored keys by their displayed form, so that unchanged keys keep their bytes."""
        self._map_keys: dict[str, bytes] = {}

    def entries(self, functions: list[Change], frame: str) -> list[Entry]:
        """Return the state's entries after applying these functions, in the right key groups."""
        content = self._content
        stored = [entry for part in content.parts() for _, found in content.entries(part) for entry in found]
        table = pa.Table.from_batches([content.batch(stored)], content.schema)
        rows = table.to_pylist()
        for function in functions:
            table = as_table(function(as_frame(table, content, frame)), content.schema, self._described)
        changed = table.to_pylist()
        if content.timers:
            for (full, _), row in zip(stored, rows, strict=True):
                self._keys[repr(row["key"])] = timer_of(full)[1]
            return [self._timer(row) for row in changed]
        if content.type.kind in ("list", "timeline"):
            return list(self._lists(stored, rows, changed))
        return list(self._values(stored, rows, changed))

    # -- values and maps -----------------------------------------------------------------------------------------------

    def _values(self, stored: list[Entry], rows: list[Row], changed: list[Row]) -> Iterator[Entry]:
        before: dict[tuple[bytes, bytes], tuple[Row, bytes]] = {}
        for (full, data), row in zip(stored, rows, strict=True):
            key, rest = parts_of(full)
            self._keys[repr(row["key"])] = key
            if "map_key" in row:
                self._map_keys[repr(row["map_key"])] = rest[windows.NAME_LENGTH if self._content.windowed else 0 :]
            before[key, rest] = row, data
        seen = set()
        for row in changed:
            key, rest = self._key(row), self._namespace(row)
            if "map_key" in row:
                rest += self._map_key(row["map_key"])
            if (key, rest) in seen:
                raise self._refuse(row, "another row has the same key")
            seen.add((key, rest))
            old = before.get((key, rest))
            same = old is not None and all(same_value(old[0].get(name), row.get(name)) for name in _COMPARED)
            yield self._full(key) + rest, old[1] if same and old is not None else self._value(row)

    # -- lists ---------------------------------------------------------------------------------------------------------

    def _lists(self, stored: list[Entry], rows: list[Row], changed: list[Row]) -> Iterator[Entry]:
        at_times = self._content.type.kind == "timeline"
        chunks: dict[tuple[bytes, bytes], list[Entry]] = {}
        elements: dict[tuple[bytes, bytes], list[bytes]] = {}
        old_rows: dict[tuple[bytes, bytes], list[Row]] = {}
        remaining = iter(rows)
        for full, data in stored:
            key, rest = parts_of(full)
            place = key, rest if at_times else rest[: windows.NAME_LENGTH if self._content.windowed else 0]
            for element in _chunk(data):
                row = next(remaining)
                self._keys[repr(row["key"])] = key
                elements.setdefault(place, []).append(element)
                old_rows.setdefault(place, []).append(row)
            chunks.setdefault(place, []).append((rest, data))
        lists: dict[tuple[bytes, bytes], list[Row]] = {}
        for row in changed:
            rest = _ONE_TIME.pack(row["timestamp"] + _BIAS) if at_times else self._namespace(row)
            lists.setdefault((self._key(row), rest), []).append(row)
        for place, its_rows in lists.items():
            its_rows.sort(key=lambda row: (row["index"] is None, row["index"] or 0))
            before, known = old_rows.get(place, []), elements.get(place, [])
            now = [
                known[at]
                if (at := row["index"]) is not None
                and 0 <= at < len(known)
                and all(same_value(before[at].get(name), row.get(name)) for name in _COMPARED)
                else self._value(row)
                for row in its_rows
            ]
            key, rest = place
            if now == known:
                for tail, data in chunks[place]:
                    yield self._full(key) + tail, data
            else:
                yield self._full(key) + rest + (b"" if at_times else _ONE_TIME.pack(self._epoch)), codec.encode(now)

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _timer(self, row: Row) -> Entry:
        key, domain, time = self._key(row), row["domain"], row["timestamp"]
        if domain not in TIMER_KINDS or type(time) is not int:
            raise self._refuse(row, f"a timer must have an integer timestamp and one of the domains {TIMER_KINDS}")
        namespace = row["namespace"] or b""
        if not namespace and (row["window_start"] is not None or row["window_id"] is not None):
            namespace = self._window(row)
        head = struct.pack(">HI", key_group_of(key, self._groups), state_id(f"_timers {domain}"))
        return head + _TIME.pack(time + _BIAS, len(key)) + key + namespace, b""

    def _full(self, key: bytes) -> bytes:
        return HEADER.pack(key_group_of(key, self._groups), self._id, len(key)) + key

    def _key(self, row: Row) -> bytes:
        known = self._keys.get(repr(row["key"]))
        if known is None:
            try:
                known = canonical(self._content.key.to_key(row["key"]))
            except (ValueError, TypeError, KeyError, ArithmeticError) as error:
                raise self._refuse(row, f"its key is not of type {self._content.key.kind}: {error}") from None
        return known

    def _namespace(self, row: Row) -> bytes:
        return self._window(row) if self._content.windowed else b""

    def _window(self, row: Row) -> bytes:
        return windows.name_of(row["window_start"], row["window_end"], row["window_id"])

    def _map_key(self, shown: Any) -> bytes:
        known = self._map_keys.get(repr(shown))
        return map_key_bytes(self._content.type.key, shown, self._described) if known is None else known

    def _value(self, row: Row) -> bytes:
        if row.get("value_pickle") is not None:
            data = codec.encode(row["value_pickle"])
        elif row.get("value_any") is not None:
            data = other_bytes(row["value_any"], self._described)
        else:
            data = value_bytes(self._content.type.value, self._check_value, row["value"], self._described)
        data = self._tag + data
        if not self._timed:
            return data
        layout = self._content.layout
        assert isinstance(layout, Layout)
        assert layout.form is not None
        time = row["last_access"]
        if time is None:
            time = UNKNOWN if layout.form.event_time else self._now
        return STAMP.pack(layout.form.event_time, time) + data

    def _refuse(self, row: Row, why: str) -> PenstockError:
        return NotWritable(f"{self._described}: the row {row} cannot be written: {why}.")


def rewritten_shares(content: OperatorContent, functions: list[Change], frame: str, described: str) -> Shares:
    """Return the operator state after applying these functions."""
    shares, kind = content.shares, content.type
    table = pa.Table.from_batches(list(content.batches(0)), content.schema)
    before = table.to_pylist()
    for function in functions:
        table = as_table(function(as_frame(table, content, frame)), content.schema, described)
    stored = [element for elements in shares.by_subtask for element in elements]
    kept = {repr(row): element for row, element in zip(before, stored, strict=True)}
    check, tag = value_decoder(kind.value), version_tag(shares.migrations)
    by_subtask: list[list[bytes]] = [[] for _ in shares.by_subtask]
    map_keys = {}
    if shares.mode == BROADCAST:
        map_keys = {repr(row["map_key"]): decode_pair(element)[0] for row, element in zip(before, stored, strict=True)}
    for row in table.to_pylist():
        element = kept.get(repr(row))
        if shares.mode == GROUPED:
            # Elements are assigned by key group, whichever list they are in.
            by_subtask[0].append(in_group(row["key_group"], row["value"]))
            continue
        subtask = row["subtask"] or 0
        if not 0 <= subtask < len(by_subtask):
            raise NotWritable(
                f"{described}: subtask {subtask} does not exist; the state has {len(by_subtask)} subtasks."
            )
        if element is None:
            element = row["value"] if content.raw else tag + value_bytes(kind.value, check, row["value"], described)
            if shares.mode == BROADCAST:
                shown = row["map_key"]
                place = map_keys.get(repr(shown)) or map_key_bytes(kind.key, shown, described)
                element = codec.encode((place, element))
        by_subtask[subtask].append(element)
    if shares.mode == BROADCAST:
        by_subtask = [_unique(elements, described) for elements in by_subtask]
    return Shares(mode=shares.mode, schema=shares.schema, by_subtask=by_subtask, migrations=shares.migrations)


def version_tag(migrations: tuple[bytes, ...]) -> bytes:
    """Return the prefix of new values of a type with these migrations."""
    return versions_of(migrations).tag if migrations else b""


def _unique(elements: list[bytes], described: str) -> list[bytes]:
    pairs = dict(map(decode_pair, elements))
    if len(pairs) != len(elements):
        raise NotWritable(f"{described}: two rows have the same map key.")
    # Sorted by key, as a broadcast state writes them.
    return [codec.encode(pair) for pair in sorted(pairs.items())]


def value_bytes(shape: Shape, check: Callable[[bytes], Any], value: Any, described: str) -> bytes:
    """Return a column's value as the state stores it. Rejects values that could not be read back."""
    try:
        data = codec.encode(shape.to_wire(value)) if shape.write_whole is None else shape.write_whole(value)
        check(data)
        return data
    except (msgspec.DecodeError, ValueError, TypeError, KeyError, ArithmeticError, NotImplementedError) as error:
        raise NotWritable(f"{described}: {value!r} is not a valid {shape.text}: {error}.") from None


def other_bytes(text: Any, described: str) -> bytes:
    """Encode a value that is not of the state's type from its text."""
    try:
        return codec.encode(part_of_text(text))
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise NotWritable(f"{described}: {text!r} is not the text of a value: {error}.") from None


def map_key_bytes(shape: Shape | None, shown: Any, described: str) -> bytes:
    """Return the bytes under which a map key is stored."""
    assert shape is not None
    if "row<" in shape.text:
        raise NotWritable(f"{described}: new map keys of type {shape.text} cannot be created from a column.")
    try:
        if shape.text == "any":
            return key_of_text(shown)
        wire = shape.to_wire(shown)
        own = any(word in shape.text for word in _NOT_CANONICAL)
        data = b"\1" + codec.encode(wire) if own else b"\0" + encode_key(wire)
        map_key_decoder(shape)(data)
        return data
    except (msgspec.DecodeError, PenstockError, ValueError, TypeError, KeyError, ArithmeticError) as error:
        raise NotWritable(f"{described}: {shown!r} is not a map key of type {shape.text}: {error}.") from None
