"""The file format of deltas, bases and savepoints: an Arrow IPC file, sorted, one record batch per key group.

The schema's metadata contains the index: key group, row count, length and checksum of each batch, in file order. A
reader of some key groups touches only the schema and those batches, and verifies everything it uses. The rest of the
file (the footer) is for other programs: any Arrow reader can open it.

A file takes about 900 bytes, plus 430 for each key group in it, however few the entries.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from operator import itemgetter, lt
from typing import Any, BinaryIO, NamedTuple

import msgspec
import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from penstock.errors import PenstockError
from penstock.state.message_header import is_compressed

__all__ = [
    "RESTORE",
    "CorruptFile",
    "GroupChanges",
    "GroupTooLarge",
    "WrittenChanges",
    "content_name",
    "encode_changes",
    "map_file",
    "merge_changes",
    "prefix_end",
    "read_changes",
    "write_changes",
]


RESTORE = (
    "Restore it from a backup, or start from a checkpoint or savepoint that does not need it: "
    "execution.checkpointing.num-retained sets how many are kept. Nothing was changed here. To start over without the "
    "state, give the job another name."
)
"""What to do about a missing or damaged checkpoint file."""


class CorruptFile(PenstockError):
    """The content of a state file differs from the data written to it.

    Operator action: restore the file from a backup of the checkpoint directory, or start from an older checkpoint or
    a savepoint that does not need it. Check the disk: these files never change once written.
    """

    retryable = False


class GroupTooLarge(PenstockError):
    """The keys or values of one key group exceed what a file can hold per key group.

    Operator action: raise the max parallelism, which makes more and smaller key groups. If a single value is this
    large, use a MapState or ListState instead, whose elements are stored as separate entries.
    """


@dataclass(slots=True)
class GroupChanges:
    """The changes to one key group: remove every key that starts with a prefix in `cleared`, then put the entries, or
    delete those whose value is None. `entries` are strictly ascending by key."""

    group: int
    cleared: list[bytes]
    entries: list[tuple[bytes, bytes | None]]


class IndexedChanges(GroupChanges):
    """Changes to one key group whose entries are in a dict, ascending by key: to look them up, and to apply them fast.

    A dict knows the hashes of its keys, so updating another one with it takes little more than half the time.
    """

    __slots__ = ("_listed", "by_key", "deletes")

    def __init__(self, group: int, cleared: list[bytes], by_key: dict[bytes, bytes | None]) -> None:
        self.group, self.cleared, self.by_key = group, cleared, by_key
        self.deletes = None in by_key.values()
        self._listed: list[tuple[bytes, bytes | None]] | None = None

    @property
    def entries(self) -> list[tuple[bytes, bytes | None]]:  # type: ignore[override]
        if self._listed is None:
            self._listed = list(self.by_key.items())
        return self._listed


_CLEAR, _DELETE, _PUT = 0, 1, 2
_SCHEMA = pa.schema(
    [pa.field("op", pa.int8(), False), pa.field("key", pa.binary(), False), pa.field("value", pa.binary())]
)
_FORMAT = b"1"
_MAGIC = b"ARROW1"
_HEADER = 8  # the magic, padded
_MARK = 8  # before each message: a marker and a length
_TRAILER = 4 + len(_MAGIC)  # the footer's length and the magic

# Arrow's `binary` has 32-bit offsets.
_COLUMN_LIMIT = 2**31 - 1

_first = itemgetter(0)


class _IndexEntry(msgspec.Struct, array_like=True, kw_only=True):
    group: int
    rows: int
    length: int
    checksum: str


# 100,000 entries (20-byte keys, 5-byte values) in 128 key groups, on one core of a 2-core VM: encode_changes 43 ms,
# read_changes 17 ms, of which the checksums take less than 1 ms.
def encode_changes(groups: Iterable[GroupChanges]) -> bytes:
    """Return a file with these changes, strictly ascending by group. Used for small deltas.

    The same changes produce the same bytes in every process. Groups without changes are omitted.
    """
    messages: list[pa.Buffer] = []
    index = _Index()
    for change in groups:
        message = index.add(change)
        if message is not None:
            messages.append(message)
    sink = io.BytesIO()
    schema = index.schema()
    _assemble(schema, messages, sink)
    offset = _HEADER + len(schema.serialize())
    with sink.getbuffer() as written:
        for message in messages:
            # The index was computed before the batches were written; detect a writer with a different layout.
            _check_layout(written[offset : offset + len(message)] == memoryview(message).cast("B"))
            offset += len(message)
    return sink.getvalue()


class WrittenChanges(NamedTuple):
    """Description of a file written by `write_changes`."""

    digest: str
    """The `content_name` of the file."""
    size: int
    entries: int
    groups: list[int]


def write_changes(groups: Iterable[GroupChanges], file: BinaryIO) -> WrittenChanges:
    """Write the same file as `encode_changes`, with one key group at a time in memory. Used for large deltas, spilled
    deltas and bases. `file` must be empty and open for reading as well."""
    index = _Index()
    entries = 0
    # The index precedes the batches, so they are buffered in an unnamed file until all of them are known.
    with tempfile.TemporaryFile(prefix="penstock-batches-") as waiting:
        for change in groups:
            message = index.add(change)
            if message is not None:
                waiting.write(message)
                entries += len(change.entries)
        waiting.seek(0)
        schema = index.schema()
        sink = _Hashing(file)
        _assemble(schema, (pa.py_buffer(waiting.read(batch.length)) for batch in index.batches), sink)
    file.seek(_HEADER + len(schema.serialize()))
    for batch in index.batches:
        _check_layout(xxh3_128_hexdigest(file.read(batch.length)) == batch.checksum)
    file.seek(0, os.SEEK_END)
    return WrittenChanges(sink.digest.hexdigest(), file.tell(), entries, [batch.group for batch in index.batches])


class _Index:
    """The index of a file being written."""

    def __init__(self) -> None:
        self.batches: list[_IndexEntry] = []
        self._last = -1

    def add(self, change: GroupChanges) -> pa.Buffer | None:
        """Add a key group and return its message, or None if nothing changes."""
        if change.group <= self._last:
            raise ValueError(f"Key group {change.group} comes after {self._last}: groups must be in ascending order.")
        if not change.cleared and not change.entries:
            return None
        self._last = change.group
        batch = _to_batch(change)
        message = batch.serialize()
        self.batches.append(
            _IndexEntry(
                group=change.group, rows=batch.num_rows, length=len(message), checksum=xxh3_128_hexdigest(message)
            )
        )
        return message

    def schema(self) -> pa.Schema:
        encoded = msgspec.json.encode(self.batches)
        return _SCHEMA.with_metadata(
            {
                "penstock.format": _FORMAT,
                "penstock.index": encoded,
                "penstock.index.checksum": xxh3_128_hexdigest(encoded),
            }
        )


def _assemble(schema: pa.Schema, messages: Iterable[pa.Buffer], sink: io.BytesIO | _Hashing) -> None:
    with pa.ipc.new_file(sink, schema) as writer:
        for message in messages:
            writer.write_batch(pa.ipc.read_record_batch(message, _SCHEMA))


def _check_layout(as_expected: bool) -> None:
    if not as_expected:
        raise PenstockError(
            f"pyarrow {pa.__version__} lays out files in an unexpected way; install the version that Penstock requires."
        )


class _Hashing:
    """A file that is written sequentially, and the hash of its content."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = _content_hash()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Do nothing: the owner of the file closes it."""


