"""A task's acknowledgement of an epoch, sent to the driver when its barriers are in and its state is written."""

from __future__ import annotations

import msgspec

from penstock.state.shares import Share
from penstock.state.ttl import Form


class DeltaHandle(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Where the changes of one operator subtask in one epoch are: a content-named file, or inline when small."""

    name: str
    """Content name; the path below the storage root where `inline` is None."""
    size: int
    entries: int
    blocks: list[int]
    inline: bytes | None = None


class OperatorReport(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    uid: str
    states: dict[str, str]
    """State name to the schema of its serializer."""
    deltas: list[DeltaHandle]
    committable: bytes | None = None
    """What a sink hands over for the second phase, opaque to everyone but the sink."""
    operator_state: dict[str, Share] = {}
    """By the names of the states, all of this subtask's."""
    timers: dict[str, dict[int, int]] = {}
    """By kind and block of key groups, the time of the first timer."""
    ttl: dict[str, Form] = {}
    """How states with TTL are stored, by name."""
    migrations: dict[str, tuple[bytes, ...]] = {}
    """For states whose type has changed, from each version of it to the next."""


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
    """Where event time stands at the end: by operator uid, and by split for those that make watermarks in a source's
    chain; under an empty name for all others."""
    idle: list[str] = []
    """The operators that were, at the end: all inputs of the task were or, behind an operator that makes watermarks,
    this was."""
    active: list[str] = []
    """The operators that make watermarks behind an exchange and had records."""
    shown: dict[str, int] = {}
    """In a source's chain whose splits have names: the watermark that functions have seen, by what makes it."""


encode_report = msgspec.msgpack.Encoder().encode
decode_report = msgspec.msgpack.Decoder(Report).decode
