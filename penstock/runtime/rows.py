"""The rows that cross a shuffle: one schema that carries buffers, barriers, reports and failures.

A row is `(target, route, channel, seq, kind, payload)`. `target` is the partition of the next stage. `route` is the
final destination: an edge that skips a level passes through it. Everything in a row must be a pure function of input
and state, because Spark compares the checksums of retried tasks and aborts if they differ.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import xxhash

from penstock.common.pickling import Frozen, to_pickle
from penstock.common.row import Row, names_of, values_of_inserts
from penstock.errors import SourceLocation
from penstock.runtime.columns import rows_from
from penstock.runtime.sharing import hold

DATA, BARRIER, REPORT, FAILURE = 0, 1, 2, 3

METRICS = 4
"""TaskMetrics, which reach the driver outside the rows and can therefore differ between attempts."""

END_LEVEL = 0x7FFFFFFF
"""The driver's level: reports and failures are routed there, past every stage."""


class ExchangeRow(NamedTuple):
    """A row of the exchange. Created with positional arguments: 0.33 µs each, instead of 0.56 µs with keywords."""

    target: int
    route: int
    channel: int
    seq: int
    kind: int
    payload: bytes


def route_to(level: int, target: int) -> int:
    return level << 32 | target


def route_level(route: int) -> int:
    return route >> 32


def route_target(route: int) -> int:
    return route & 0xFFFFFFFF


def channel_of(edge: int, producer: int) -> int:
    return edge << 32 | producer


def edge_of(channel: int) -> int:
    return channel >> 32


def producer_of(channel: int) -> int:
    return channel & 0xFFFFFFFF


class WatermarkAt(msgspec.Struct, array_like=True, kw_only=True):
    position: int
    """Number of records in the buffer before it."""
    channel: str
    watermark: int
    idle: bool = False
    """Whether the channel has become idle: consumers do not wait for it."""


class Buffer(msgspec.Struct, array_like=True, kw_only=True):
    """Many records for one target. On keyed edges only, `keys` holds the encoded key of each record."""

    keys: list[bytes] | None
    values: bytes
    times: bytes | None = None
    """Timestamps, 64 bits each, LEAST for a record without one; None if no record has one."""
    marks: list[WatermarkAt] = []
    """Watermarks with their positions among the records."""


class Barrier(msgspec.Struct, array_like=True, kw_only=True):
    """Ends one channel for one epoch, with the counts of buffers and records sent."""

    epoch: int
    buffers: int
    records: int
    checksum: int
    """Checksum of the channel's buffers (`add_checksum`), to detect a replaced buffer."""
    failed: bool = False
    """Whether the producer failed: nothing downstream of this channel can be complete."""
    watermarks: dict[str, int] = {}
    """The producer's watermarks at the end: by split for a source, otherwise under an empty name."""
    idle: list[str] = []
    """The idle ones among these channels."""


def add_checksum(total: int, payload: bytes, seq: int) -> int:
    """Return `total` with a buffer's checksum added. The result is independent of the order of arrival."""
    return (total + xxhash.xxh3_64_intdigest(payload, seq)) & 0xFFFF_FFFF_FFFF_FFFF


class Failure(msgspec.Struct, array_like=True, kw_only=True):
    """Why a task could not finish its epoch, described for the user."""

    operator: str
    uid: str
    subtask: int
    error: str
    """Class and message of the exception."""
    traceback: str
    """The traceback, limited to the user's frames."""
    from_user: bool = True
    headline: str = ""
    """The description of the error, without the fix."""
    fix: str = ""
    record: str = ""
    """The record being processed, if any."""
    locations: tuple[SourceLocation, ...] = ()
    """The user's lines, innermost first; the line that declared the operator if no user code was running."""
    retryable: bool = True
    """Whether a restart from the last checkpoint could help."""
    is_source: bool = False
    """Whether `operator` is a source."""


class Codec(NamedTuple):
    """Serialization of one edge's records: typed if the type is known, otherwise pickled."""

    encode_many: Callable[[list[Any]], bytes]
    """Encodes at least one record. Records of an operator must have passed through `hold`."""
    decode_many: Callable[[bytes], list[Any]]
    hold: Callable[[Any], Any]
    """Returns a form of a record that stays valid until its buffer is written, whatever the emitter changes."""


def _pickle_many(values: list[Any]) -> bytes:
    kinds = set(map(type, values))
    if Frozen in kinds:
        return _ONE_BY_ONE + encode_struct([v.data if type(v) is Frozen else to_pickle(v) for v in values])
    if kinds == {Row}:
        # Rows of one shape, as from a Spark source, travel as lists of their values, at a third of the cost.
        names = names_of(values[0])
        bare = values_of_inserts(values, names)
        if len(bare) == len(values):
            return _ROWS + to_pickle((names, bare))
    return _OBJECTS + to_pickle(values)


def _unpickle_many(data: bytes) -> list[Any]:
    kind, content = data[:1], memoryview(data)[1:]
    if kind == COLUMNS:
        return rows_from(content)
    if kind == _ONE_BY_ONE:
        return list(map(pickle.loads, _decode_each(content)))
    if kind == _ROWS:
        return Row.many(*pickle.loads(content))
    return pickle.loads(content)  # type: ignore[no-any-return]


COLUMNS, TYPED, _ROWS, _OBJECTS, _ONE_BY_ONE = b"C", b"T", b"R", b"O", b"1"
"""The first byte of a buffer's values: its encoding. `RowBatch.take` writes columns, `hinted_codec` typed values."""
_decode_each = msgspec.msgpack.Decoder(list[bytes]).decode

PICKLED = Codec(_pickle_many, _unpickle_many, hold)
"""For records without a declared type. Both ends are tasks of one job, so no foreign data is unpickled."""

encode_struct = msgspec.msgpack.Encoder().encode
decode_buffer = msgspec.msgpack.Decoder(Buffer).decode
decode_barrier = msgspec.msgpack.Decoder(Barrier).decode
decode_failure = msgspec.msgpack.Decoder(Failure).decode
