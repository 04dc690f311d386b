"""The contents of a table: an operator's keyed state, read block by block, or its operator state, held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from penstock.checkpoint.manifest import OperatorSnapshot
from penstock.errors import PenstockError
from penstock.state.files import GroupChanges
from penstock.state.key_groups import key_group_of
from penstock.state.shares import BROADCAST, GROUPED, Shares, group_of, without_group
from penstock.tables.keys import TEXT, KeyShape, MixedKeys, canonical, decode_key, key_shape
from penstock.tables.layouts import (
    Entry,
    Layout,
    TimerLayout,
    is_windowed,
    map_key_decoder,
    parts_of,
    present,
    timer_of,
    value_decoder,
)
from penstock.tables.schemas import state_type
from penstock.tables.snapshot import TIMERS
from penstock.tables.sources import KeyedSource

_SAMPLE = 500
"""Number of keys per block sampled to determine the type of a job's keys."""
_ENTRIES = 32_768
_BYTES = 4 * 1024 * 1024
"""Approximate size of a record batch. A single value or list is never split."""


class UnreadableState(PenstockError):
    """A state file contains data that does not match the state's stored type.

    Operator action: use another copy of the savepoint, or another checkpoint. Nothing was changed.
    """

    retryable = False


class Content(Protocol):
    """The rows of one state, in parts that any process can read independently."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""

    def parts(self) -> list[int]:
        """Return the indexes of the parts that can be read separately."""

    def batches(self, part: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""


class KeyedContent:
    """A keyed state, or the timers, of one operator. Keeps one key group in memory at a time."""

    def __init__(
        self,
        source: KeyedSource,
        uid: str,
        snapshot: OperatorSnapshot,
        name: str,
        key: KeyShape | None = None,
        windowed: bool | None = None,
    ) -> None:
        """Read a state. `key` and `windowed` are results of an earlier sample."""
        self._source = source
        self._uid = uid
        self._snapshot = msgspec.structs.replace(snapshot, operator_state={})
        self._name = name
        self._schema = snapshot.states.get(name, "")
        self.timers = name == TIMERS and name not in snapshot.states
        self.type = state_type(self._schema)
        if key is None or windowed is None:
            found, windowed = self._look()
            key = key or found
        self.key = key
        self.windowed = windowed
        self.layout = TimerLayout(key) if self.timers else Layout(self._snapshot, name, self.type, key, windowed)

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyedContent, (self._source, self._uid, self._snapshot, self._name, self.key, self.windowed)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self.layout.schema

    @property
    def migrations(self) -> tuple[bytes, ...]:
        """The migrations from the first version of the type to the current one."""
        return self._snapshot.migrations.get(self._name, ())

    @property
    def max_parallelism(self) -> int:
        """The number of key groups."""
        return self._snapshot.max_parallelism

    def with_text_keys(self) -> KeyedContent:
        """Return the same content with keys as text."""
        return KeyedContent(self._source, self._uid, self._snapshot, self._name, TEXT, self.windowed)

    def parts(self) -> list[int]:
        """Return the numbers of the blocks that contain state."""
        return self._source.blocks()

    def batches(self, part: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block."""
        waiting: list[Entry] = []
        size = 0
        for group, entries in self.entries(part):
            for entry in entries:
                full = size >= _BYTES or len(waiting) >= _ENTRIES
                if full and not self.layout.goes_on(waiting[-1][0], entry[0]):
                    yield self._batch(waiting, part, group)
                    waiting, size = [], 0
                waiting.append(entry)
                size += len(entry[1])
        if waiting:
            yield self._batch(waiting, part, None)

    def entries(self, part: int, wanted: range | None = None) -> Iterator[tuple[int, list[Entry]]]:
        """Yield each key group and the state's entries in it."""
        return self._entries(part, self._source.groups(part, wanted))

    def _entries(self, part: int, groups: Iterator[GroupChanges]) -> Iterator[tuple[int, list[Entry]]]:
        for change in groups:
            try:
                entries = self.layout.entries(change)
            except Exception as error:
                raise self._unreadable(part, change.group, error) from error
            if entries:
                yield change.group, entries

    def rows_of(self, key: Any) -> list[dict[str, Any]]:
        """Return the rows of one key. Reads only its key group."""
        data = canonical(key)
        group = key_group_of(data, self.max_parallelism)
        block = self._source.block_of(group)
        found: list[Entry] = []
        if block in self._source.blocks():
            for _, entries in self.entries(block, range(group, group + 1)):
                found += [entry for entry in entries if self.key_of(entry[0]) == data]
        return self._batch(found, block, group).to_pylist() if found else []

    def batch(self, entries: list[Entry]) -> pa.RecordBatch:
        """Convert entries returned by `entries` to rows."""
        return self._batch(entries, 0, None)

    def key_of(self, full: bytes) -> bytes:
        """Return the stored bytes of the key of an entry."""
        return timer_of(full)[1] if self.timers else parts_of(full)[0]

    def _batch(self, entries: list[Entry], part: int, group: int | None) -> pa.RecordBatch:
        try:
            columns = self.layout.columns(entries)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
            return pa.record_batch(arrays, schema=self.schema)
        except Exception as error:  # corrupt bytes can raise anything in a decoder
            self._check_keys(entries, error)
            raise self._unreadable(part, group, error) from error

    def _check_keys(self, entries: list[Entry], error: Exception) -> None:
        """Raise MixedKeys if the failure is due to keys that do not fit into one column."""
        try:
            found = key_shape(decode_key(self.key_of(full)) for full, _ in entries)
        except Exception:  # not valid keys
            return
        if self.key.kind != TEXT.kind and (found.kind, found.names) != (self.key.kind, self.key.names):
            raise MixedKeys(
                f"State '{self._name}' of operator '{self._snapshot.name}' (uid '{self._uid}') has keys of several "
                f"types, {self.key.kind} and {found.kind}, which cannot share a column.",
                fix="Read the state with keys_as_text=True.",
            ) from error

    def _look(self) -> tuple[KeyShape, bool]:
        """Return the shape of the keys, and whether the state belongs to windows."""
        keys: list[Any] = []
        windowed = False
        probe = TimerLayout(TEXT) if self.timers else Layout(self._snapshot, self._name, self.type, TEXT, False)
        self.layout = probe
        for part, groups in self._source.sample():
            for group, entries in self._entries(part, groups):
                try:
                    if not keys and not self.timers:
                        windowed = is_windowed(self._name, self.type.kind, parts_of(entries[0][0])[1])
                    keys += [decode_key(self.key_of(full)) for full, _ in islice(entries, _SAMPLE)]
                except Exception as error:
                    raise self._unreadable(part, group, error) from error
                break
        return key_shape(keys), windowed

    def _unreadable(self, part: int, group: int | None, error: Exception) -> PenstockError:
        if isinstance(error, PenstockError):
            return error
        where = "" if group is None else f", key group {group}"
        return UnreadableState(
            f"State '{self._name}' of operator '{self._snapshot.name}' (uid '{self._uid}') cannot be read: "
            f"{self._source.named(part)}{where} contains data that is not a valid {self._schema or 'timer'}: "
            f"{type(error).__name__}: {error}",
            fix="Use another copy, or another savepoint or checkpoint. Nothing was changed.",
        )


