"""A task's acknowledgement of an epoch, sent to the driver after all barriers arrived and its state was written.

`gc=False`: thousands of reports and deltas are alive at once, and none can be part of a cycle. Without it, Python's
collector made decoding a manifest of 2,000 deltas six times as slow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec
import xxhash

from penstock.state.shares import Share
from penstock.state.ttl import Form


class DeltaHandle(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """Refers to the changes of one operator subtask in one epoch: a content-named file, or inline if small."""

    name: str
    """Content name; the path below the storage root if `inline` is None."""
    size: int
    entries: int
    blocks: list[int]
    inline: bytes | None = None


class OperatorReport(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    uid: str
    states: dict[str, str]
    """Maps state names to the schemas of their serializers."""
    deltas: list[DeltaHandle]
    committable: bytes | None = None
    """A sink's committable for the second phase, opaque to everything except the sink."""
    operator_state: dict[str, Share] = {}
    """All operator state of this subtask, by state name."""
    timers: dict[str, dict[int, int]] = {}
    """The time of the earliest timer, by kind and block of key groups."""
    ttl: dict[str, Form] = {}
    """How states with TTL are stored, by name."""
    migrations: dict[str, tuple[bytes, ...]] = {}
    """The steps from each version of a state's type to the next, for states whose type has changed."""
    queryable: dict[str, str] = {}
    """The names under which states can be read from outside the job, by name of the state."""
    unused: list[str] = []
    """Stored states that no function has asked for since the task was opened."""


class EdgeTotals(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """All channels of one edge that begin at a task, as the task sent them, or that end at it, as it received them.

    A report does not list channels: an exchange between 500 and 500 subtasks has 250,000.
    """

    edge: int
    channels: int
    buffers: int
    records: int
    fingerprint: int
    """The sum of the fingerprints of the channels. It does not depend on which tasks report them."""


_CHANNEL = struct.Struct(">QQQQQ")


def channel_fingerprint(channel: int, target: int, buffers: int, records: int, checksum: int) -> int:
    """Return a hash of a channel to a target with everything that a barrier states about it."""
    return xxhash.xxh3_64_intdigest(_CHANNEL.pack(channel, target, buffers, records, checksum))


def summed(totals: Iterable[EdgeTotals]) -> dict[int, EdgeTotals]:
    """Return the sums by edge."""
    sums: dict[int, EdgeTotals] = {}
    for each in totals:
        before = sums.get(each.edge)
        sums[each.edge] = each if before is None else _sum(before, each)
    return sums


def _sum(one: EdgeTotals, other: EdgeTotals) -> EdgeTotals:
    return EdgeTotals(
        edge=one.edge,
        channels=one.channels + other.channels,
        buffers=one.buffers + other.buffers,
        records=one.records + other.records,
        fingerprint=(one.fingerprint + other.fingerprint) & 0xFFFF_FFFF_FFFF_FFFF,
    )


class Report(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    chain: int
    subtask: int
    epoch: int
    records_in: int
    sent: list[EdgeTotals]
    """One for each edge that begins at the task."""
    received: list[EdgeTotals]
    """One for each edge that ends at the task."""
    operators: list[OperatorReport]
    watermarks: dict[str, dict[str, int]] = {}
    """Watermarks at the end of the epoch: by operator uid, and by split for operators that generate watermarks in a
    source's chain, otherwise under an empty name."""
    idle: list[str] = []
    """Operators that are idle at the end of the epoch: downstream of an operator that generates watermarks, if that
    operator is idle, otherwise if all inputs of the task are."""
    active: list[str] = []
    """Operators behind an exchange that generate watermarks and had records."""
    shown: dict[str, int] = {}
    """In a source's chain with named splits: the watermark that functions have seen, by uid of its generator."""


encode_report = msgspec.msgpack.Encoder().encode
decode_report = msgspec.msgpack.Decoder(Report).decode
