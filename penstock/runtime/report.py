"""A task's acknowledgement of an epoch, sent to the driver after all barriers arrived and its state was written."""

from __future__ import annotations

import msgspec

from penstock.state.shares import Share
from penstock.state.ttl import Form


class DeltaHandle(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Refers to the changes of one operator subtask in one epoch: a content-named file, or inline if small."""

    name: str
    """Content name; the path below the storage root if `inline` is None."""
    size: int
    entries: int
    blocks: list[int]
    inline: bytes | None = None


class OperatorReport(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
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


class ChannelCount(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    channel: int
    target: int
    buffers: int
    records: int


class Report(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    chain: int
    subtask: int
    epoch: int
    records_in: int
    sent: list[ChannelCount]
    received: list[ChannelCount]
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
