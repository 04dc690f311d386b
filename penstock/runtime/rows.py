"""What crosses a shuffle: rows of one schema, carrying buffers, barriers, reports and failures.

A row is `(target, route, channel, seq, kind, payload)`. `target` is the partition of the next stage; `route`
names the final destination, so that an edge which skips a level passes through it. Everything in a row must be
a pure function of input and state: Spark compares the checksums of retried tasks and aborts when they differ.
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
"""Of what reaches the driver beside the rows, and so need not be the same at each attempt: TaskMetrics."""

END_LEVEL = 0x7FFFFFFF
"""The level of the driver: reports and failures are routed there, past every stage."""


class ExchangeRow(NamedTuple):
    """A row of the exchange. Made positionally: 0.33 µs each, 0.56 µs with keywords."""

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
    """Records of the buffer before it."""
    channel: str
    watermark: int
    idle: bool = False
    """Whether the channel has become idle: nobody need wait for it."""


class Buffer(msgspec.Struct, array_like=True, kw_only=True):
    """Many records for one target. `keys` holds canonical key bytes, one per record, on keyed edges only."""

    keys: list[bytes] | None
    values: bytes
    times: bytes | None = None
    """Timestamps, 64 bits each, LEAST for none; None where no record has one."""
    marks: list[WatermarkAt] = []
    """Watermarks at their places in the order."""


class Barrier(msgspec.Struct, array_like=True, kw_only=True):
    """Ends one channel of one epoch with the counts of what it closes."""

    epoch: int
    buffers: int
    records: int
    checksum: int
    """Of the channel's buffers, by `add_checksum`: another buffer in the place of one is noticed."""
    failed: bool = False
    """The producer failed: nothing after this channel can be complete."""
    watermarks: dict[str, int] = {}
    """Where the producer stood at the end: by split for a source, else under an empty name."""
    idle: list[str] = []
    """Which of these channels are idle."""


def add_checksum(total: int, payload: bytes, seq: int) -> int:
    """`total` with a buffer at its place in the channel added, in whatever order they come."""
    return (total + xxhash.xxh3_64_intdigest(payload, seq)) & 0xFFFF_FFFF_FFFF_FFFF


class Failure(msgspec.Struct, array_like=True, kw_only=True):
    """Why a task could not finish its epoch, in words for the user."""

    operator: str
    uid: str
    subtask: int
    error: str
    """Class and message of the exception."""
    traceback: str
    """The user's frames, already cleaned."""
    from_user: bool = True
    headline: str = ""
    """What is wrong, without the fix."""
    fix: str = ""
    record: str = ""
    """The record that was processed, if one was."""
    locations: tuple[SourceLocation, ...] = ()
    """The user's lines, innermost first; the line that declared the operator where none of the user's was running."""
    retryable: bool = True
    """Whether a restart from the last checkpoint could help."""
    is_source: bool = False
    """Whether `operator` is a source."""


class Codec(NamedTuple):
    """How the records of one edge become bytes: typed where the type is known, pickled otherwise."""

    encode_many: Callable[[list[Any]], bytes]
    """Of at least one record, each held by `hold` if an operator gave it."""
    decode_many: Callable[[bytes], list[Any]]
    hold: Callable[[Any], Any]
    """A record as it may be kept until its buffer is written, whatever its giver does with it."""


def _pickle_many(values: list[Any]) -> bytes:
    kinds = set(map(type, values))
    if Frozen in kinds:
        return _ONE_BY_ONE + encode_struct([v.data if type(v) is Frozen else to_pickle(v) for v in values])
    if kinds == {Row}:
        # Rows of one shape, as a Spark source gives them, travel as lists of their values: a third of the cost.
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
"""What the first byte says of a buffer's values. `RowBatch.take` writes columns, `hinted_codec` typed ones."""
_decode_each = msgspec.msgpack.Decoder(list[bytes]).decode

PICKLED = Codec(_pickle_many, _unpickle_many, hold)
"""For records without a declared type. Both ends are tasks of one job, so nothing foreign is unpickled."""

encode_struct = msgspec.msgpack.Encoder().encode
decode_buffer = msgspec.msgpack.Decoder(Buffer).decode
decode_barrier = msgspec.msgpack.Decoder(Barrier).decode
decode_failure = msgspec.msgpack.Decoder(Failure).decode