def _to_batch(change: GroupChanges) -> pa.RecordBatch:
    cleared = _minimal(change.cleared)
    keys = [key for key, _ in change.entries]
    if not all(map(lt, keys, islice(keys, 1, None))):
        raise ValueError(f"The entries of key group {change.group} are not strictly ascending by key.")
    values: list[bytes | None] = [value for _, value in change.entries]
    keys[:0] = cleared
    values[:0] = [None] * len(cleared)
    for what, size in (("keys", sum(map(len, keys))), ("values", sum(map(len, filter(None, values))))):
        if size > _COLUMN_LIMIT:
            raise GroupTooLarge(
                f"The {what} of key group {change.group} take {size} bytes, but a file can hold only {_COLUMN_LIMIT} "
                f"per key group. Raise the max parallelism, or split large values into elements of a MapState."
            )
    value_column = _binary(values)
    puts = len(values) - value_column.null_count
    if puts == len(change.entries):
        ops = bytes(len(cleared)) + bytes([_PUT]) * puts
    else:
        ops = bytes(len(cleared)) + bytes([_DELETE if value is None else _PUT for _, value in change.entries])
    op_column = pa.Array.from_buffers(pa.int8(), len(ops), [None, pa.py_buffer(ops)])
    return pa.record_batch([op_column, _binary(keys), value_column], schema=_SCHEMA)


