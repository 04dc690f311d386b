"""The msgpack encoder, and matching decoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.common.time import Instant
from penstock.state.serializers.array_wire import array_of, is_array, is_array_type, wire_of

__all__ = ["AsKey", "decoder", "encode"]


class AsKey:
    """Hashable wrapper of an unhashable value, for use as a dict key that is only encoded."""

    __slots__ = ("wire",)

    def __init__(self, wire: Any) -> None:
        self.wire = wire


def _write(value: Any) -> Any:
    if type(value) is Instant:
        return value.seconds, value.nanos
    if type(value) is AsKey:
        return value.wire
    if is_array(value):
        return wire_of(value)
    raise NotImplementedError(f"{type(value).__module__}.{type(value).__qualname__} has no wire form")


def _read(cls: type, wire: Any) -> Any:
    if cls is Instant:
        return Instant(*wire)
    if is_array_type(cls):
        return array_of(cls, wire)
    raise NotImplementedError(f"{cls.__module__}.{cls.__qualname__} has no wire form")


# A UUID takes 16 bytes instead of 36 characters; decoders read both forms.
encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder(enc_hook=_write, uuid_format="bytes").encode


def decoder(wire_type: Any) -> Callable[[bytes], Any]:
    """Return a decoder of a wire type."""
    return msgspec.msgpack.Decoder(wire_type, dec_hook=_read).decode
