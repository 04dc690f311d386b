"""Records as lines of COPY's text format, checked against the columns they are for.

Column by column, many records at a time: what is common is checked and written by a few calls for all of them. A
column that holds anything else is gone through value by value, and the first that does not fit is named.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import math
import uuid
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from penstock.connectors.postgres.connection import PostgresRefused, driver
from penstock.connectors.postgres.table import Column, Table

NULL = "\\N"
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_INTEGERS = {"int2": 15, "int4": 31, "int8": 63}
_TEXTS = ("text", "varchar", "bpchar", "citext")
_LARGEST_REAL = 3.4028235677973366e38


class Unfit(Exception):
    """Why a value does not fit its column."""


Encode = Callable[[Any], str]


class RowEncoder:
    """For one table and some of its columns. `who` is for messages."""

    def __init__(self, table: Table, columns: Sequence[Column], who: str) -> None:
        self._table = table
        self._columns = columns
        self._who = who
        self._line = "\t".join(["%s"] * len(columns)) + "\n"
        self._one = [_encoder(column) for column in columns]
        self._many = [_BULK.get(column.type) if column.kind == "b" else None for column in columns]
        self.mutable = [
            index for index, column in enumerate(columns) if column.type not in _IMMUTABLE or column.kind != "b"
        ]
        """Columns whose values may change after they were given."""

    # All in one format is half of what joining the fields of each record takes.
    def encode(self, rows: list[tuple[Any, ...]]) -> bytes:
        """Each row has a value for each column, or a `Text`."""
        fields: list[Any] = []
        as_they_are = True
        for index, values in enumerate(zip(*rows)):
            many = self._many[index]
            texts = None if many is None else many(values, self._columns[index])
            if texts is None:
                texts = [self._field(index, value, rows[number]) for number, value in enumerate(values)]
            as_they_are = as_they_are and texts is values
            fields.append(texts)
        lines = rows if as_they_are else zip(*fields)
        return (self._line * len(rows) % tuple(chain.from_iterable(lines))).encode()

    def field(self, index: int, value: Any, row: Sequence[Any]) -> Text:
        """The value of one column, as it is now."""
        return Text(self._field(index, value, row))

    def _field(self, index: int, value: Any, row: Sequence[Any]) -> str:
        if type(value) is Text:
            return value.text
        column = self._columns[index]
        if value is None:
            if not column.not_null:
                return NULL
            reason = "it is None, and the column is NOT NULL"
        else:
            try:
                return self._one[index](value)
            except Unfit as unfit:
                reason = str(unfit)
            except UnicodeEncodeError:
                reason = "it has characters that are none: half of a surrogate pair"
        record = ", ".join(f"{each.name}={_shown(part)}" for each, part in zip(self._columns, row))
        raise PostgresRefused(
            f"{self._who}: a record does not fit {self._table.where}: column '{column.name}' is {column.described}, "
            f"and {_shown(value)} cannot be that: {reason}. The record: {record}.",
            fix=f"Change what is given to the sink, or the column: ALTER TABLE {'.'.join(self._table.names)} ALTER "
            f"COLUMN {column.name} ...",
        )


class Text:
    """A field that is written already."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _shown(value: Any) -> str:
    text = value.text if type(value) is Text else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


# -- many values ---------------------------------------------------------------------------------------------------
# Each gives the values if str() writes them as COPY reads them, or their texts; None where it cannot tell for all.


def _integers(values: tuple[Any, ...], column: Column) -> Any:
    limit = 1 << _INTEGERS[column.type]
    if set(map(type, values)) == {int} and -limit <= min(values) and max(values) < limit:
        return values
    return None


def _floats(values: tuple[Any, ...], column: Column) -> Any:
    return values if set(map(type, values)) == {float} else None


def _texts(values: tuple[Any, ...], column: Column) -> Any:
    if set(map(type, values)) != {str}:
        return None
    if column.modifier >= 0 and max(map(len, values)) > column.modifier - 4:
        return None
    together = "".join(values)
    # What needs an escape, or cannot be written at all, is a backslash or not printable.
    return values if together.isprintable() and "\\" not in together else None


def _zoned(values: tuple[Any, ...], column: Column) -> Any:
    if set(map(type, values)) == {datetime.datetime} and None not in {value.tzinfo for value in values}:
        return map(datetime.datetime.isoformat, values)
    return None


_BULK: dict[str, Callable[[tuple[Any, ...], Column], Any]] = {
    **dict.fromkeys(_INTEGERS, _integers),
    **dict.fromkeys(_TEXTS, _texts),
    "float8": _floats,
    "timestamptz": _zoned,
}


# -- one value -----------------------------------------------------------------------------------------------------


def _encoder(column: Column) -> Encode:
    if column.kind == "e":
        return _enum(column)
    make = _MAKERS.get(column.type) if column.kind == "b" else None
    return _other if make is None else make(column)


def _integer(column: Column) -> Encode:
    limit = 1 << _INTEGERS[column.type]

    def encode(value: Any) -> str:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise Unfit(f"it is of type {type(value).__name__}, not int")
        number = value.__index__()
        if not -limit <= number < limit:
            raise Unfit(f"it is not within {-limit} and {limit - 1}")
        return str(number)

    return encode


