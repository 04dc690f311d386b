"""The canonical bytes of a key. They determine its key group, and its state is stored under them.

Two keys are the same key exactly if their bytes are equal, in every process and every version: changing any byte here
orphans the state of every job. docs/write/keys.md has the table of encodings; the tests contain golden values.

The format is self-describing msgpack. Types that msgpack lacks are extension types with separate codes, so that they
cannot be mistaken for a string or a number.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from penstock.common.row import Row, RowKind, default_field_names, kind_of, names_of
from penstock.common.time import Instant
from penstock.state.located import LocatedError
from penstock.state.scalars import python_scalar

__all__ = ["KeyTypeError", "decode_key", "encode_key"]

Ext = msgspec.msgpack.Ext

# Codes are part of the stored format: never change or reuse one.
_BIG_INT, _DECIMAL, _INSTANT, _DATETIME, _DATE, _TIME, _TIMEDELTA, _UUID, _ROW = range(1, 10)

_encode = msgspec.msgpack.Encoder().encode

# msgspec encodes each of these in exactly one way. Not float: 0.0 has two encodings, NaN very many.
_DIRECT = frozenset((str, int, bytes, bool, type(None)))

# The sign and payload of a NaN depend on the machine that produced it.
_NAN: float = struct.unpack(">d", b"\x7f\xf8\0\0\0\0\0\0")[0]

_MICRO = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MICRO = (datetime.min - _EPOCH) // _MICRO
_LAST_MICRO = (datetime.max - _EPOCH) // _MICRO
_EPOCH_DAY = _EPOCH.toordinal()


class KeyTypeError(LocatedError):
    """A value that cannot be a key or part of a key.

    Operator action: none; the job's key selector has to return another value.
    """


def encode_key(key: object) -> bytes:
    """Return the canonical bytes of a key.

    Called once per record. Measured on CPython 3.11: 75 ns for a str, int or bytes, 200 ns for a tuple of two of them,
    0.2 µs for a float, 0.7 to 1 µs for a tuple that contains a float or a date.

    Raises:
        KeyTypeError: The value cannot be a key.
    """
    kind = type(key)
    if kind in _DIRECT or (kind is tuple and _DIRECT.issuperset(map(type, key))):  # type: ignore[call-overload]
        try:
            return _encode(key)
        except (OverflowError, UnicodeEncodeError):
            pass  # an int beyond 64 bits, or invalid text: _plain handles the first and reports the second
    return _encode(_plain(key))


def decode_key(data: bytes) -> Any:
    """Return a key equal to the encoded one. NumPy scalars become Python's, and named tuples plain tuples."""
    return _tuples(_decode(data))


def _plain(key: Any) -> Any:
    """Convert a key to values that msgspec encodes in exactly one way."""
    kind = type(key)
    if kind is str:
        return _text(key)
    if kind is int:
        return key if -(1 << 63) <= key < 1 << 64 else Ext(_BIG_INT, _signed(key))
    if kind in _DIRECT:
        return key
    write = _WRITE.get(kind)
    if write is not None:
        return write(key)
    if kind is list or isinstance(key, tuple):
        # As in PyFlink, a selector can return a list.
        return _elements(key)
    scalar = python_scalar(key)
    if scalar is not key:
        return _plain(scalar)
    raise _refusal(key)


def _elements(key: tuple[Any, ...] | list[Any]) -> list[Any]:
    plain: list[Any] = []
    try:
        for element in key:
            plain.append(_plain(element))
    except KeyTypeError as error:
        raise error.inside(f"element {len(plain)} of the tuple") from None
    return plain


def _text(key: str) -> str:
    try:
        key.encode()
    except UnicodeEncodeError:
        raise KeyTypeError(
            f"The string {key!r} cannot be a key: it contains an unpaired surrogate, which cannot be encoded",
            "Decode the input with errors='replace', or key by its bytes.",
        ) from None
    return key


def _float(key: float) -> float:
    # Adding 0.0 turns -0.0 into 0.0 and leaves all other values unchanged.
    return _NAN if key != key else key + 0.0


def _decimal(key: Decimal) -> Ext:
    # Not Decimal.normalize(): it rounds to the precision of the thread's context.
    if key.is_nan():
        return Ext(_DECIMAL, b"NaN")
    sign, digits, exponent = key.as_tuple()
    if not isinstance(exponent, int):
        return Ext(_DECIMAL, b"-Infinity" if sign else b"Infinity")
    text = "".join(map(str, digits)).lstrip("0")
    coefficient = text.rstrip("0")
    if not coefficient:
        return Ext(_DECIMAL, b"0E0")
    exponent += len(text) - len(coefficient)
    return Ext(_DECIMAL, f"{'-' if sign else ''}{coefficient}E{exponent}".encode())


