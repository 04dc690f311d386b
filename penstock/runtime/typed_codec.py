"""Codecs for records of a known type that travel between tasks.

Records of a declared type all match it, otherwise the operator would have failed. If the type comes from an annotation,
matching records are encoded by type and the others are pickled.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from penstock.common.pickling import Frozen, to_pickle
from penstock.runtime.rows import PICKLED, TYPED, Codec
from penstock.state.serializers import Serializer, codec

_array_header = struct.Struct(">BI").pack


class Written:
    """A mutable record, serialized by its type."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def _all_written(values: list[Any]) -> bool:
    return {Written}.issuperset(map(type, values))


def _joined(values: list[Written]) -> bytes:
    return _array_header(0xDD, len(values)) + b"".join([value.data for value in values])


def declared_codec(serializer: Serializer, checked: bool) -> Codec:
    """Return the codec for a declared type. `checked`: results were already checked by the operator."""
    node, encode, encode_many = serializer.node, serializer.encode_element, serializer.encode_many
    wire, write = node.wire, codec.encode
    # Values of an exact class pass the operator's check without inspection, and an int can still be too large.
    checked = checked and not node.proof and node.exact is None

    def write_one(value: Any) -> bytes:
        try:
            return write(wire(value))
        except (UnicodeEncodeError, RecursionError):
            return encode(value)  # raises a descriptive error

    one = write_one if checked else encode

    def join_or_encode(values: list[Any]) -> bytes:
        # Records from a source are never held.
        return _joined(values) if _all_written(values) else encode_many(values)

    def write_many(values: list[Any]) -> bytes:
        try:
            return write(values if node.native else list(map(wire, values)))
        except (UnicodeEncodeError, RecursionError):
            return encode_many(values)

    if not serializer.immutable:
        return Codec(join_or_encode, serializer.decode_many, lambda value: Written(one(value)))
    many: Callable[[list[Any]], bytes] = write_many if checked else encode_many
    return Codec(many, serializer.decode_many, lambda value: value)


def hinted_codec(serializer: Serializer) -> Codec:
    """Return the codec for an annotated type. A buffer is typed if all its records match; no record is rejected."""
    node = serializer.node
    kinds, fits, wire, write = frozenset(node.classes), node.fits, node.wire, codec.encode
    decode_many, immutable, native = serializer.decode_many, serializer.immutable, node.native

    # Hot path: 0.3 µs for a frozen dataclass of three fields, 0.65 µs for a mutable one.
    def hold(value: Any) -> Any:
        if type(value) not in kinds:
            return PICKLED.hold(value)
        if fits(value):
            try:
                return value if immutable else Written(write(wire(value)))
            except UnicodeEncodeError:
                pass  # half a surrogate pair, which pickle can write
        # Frozen even if immutable: every record that is kept unserialized then matches the type.
        return Frozen(to_pickle(value))

    def encode_many(values: list[Any]) -> bytes:
        if not immutable:
            if _all_written(values):
                return TYPED + _joined(values)
            values = [Frozen(to_pickle(serializer.decode(v.data))) if type(v) is Written else v for v in values]
        elif kinds.issuperset(map(type, values)):
            try:
                return TYPED + write(values if native else list(map(wire, values)))
            except UnicodeEncodeError:
                pass  # as above
        return PICKLED.encode_many(values)

    def read_many(data: bytes) -> list[Any]:
        if data[:1] == TYPED:
            return decode_many(memoryview(data)[1:])  # type: ignore[arg-type]
        return PICKLED.decode_many(data)

    return Codec(encode_many, read_many, hold)