def _float(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
            raise Unfit(f"it is of type {type(value).__name__}, not float")
        number = float(value)
        if column.type == "float4" and math.isfinite(number) and abs(number) >= _LARGEST_REAL:
            raise Unfit("it is too large")
        return repr(number)

    return encode


def _numeric(column: Column) -> Encode:
    packed = column.modifier - 4
    precision, scale = (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024
    digits = precision - scale if packed >= 0 else None

    def encode(value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, (int, float, decimal.Decimal)):
            raise Unfit(f"it is of type {type(value).__name__}, not Decimal, int or float")
        number = decimal.Decimal(value) if isinstance(value, int) else decimal.Decimal(str(value))
        if number.is_nan():
            return "NaN"
        if digits is not None and number:
            if number.is_infinite():
                raise Unfit("it is infinite")
            if number.adjusted() >= digits or abs(_rounded(number, scale)) >= decimal.Decimal(10) ** digits:
                raise Unfit(f"it has more than {max(digits, 0)} digits before the point")
        return str(number)

    return encode


def _rounded(number: decimal.Decimal, scale: int) -> decimal.Decimal:
    """As the server rounds it."""
    return number.quantize(decimal.Decimal(1).scaleb(-scale), decimal.ROUND_HALF_UP, _EXACT)


_EXACT = decimal.Context(prec=3000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
"""More digits than a column with a precision can have."""


def _boolean(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if not isinstance(value, bool):
            raise Unfit(f"it is of type {type(value).__name__}, not bool")
        return "t" if value else "f"

    return encode


def _text(column: Column) -> Encode:
    longest = column.modifier - 4 if column.modifier >= 0 else None

    def encode(value: Any) -> str:
        if not isinstance(value, str):
            raise Unfit(f"it is of type {type(value).__name__}, not str")
        if longest is not None and len(value) > longest and value[longest:].strip(" "):
            raise Unfit(f"it has {len(value)} characters, and the column takes {longest}")
        return _escaped(value)

    return encode


def _bytes(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise Unfit(f"it is of type {type(value).__name__}, not bytes")
        return "\\\\x" + bytes(value).hex()

    return encode


def _date(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
            raise Unfit(f"it is of type {type(value).__name__}, not date")
        return value.isoformat()

    return encode


def _timestamp(column: Column) -> Encode:
    zoned = column.type == "timestamptz"

    def encode(value: Any) -> str:
        if not isinstance(value, datetime.datetime):
            raise Unfit(f"it is of type {type(value).__name__}, not datetime")
        if zoned and value.tzinfo is None:
            raise Unfit("it has no time zone; give it one: value.replace(tzinfo=timezone.utc)")
        if not zoned and value.tzinfo is not None:
            raise Unfit("it has a time zone, which the column would forget: value.replace(tzinfo=None)")
        return value.isoformat(" ")

    return encode


def _time(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if not isinstance(value, datetime.time) or value.tzinfo is not None:
            raise Unfit(f"it is of type {type(value).__name__}, not time without a zone")
        return value.isoformat()

    return encode


def _interval(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if not isinstance(value, datetime.timedelta):
            raise Unfit(f"it is of type {type(value).__name__}, not timedelta")
        # With both signs it means the same whatever IntervalStyle is.
        return f"{value.days:+d} days +{value.seconds}.{value.microseconds:06d} seconds"

    return encode


def _uuid(column: Column) -> Encode:
    def encode(value: Any) -> str:
        try:
            return str(value if isinstance(value, uuid.UUID) else uuid.UUID(value))
        except (ValueError, TypeError, AttributeError):
            raise Unfit("it is no UUID") from None

    return encode


def _json(column: Column) -> Encode:
    def encode(value: Any) -> str:
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Unfit(f"it is no JSON: {error}") from None
        if column.type == "jsonb" and "\\u0000" in text:
            raise Unfit("it has a character of code 0, which PostgreSQL does not take")
        return _escaped(text)

    return encode


def _enum(column: Column) -> Encode:
    def encode(value: Any) -> str:
        label = value.value if isinstance(value, enum.Enum) else value
        if label not in column.labels:
            raise Unfit(f"it is none of {', '.join(map(repr, column.labels))}")
        return _escaped(label)

    return encode


def _other(value: Any) -> str:
    """As psycopg writes it. Whether it fits, the server says at commit."""
    if isinstance(value, str):
        return _escaped(value)
    psycopg = driver()
    try:
        dumper = psycopg.adapt.Transformer().get_dumper(value, psycopg.adapt.PyFormat.TEXT)
        data = dumper.dump(value)
    except psycopg.Error as error:
        raise Unfit(f"psycopg does not know how to write it: {error}") from None
    return NULL if data is None else _escaped(bytes(data).decode())


def _escaped(text: str) -> str:
    if "\0" in text:
        raise Unfit("it has a character of code 0, which PostgreSQL does not take")
    text.encode()
    return text.translate(_ESCAPES)


_MAKERS: dict[str, Callable[[Column], Encode]] = {
    **dict.fromkeys(_INTEGERS, _integer),
    **dict.fromkeys(_TEXTS, _text),
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
_IMMUTABLE = frozenset(_MAKERS) - {"json", "jsonb", "bytea"}