def _datetime(key: datetime) -> Ext:
    if key.utcoffset() is None:
        return Ext(_DATETIME, _signed((key.replace(tzinfo=None) - _EPOCH) // _MICRO))
    micros = (key - _EPOCH_UTC) // _MICRO
    if not _FIRST_MICRO <= micros <= _LAST_MICRO:
        raise KeyTypeError(
            f"{key!r} cannot be a key: in UTC it is outside the years 1 to 9999", "Clamp it to that range."
        )
    return Ext(_INSTANT, _signed(micros))


def _time(key: time) -> Ext:
    if key.tzinfo is not None:
        raise KeyTypeError(
            "A time with a time zone cannot be a key: without a date it cannot be converted to UTC",
            "Drop the time zone with .replace(tzinfo=None), or key by an aware datetime.",
        )
    seconds = (key.hour * 60 + key.minute) * 60 + key.second
    return Ext(_TIME, _signed(seconds * 1_000_000 + key.microsecond))


def _row(key: Row) -> Ext:
    # Field names keep their order, although == ignores it: otherwise key[0] would change in the round trip.
    plain: list[Any] = []
    try:
        for value in key:
            plain.append(_plain(value))
    except KeyTypeError as error:
        raise error.inside(f"field {_field_name(key, len(plain))} of the Row") from None
    names = names_of(key)
    # State of a row type without names has been stored under keys without names.
    names = None if plain and names == default_field_names(len(plain)) else names
    return Ext(_ROW, _encode((kind_of(key).value, names, plain)))


def _field_name(row: Row, index: int) -> str:
    names = names_of(row)
    return str(index) if names is None else repr(names[index])


_WRITE: dict[type, Callable[[Any], Any]] = {
    float: _float,
    Decimal: _decimal,
    datetime: _datetime,
    date: lambda key: Ext(_DATE, _signed(key.toordinal() - _EPOCH_DAY)),
    time: _time,
    timedelta: lambda key: Ext(_TIMEDELTA, _signed(key // _MICRO)),
    UUID: lambda key: Ext(_UUID, key.bytes),
    Row: _row,
}


def _signed(number: int) -> bytes:
    """Return the shortest big-endian two's complement, the only encoding of a number."""
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _tuples(plain: Any) -> Any:
    return tuple(map(_tuples, plain)) if type(plain) is list else plain


def _read_decimal(data: bytes) -> Decimal:
    value = Decimal(data.decode())
    sign, digits, exponent = value.as_tuple()
    # 100 is stored as 1E2, but should not be displayed like that when read back.
    if isinstance(exponent, int) and 0 < exponent <= 30:
        return Decimal((sign, digits + (0,) * exponent, 0))
    return value


def _read_time(data: bytes) -> time:
    return (_EPOCH + _number(data) * _MICRO).time()


def _read_row(data: bytes) -> Row:
    kind, names, values = _decode(data)
    row = Row.of(None if names is None else tuple(names), [_tuples(value) for value in values])
    row.set_row_kind(RowKind(kind))
    return row


_READ: dict[int, Callable[[bytes], Any]] = {
    _BIG_INT: _number,
    _DECIMAL: _read_decimal,
    _INSTANT: lambda data: _EPOCH_UTC + _number(data) * _MICRO,
    _DATETIME: lambda data: _EPOCH + _number(data) * _MICRO,
    _DATE: lambda data: date.fromordinal(_number(data) + _EPOCH_DAY),
    _TIME: _read_time,
    _TIMEDELTA: lambda data: _number(data) * _MICRO,
    _UUID: lambda data: UUID(bytes=data),
    _ROW: _read_row,
}

_decode = msgspec.msgpack.Decoder(ext_hook=lambda code, data: _READ[code](bytes(data))).decode


def _refusal(key: object) -> KeyTypeError:
    kind = type(key)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return KeyTypeError(f"A value of type {name} cannot be a key", _fix(key))


def _fix(key: object) -> str:
    """Return what to key by instead of this value."""
    if isinstance(key, Enum):
        return "Key by the member's .name or .value: the class can change while the state stays."
    if dataclasses.is_dataclass(key):
        fields = dataclasses.fields(key)
        name = fields[0].name if fields else "id"
        return f"Key by a field, e.g. lambda r: r.{name}, or by a tuple of several."
    if isinstance(key, Instant):
        return "Key by .to_epoch_milli()."
    if isinstance(key, list):
        return "Use a tuple: tuple(...)."
    if isinstance(key, dict):
        return "Key by one of its values, e.g. lambda r: r['id'], or by a tuple of several."
    if isinstance(key, (set, frozenset)):
        return "Use a sorted tuple: tuple(sorted(...))."
    if isinstance(key, (bytearray, memoryview)):
        return "Use bytes(...)."
    if isinstance(key, datetime):
        return "Use a plain datetime, e.g. with .to_pydatetime()."
    for base in (str, int, float, bytes):
        if isinstance(key, base):
            return f"Use the plain {base.__name__}: {base.__name__}(...)."
    return "Key by a field, e.g. lambda r: r.id, or by a tuple of several."