class OperatorContent:
    """A list, union, broadcast or raw state, which is stored in the snapshot itself."""

    def __init__(self, described: str, shares: Shares, where: str) -> None:
        self._described = described
        self._where = where
        self.shares = shares
        self.type = state_type(shares.schema)
        self._value = value_decoder(self.type.value)
        self._present = present(shares.migrations)
        self._key = None if self.type.key is None else map_key_decoder(self.type.key)
        value = pa.field("value", self.type.value.arrow)
        if shares.mode == GROUPED:
            fields = [pa.field("key_group", pa.int64()), pa.field("value", pa.binary())]
        elif shares.mode == BROADCAST and self.type.key is not None:
            fields = [pa.field("subtask", pa.int64()), pa.field("map_key", self.type.key.arrow), value]
        else:
            fields = [pa.field("subtask", pa.int64()), pa.field("index", pa.int64()), value]
        self.raw = shares.schema == "bytes"
        self._schema = pa.schema(fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return OperatorContent, (self._described, self.shares, self._where)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self._schema

    def parts(self) -> list[int]:
        """Return one part: operator state is small."""
        return [0]

    def batches(self, part: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows."""
        try:
            rows = list(self._rows())
            columns = [list(column) for column in zip(*rows)] if rows else [[] for _ in self.schema]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
            yield pa.record_batch(arrays, schema=self.schema)
        except Exception as error:  # corrupt bytes can raise anything in a decoder
            if isinstance(error, PenstockError):
                raise
            raise UnreadableState(
                f"{self._described} cannot be read: {self._where} contains data that is not a valid "
                f"{self.shares.schema}: {type(error).__name__}: {error}",
                fix="Use another copy, or another savepoint or checkpoint. Nothing was changed.",
            ) from error

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        for subtask, elements in enumerate(self.shares.by_subtask):
            for index, element in enumerate(elements):
                if self.shares.mode == GROUPED:
                    yield group_of(element), without_group(element)
                elif self._key is not None and self.shares.mode == BROADCAST:
                    key, value = decode_pair(element)
                    yield subtask, self._key(key), self._read(value)
                else:
                    yield subtask, index, element if self.raw else self._read(element)

    def _read(self, data: bytes) -> Any:
        return self._value(data if self._present is None else self._present(data))


decode_pair = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode
