"""Encodes one value as a field of COPY's CSV format, checked against its column."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import sys
import uuid
from collections.abc import Callable
from typing import Any

from penstock.connectors.postgres.connection import driver
from penstock.connectors.postgres.table import Column

__all__ = ["IMMUTABLE", "INTEGERS", "LARGEST", "TEXTS", "Encode", "Unfit", "field_encoder"]

INTEGERS = {"int2": 15, "int4": 31, "int8": 63}
TEXTS = ("text", "varchar", "bpchar", "citext")
LARGEST = {"float4": 3.4028235677973362e38, "float8": sys.float_info.max}
"""Largest values that do not round to infinity."""


class Unfit(Exception):
    """A value does not match its column; the message is the reason."""


Encode = Callable[[Any], str | None]


def field_encoder(column: Column) -> Encode:
    if column.kind == "e":
        return _enum(column)
    make = _MAKERS.get(column.type) if column.kind == "b" else None
    return _other if make is None else make(column)


def _integer(column: Column) -> Encode:
    limit = 1 << INTEGERS[column.type]

    def encode(value: Any) -> str:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise Unfit(f"its type is {type(value).__name__}, not int")
        number = value.__index__()
        if not -limit <= number < limit:
            raise Unfit(f"it is outside {-limit} to {limit - 1}")
        return str(number)

    return encode


def _float(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
            raise Unfit(f"its type is {type(value).__name__}, not float")
        number = float(value)
        if math.isfinite(number) and abs(number) > LARGEST[column.type]:
            raise Unfit("it is too large")
        return repr(number)

    return encode


def _numeric(column: Column) -> Encode:
    packed = column.modifier - 4
    precision, scale = (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024
    digits = precision - scale if packed >= 0 else None

    def encode(value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, (int, float, decimal.Decimal)):
            raise Unfit(f"its type is {type(value).__name__}, not Decimal, int or float")
        number = decimal.Decimal(value) if isinstance(value, int) else decimal.Decimal(str(value))
        if number.is_nan():
            return "NaN"
        if digits is not None and number:
            if number.is_infinite():
                raise Unfit("it is infinite")
            if number.adjusted() >= digits or abs(_rounded(number, scale)) >= decimal.Decimal(10) ** digits:
                raise Unfit(f"it has more than {max(digits, 0)} digits before the decimal point")
        return str(number)

    return encode


def _rounded(number: decimal.Decimal, scale: int) -> decimal.Decimal:
    """Round like the server."""
    return number.quantize(decimal.Decimal(1).scaleb(-scale), decimal.ROUND_HALF_UP, _EXACT)


_EXACT = decimal.Context(prec=3000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
"""More digits than any column with a precision."""


def _boolean(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if not isinstance(value, bool):
            raise Unfit(f"its type is {type(value).__name__}, not bool")
        return "t" if value else "f"

    return encode


def _text(column: Column) -> Encode:
    longest = column.modifier - 4 if column.modifier >= 0 else None

    def encode(value: Any) -> str:
        if not isinstance(value, str):
            raise Unfit(f"its type is {type(value).__name__}, not str")
        if longest is not None and len(value) > longest and value[longest:].strip(" "):
            raise Unfit(f"it has {len(value)} characters, but the column holds {longest}")
        return _checked(value)

    return encode


def _bytes(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise Unfit(f"its type is {type(value).__name__}, not bytes")
        return "\\x" + bytes(value).hex()

    return encode


def _date(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
            raise Unfit(f"its type is {type(value).__name__}, not date")
        return value.isoformat()

    return encode


def _timestamp(column: Column) -> Encode:
    zoned = column.type == "timestamptz"

    def encode(value: Any) -> str:
        if not isinstance(value, datetime.datetime):
            raise Unfit(f"its type is {type(value).__name__}, not datetime")
        if zoned and value.tzinfo is None:
            raise Unfit("it has no time zone; add one: value.replace(tzinfo=timezone.utc)")
        if not zoned and value.tzinfo is not None:
            raise Unfit("it has a time zone, which the column would drop: value.replace(tzinfo=None)")
        return value.isoformat(" ")

    return encode


def _time(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if not isinstance(value, datetime.time) or value.tzinfo is not None:
            raise Unfit(f"its type is {type(value).__name__}, not time without a zone")
        return value.isoformat()

    return encode


def _interval(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if not isinstance(value, datetime.timedelta):
            raise Unfit(f"its type is {type(value).__name__}, not timedelta")
        # With both signs the meaning does not depend on IntervalStyle.
        return f"{value.days:+d} days +{value.seconds}.{value.microseconds:06d} seconds"

    return encode


def _uuid(column: Column) -> Encode:
    def encode(value: Any) -> str:
        try:
            return str(value if isinstance(value, uuid.UUID) else uuid.UUID(value))
        except (ValueError, TypeError, AttributeError):
            raise Unfit("it is not a UUID") from None

    return encode


def _json(column: Column) -> Encode:
    def encode(value: Any) -> str:
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Unfit(f"it is not JSON: {error}") from None
        if column.type == "jsonb" and "\\u0000" in text.replace("\\\\", ""):
            raise Unfit("it contains a NUL character, which PostgreSQL does not support")
        return _checked(text)

    return encode


def _enum(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if value not in column.labels:
            raise Unfit(f"it is not one of {', '.join(map(repr, column.labels))}")
        return _checked(value)

    return encode


def _other(value: Any) -> str | None:
    """Encode a value with psycopg. The server checks it at commit."""
    if isinstance(value, str):
        return _checked(value)
    psycopg = driver()
    try:
        dumper = psycopg.adapt.Transformer().get_dumper(value, psycopg.adapt.PyFormat.TEXT)
        data = dumper.dump(value)
    except psycopg.Error as error:
        raise Unfit(f"psycopg cannot encode it: {error}") from None
    return None if data is None else _checked(bytes(data).decode())


def _checked(text: str) -> str:
    if "\0" in text:
        raise Unfit("it contains a NUL character, which PostgreSQL does not support")
    text.encode()
    # Ignore __str__ of a subclass.
    return str.__str__(text)


_MAKERS: dict[str, Callable[[Column], Encode]] = {
    **dict.fromkeys(INTEGERS, _integer),
    **dict.fromkeys(TEXTS, _text),
    "float4": _float,
    "float8": _float,
    "numeric": _numeric,
    "bool": _boolean,
    "bytea": _bytes,
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
    "time": _time,
    "interval": _interval,
    "uuid": _uuid,
    "json": _json,
    "jsonb": _json,
}
IMMUTABLE = frozenset(_MAKERS) - {"json", "jsonb", "bytea"}
