"""Types without parts: scalars, dates, enums and pickled objects."""

from __future__ import annotations

import enum
import pickle
import struct
from datetime import UTC, datetime, time, timezone
from typing import Any

from penstock.common.pickling import from_bytes, to_bytes, to_pickle
from penstock.common.plain import decode_plain, encode_plain
from penstock.common.time import Instant
from penstock.state.scalars import python_scalar
from penstock.state.serializers import codec
from penstock.state.serializers.node import NotEncodable, TypeNode

__all__ = [
    "BYTES",
    "LONG_MAX",
    "LONG_MIN",
    "BigInt",
    "Char",
    "DateTime",
    "Double",
    "EnumMember",
    "Float",
    "InstantLeaf",
    "Literal",
    "Pickled",
    "Plain",
    "TimeOfDay",
    "WholeNumber",
    "decode_any",
    "encode_any",
    "pickled",
]

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1


class Plain(TypeNode):
    """A class that msgspec encodes and decodes directly: str, bool, bytes, None, Decimal, date, timedelta, UUID."""

    def __init__(self, cls: type, name: str) -> None:
        self.wire_type = cls
        self.classes = (cls,)
        self.cls = cls
        self.name = name
        if cls in (str, bool, bytes):
            self.exact = cls

    def check(self, value: Any) -> Any:
        if type(value) is self.cls:
            return value
        value = python_scalar(value)
        if type(value) is self.cls:
            return value
        raise self.refuse(value)

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        return self.name


class WholeNumber(TypeNode):
    """An int within bounds. A bool does not count as an int."""

    wire_type = int
    classes = (int,)

    def __init__(self, name: str, bits: int) -> None:
        self.name = name
        self.low, self.high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        if bits == 64:
            self.exact = int

    def check(self, value: Any) -> Any:
        if type(value) is not int:
            value = python_scalar(value)
            if type(value) is not int:
                raise self.refuse(value)
        if self.low <= value <= self.high:
            return value
        wider = "Types.LONG()" if LONG_MIN <= value <= LONG_MAX else "Types.BIG_INT()"
        raise self.refuse(value, f"The range of {self.name} is {self.low} to {self.high}; declare {wider}.")

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        return self.name


class BigInt(TypeNode):
    """An int of any size: a msgpack integer up to 64 bits, beyond that its two's complement as bytes."""

    wire_type = int | bytes
    classes = (int,)
    native = same = False

    def check(self, value: Any) -> Any:
        value = python_scalar(value)
        if type(value) is not int:
            raise self.refuse(value)
        return value

    def _wire(self, value: int) -> int | bytes:
        if LONG_MIN <= value <= LONG_MAX:
            return value
        return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)

    def _value(self, wire: int | bytes) -> int:
        return wire if isinstance(wire, int) else int.from_bytes(wire, "big", signed=True)

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        return "bigint"


class Double(TypeNode):
    """A float; an int is converted."""

    wire_type = float
    classes = (float,)
    exact: type | None = float
    name = "double"

    def check(self, value: Any) -> Any:
        if type(value) is float:
            return value
        value = python_scalar(value)
        if type(value) is int or type(value) is float:
            try:
                return float(value)
            except OverflowError:
                pass  # an int beyond the largest float
        raise self.refuse(value)

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        return self.name


class Float(Double):
    """A float rounded to 32 bits."""

    exact = None
    name = "float"
    _bits = struct.Struct("<f")  # the native "f" turns values that are too large into infinity

    def check(self, value: Any) -> Any:
        value = super().check(value)
        try:
            return self._bits.unpack(self._bits.pack(value))[0]
        except OverflowError:
            raise self.refuse(value, "It exceeds the largest 32-bit float; declare Types.DOUBLE().") from None


class Char(TypeNode):
    """A str of one character."""

    wire_type = str
    classes = (str,)

    def check(self, value: Any) -> Any:
        value = python_scalar(value)
        if type(value) is str and len(value) == 1:
            return value
        raise self.refuse(value, "A char is a str of one character; declare Types.STRING().")

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        return "char"


class DateTime(TypeNode):
    """A datetime. An aware one is decoded to the same instant in UTC, a naive one unchanged except for its fold."""

    wire_type = datetime
    classes = (datetime,)

    def check(self, value: Any) -> Any:
        if type(value) is not datetime:
            raise self.refuse(value, "Store a plain datetime: datetime.fromisoformat(...), .to_pydatetime().")
        if value.tzinfo is None or value.tzinfo is UTC:
            return value.replace(fold=0) if value.fold else value
        if value.utcoffset() is None:
            return value.replace(tzinfo=None, fold=0)
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise self.refuse(value, "In UTC it is outside the years 1 to 9999.") from None

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        return "timestamp"


class TimeOfDay(TypeNode):
    """A time: naive, or with a fixed offset in minutes, because its text form cannot express anything else."""

    wire_type = time
    classes = (time,)

    def check(self, value: Any) -> Any:
        if type(value) is not time:
            raise self.refuse(value)
        if value.tzinfo is None:
            return value.replace(fold=0) if value.fold else value
        offset = value.utcoffset()
        if offset is None or offset.seconds % 60 or offset.microseconds:
            raise self.refuse(value, "Its time zone is lost without a date; store a datetime, or drop the time zone.")
        return value.replace(tzinfo=timezone(offset), fold=0)

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        return "time"


class InstantLeaf(TypeNode):
    """An `Instant`, encoded and decoded by the codec's hooks."""

    wire_type = Instant
    classes = (Instant,)
    _second = WholeNumber("long", 64)

    def check(self, value: Any) -> Any:
        if type(value) is not Instant:
            raise self.refuse(value, "Store Instant.of_epoch_milli(...), or declare datetime.")
        self._second.check(value.seconds)
        self._second.check(value.nanos)
        return value

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        return "instant"


class EnumMember(TypeNode):
    """A member of an Enum, encoded as its value."""

    def __init__(self, cls: type[enum.Enum]) -> None:
        self.wire_type = cls
        self.classes = (cls,)

    def check(self, value: Any) -> Any:
        if type(value) is self.wire_type:
            return value
        raise self.refuse(value, f"Store a member of {self.wire_type.__qualname__}.")

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        cls = self.wire_type
        members = ", ".join(f"{member.name}={member.value!r}" for member in cls)
        return f"enum {cls.__module__}.{cls.__qualname__}({members})"


class Literal(TypeNode):
    """One of a few values."""

    def __init__(self, wire_type: Any, values: tuple[Any, ...]) -> None:
        self.wire_type = wire_type
        self.values = values
        self.classes = tuple({type(value) for value in values})

    def check(self, value: Any) -> Any:
        value = python_scalar(value)
        for allowed in self.values:
            if type(value) is type(allowed) and value == allowed:
                return value
        raise self.refuse(value, "Store one of these values, or declare their class.")

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        return f"literal<{', '.join(sorted(map(repr, self.values)))}>"


class Pickled(TypeNode):
    """Any object: plain values in a self-describing format, others as a pickle.

    Whether an object can be pickled is known only when it is encoded. Inside other types the value is encoded as bytes.
    At the top level, `encode_any` and `decode_any` are used instead, which encode plain values directly.
    """

    wire_type = bytes
    classes = (object,)
    native = same = immutable = False

    def check(self, value: Any) -> Any:
        return value

    def _wire(self, value: Any) -> bytes:
        return _part_of(value)

    def _value(self, wire: bytes) -> Any:
        return from_bytes(wire)

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        return "any"


def encode_any(value: Any) -> bytes:
    """Encode a value without a type."""
    data = encode_plain(value)
    return pickled(value) if data is None else data


def encode_part(value: Any) -> bytes:
    """Encode a value without a type that is part of another value."""
    return codec.encode(_part_of(value))


def _part_of(value: Any) -> bytes:
    try:
        return to_bytes(value)
    except Exception as error:  # an object's __reduce__ can raise anything
        raise _not_pickled(value, error) from error


def pickled(value: Any) -> bytes:
    """Encode a value as a pickle in any case."""
    try:
        return codec.encode(to_pickle(value))
    except Exception as error:  # an object's __reduce__ can raise anything
        raise _not_pickled(value, error) from error


def decode_any(data: bytes) -> Any:
    """Decode a value that `encode_any` encoded, or that an earlier version always encoded as a pickle."""
    if data[0] in BYTES:
        return pickle.loads(_read_bytes(data))
    return decode_plain(data)


BYTES = frozenset((0xC4, 0xC5, 0xC6))
"""First bytes of msgpack binaries with 8, 16 or 32 bits of length: a pickle, if the value has no type."""
_read_bytes = codec.decoder(bytes)


def _not_pickled(value: Any, error: Exception) -> NotEncodable:
    return NotEncodable(
        f"A value of type {type(value).__module__}.{type(value).__qualname__} could not be pickled: {error}",
        "Store plain data instead of objects with files, locks, connections or local functions.",
    )