def _binary(values: list[Any]) -> pa.Array:
    """Same as `pa.array(values, pa.binary())`, which would first import pandas if it is installed: 0.2 s."""
    valid = None
    if not all(values) and None in values:
        bits = "".join("0" if value is None else "1" for value in reversed(values))
        valid = pa.py_buffer(int(bits, 2).to_bytes(-(-len(values) // 8), "little"))
        values = [value or b"" for value in values]
    offsets = array("i", [0, *accumulate(map(len, values))])
    return pa.Array.from_buffers(
        pa.binary(), len(values), [valid, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    )


def content_name(data: bytes | memoryview) -> str:
    """Return a file name derived from the content: a retried task that does the same work writes the same file."""
    return _content_hash(data).hexdigest()


def _content_hash(data: bytes | memoryview = b"") -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=16)


def map_file(path: str | os.PathLike[str]) -> pa.Buffer:
    """Memory-map a file for `read_changes`; pages that are not accessed are not read. The file must not change."""
    with pa.memory_map(os.fspath(path)) as file:
        return file.read_buffer()


def read_changes(
    data: bytes | memoryview | pa.Buffer, groups: Container[int] | None = None, *, name: str = "a state file"
) -> Iterator[GroupChanges]:
    """Yield the changes of these key groups, or of all, ascending by group.

    Raises:
        CorruptFile: A group differs from the encoded one; the message contains `name`. Groups yielded before are valid.
    """
    try:
        yield from _read_changes(pa.py_buffer(data), groups)
    except CorruptFile as error:
        raise CorruptFile(f"Corrupt: {name}. {error}", fix=RESTORE) from error


def _read_changes(buffer: pa.Buffer, groups: Container[int] | None) -> Iterator[GroupChanges]:
    index, offset = _read_index(buffer)
    for batch in index:
        if groups is None or batch.group in groups:
            message = buffer.slice(offset, batch.length)
            if xxh3_128_hexdigest(message) != batch.checksum:
                raise CorruptFile(f"Key group {batch.group}, {batch.length} bytes at {offset}: wrong checksum.")
            yield _from_message(message, batch)
        offset += batch.length


def _from_message(message: pa.Buffer, expected: _IndexEntry) -> GroupChanges:
    # The checksum is right, so wrong content was written: by a bug, or by someone who edited a savepoint.
    try:
        if is_compressed(memoryview(message).cast("B")[_MARK:]):
            raise CorruptFile(f"Key group {expected.group} is compressed, but state files never are.")
        batch = pa.ipc.read_record_batch(message, _SCHEMA)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(f"Key group {expected.group} cannot be decoded: {error}") from error
    ops = bytes(batch.column(0).to_pylist()) if batch.num_rows == expected.rows else b""
    cleared = ops.count(_CLEAR)
    nulls = batch.column(2).null_count
    if not ops or ops.count(_PUT) != len(ops) - nulls or ops.rfind(_CLEAR) != cleared - 1:
        raise CorruptFile(f"Key group {expected.group} contains invalid rows.")
    keys = batch.column(1).to_pylist()
    return GroupChanges(
        expected.group, keys[:cleared], list(zip(keys[cleared:], batch.column(2).slice(cleared).to_pylist()))
    )


def _read_index(buffer: pa.Buffer) -> tuple[list[_IndexEntry], int]:
    """Return the index and the offset of the first batch."""
    size = len(buffer)
    view = memoryview(buffer).cast("B")
    if size < _HEADER + _MARK + _TRAILER or view[: len(_MAGIC)] != _MAGIC:
        raise CorruptFile(f"Not a state file: {size} bytes without the header of an Arrow file.")
    if view[size - len(_MAGIC) :] != _MAGIC:
        raise CorruptFile(f"Truncated: an Arrow file of {size} bytes without its end marker.")
    start = _HEADER + _MARK + int.from_bytes(view[_HEADER + 4 : _HEADER + _MARK], "little")
    try:
        metadata = pa.ipc.read_schema(buffer.slice(_HEADER, max(0, min(start, size) - _HEADER))).metadata or {}
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(f"The schema cannot be read: {error}") from error
    encoded = metadata.get(b"penstock.index", b"")
    if xxh3_128_hexdigest(encoded).encode() != metadata.get(b"penstock.index.checksum"):
        raise CorruptFile("The checksum of the index is missing or wrong.")
    if metadata.get(b"penstock.format") != _FORMAT:
        raise CorruptFile(f"Format {metadata.get(b'penstock.format')!r}; this version reads {_FORMAT!r}.")
    try:
        index = msgspec.json.decode(encoded, type=list[_IndexEntry])
    except msgspec.DecodeError as error:
        raise CorruptFile(f"The index cannot be decoded: {error}") from error
    footer = int.from_bytes(view[size - _TRAILER : size - len(_MAGIC)], "little")
    end = start + sum(batch.length for batch in index) + _MARK + footer + _TRAILER
    if end != size or any(batch.length <= 0 for batch in index):
        raise CorruptFile(f"Truncated or concatenated: {size} bytes, but {end} according to the index.")
    return index, start


def merge_changes(layers: list[GroupChanges], *, as_base: bool = False) -> GroupChanges:
    """Combine changes to one key group, oldest first, into one change with the same effect.

    With `as_base`, the effect is that on an empty group: deletions and clears are applied and then dropped.
    """
    group = layers[0].group
    if any(layer.group != group for layer in layers):
        raise ValueError(f"Cannot merge key groups {sorted({layer.group for layer in layers})} into one.")
    cleared: list[bytes] = []
    surviving: list[list[tuple[bytes, bytes | None]]] = []
    for layer in reversed(layers):
        surviving.append(_without(layer.entries, cleared))
        cleared = _minimal(cleared + layer.cleared)
    merged: dict[bytes, bytes | None] = {}
    for entries in reversed(surviving):
        merged.update(entries)
    if as_base:
        return GroupChanges(group, [], sorted((entry for entry in merged.items() if entry[1] is not None), key=_first))
    return GroupChanges(group, cleared, sorted(merged.items(), key=_first))


def _minimal(prefixes: list[bytes]) -> list[bytes]:
    """Return the prefixes sorted, without those that another prefix covers."""
    kept: list[bytes] = []
    for prefix in sorted(prefixes):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return kept


def _without(entries: list[tuple[bytes, bytes | None]], prefixes: list[bytes]) -> list[tuple[bytes, bytes | None]]:
    """Return the entries that no prefix of a minimal list covers."""
    if not prefixes:
        return entries
    kept: list[tuple[bytes, bytes | None]] = []
    start = 0
    for prefix in prefixes:
        end = prefix_end(prefix)
        low = bisect_left(entries, prefix, start, key=_first)
        high = len(entries) if end is None else bisect_left(entries, end, low, key=_first)
        kept += entries[start:low]
        start = high
    return kept + entries[start:]


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the smallest key greater than all keys with this prefix, or None if none exists."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
