"""Records as lines of COPY's CSV format, checked against the columns they are for.

Many records at a time, by a few calls for all of them: one checks what is common, one writes it, for a list in JSON is
a line of CSV in brackets. A column that holds anything else is gone through value by value, and the first that does not
fit is named.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import enum
import io
import json
import math
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.connectors.postgres.connection import PostgresRefused, driver
from penstock.connectors.postgres.table import Column, Table

FORMAT = "FORMAT csv, NULL 'null', ESCAPE E'\\\\'"
"""For COPY. A null is without quotes, a text of these letters with them."""
_INTEGERS = {"int2": 15, "int4": 31, "int8": 63}
_TEXTS = ("text", "varchar", "bpchar", "citext")
_LARGEST = {"float4": 3.4028235677973362e38, "float8": sys.float_info.max}
"""The largest that are not rounded to infinity."""
_NATIVE = (datetime.datetime, datetime.date, datetime.time, uuid.UUID)
"""Types that no text is taken for."""
_ESCAPE = re.compile(rb"\\(?:u00(..)|(.))")
_RAW = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}

_lines = msgspec.json.Encoder().encode_lines


class Unfit(Exception):
    """Why a value does not fit its column."""


Encode = Callable[[Any], str | None]


class RowEncoder:
    """For one table and some of its columns. `who` is for messages."""

    def __init__(self, table: Table, columns: Sequence[Column], who: str) -> None:
        self._table = table
        self._columns = columns
        self._who = who
        self._one = [_encoder(column) for column in columns]
        self._common = [_common(column) for column in columns]
        """By column the type of what is written as it is; None where there is none."""
        self._rows: Any = None if None in self._common else list[tuple[tuple(self._common)]]  # type: ignore[misc]
        self.mutable = [
            index for index, column in enumerate(columns) if column.type not in _IMMUTABLE or column.kind != "b"
        ]
        """Columns whose values may change after they were given."""

    # A row of a text and two numbers takes 0.16 µs.
    def encode(self, rows: list[tuple[Any, ...]]) -> bytes:
        """Each row has a value for each column, or a `Text`."""
        try:
            lines = _lines(rows if _fits(rows, self._rows) else self._by_columns(rows, self._column))
        except (UnicodeEncodeError, TypeError):
            # A text that cannot be written, or a number that is more than one.
            lines = _lines(self._by_columns(rows, self._texts))
        # Those in texts are escaped.
        written = lines[1:-2].replace(b"]\n[", b"\n") + b"\n"
        if b"\\" not in written or b"\\" not in written.replace(rb"\\", b"").replace(rb"\"", b""):
            return written
        if rb"\u0000" in written:
            self._by_columns(rows, self._texts)
        # Quotes and backslashes are the only ones that CSV escapes.
        return _ESCAPE.sub(_unescaped, written)

    def _by_columns(
        self, rows: list[tuple[Any, ...]], write: Callable[[int, tuple[Any, ...], list[tuple[Any, ...]]], Iterable[Any]]
    ) -> list[tuple[Any, ...]]:
        return list(zip(*(write(index, values, rows) for index, values in enumerate(zip(*rows)))))

    def _column(self, index: int, values: tuple[Any, ...], rows: list[tuple[Any, ...]]) -> Iterable[Any]:
        common = self._common[index]
        if common is not None and _fits(values, tuple[common, ...]):  # type: ignore[valid-type]
            return values
        if self._columns[index].type == "timestamptz" and _fits(values, _ZONED):
            return map(datetime.datetime.isoformat, values)
        return self._texts(index, values, rows)

    def _texts(self, index: int, values: tuple[Any, ...], rows: list[tuple[Any, ...]]) -> list[str | None]:
        return [self._field(index, value, rows[number]) for number, value in enumerate(values)]

    def field(self, index: int, value: Any, row: Sequence[Any]) -> Text:
        """The value of one column, as it is now."""
        return Text(self._field(index, value, row))

    def _field(self, index: int, value: Any, row: Sequence[Any]) -> str | None:
        if type(value) is Text:
            return value.text
        column = self._columns[index]
        if isinstance(value, enum.Enum):
            value = value.value
        if value is None:
            if not column.not_null:
                return None
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


def record_at(line: int, chunks: Iterable[bytes]) -> list[str]:
    """The fields of the record that ends in this line; none if there is no such line. A chunk holds whole records."""
    for chunk in chunks:
        if (lines := chunk.count(b"\n")) < line:
            line -= lines
            continue
        reader = csv.reader(io.StringIO(chunk.decode()), doublequote=False, escapechar="\\")
        return next((record for record in reader if reader.line_num >= line), [])
    return []


class Text:
    """A field that is written already."""

    __slots__ = ("text",)

    def __init__(self, text: str | None) -> None:
        self.text = text


def _shown(value: Any) -> str:
    text = str(value.text) if type(value) is Text else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


# -- many values ---------------------------------------------------------------------------------------------------


def _common(column: Column) -> Any:
    """The type of values that are in JSON what the column reads."""
    if column.kind != "b":
        return None
    common: Any = _COMMON.get(column.type)
    if column.type in _INTEGERS:
        limit = 1 << _INTEGERS[column.type]
        common = Annotated[int, Meta(ge=-limit, le=limit - 1)]
    elif column.type in _LARGEST:
        # And so no NaN, which JSON does not have.
        common = Annotated[float, Meta(ge=-_LARGEST[column.type], le=_LARGEST[column.type])]
    elif column.type in _TEXTS:
        common = Annotated[str, Meta(max_length=column.modifier - 4)] if column.modifier >= 0 else str
    return common if common is None or column.not_null else common | None


_ZONED = tuple[Annotated[datetime.datetime, Meta(tz=True)], ...]
"""Not as they are: JSON has no seconds in the difference of a zone."""
_COMMON = {
    "bool": bool,
    "date": datetime.date,
    "timestamp": Annotated[datetime.datetime, Meta(tz=False)],
    "time": Annotated[datetime.time, Meta(tz=False)],
    "uuid": uuid.UUID,
}


def _fits(values: Sequence[Any], kind: Any) -> bool:
    if kind is None:
        return False
    try:
        msgspec.convert(values, kind, builtin_types=_NATIVE)
    except msgspec.ValidationError:
        return False
    return True


def _unescaped(escape: re.Match[bytes]) -> bytes:
    code, letter = escape.groups()
    return bytes((int(code, 16),)) if code else _RAW.get(letter, escape[0])


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
        if math.isfinite(number) and abs(number) > _LARGEST[column.type]:
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
        return _checked(value)

    return encode


def _bytes(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise Unfit(f"it is of type {type(value).__name__}, not bytes")
        return "\\x" + bytes(value).hex()

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
        if column.type == "jsonb" and "\\u0000" in text.replace("\\\\", ""):
            raise Unfit("it has a character of code 0, which PostgreSQL does not take")
        return _checked(text)

    return encode


def _enum(column: Column) -> Encode:
    def encode(value: Any) -> str:
        if value not in column.labels:
            raise Unfit(f"it is none of {', '.join(map(repr, column.labels))}")
        return _checked(value)

    return encode


def _other(value: Any) -> str | None:
    """As psycopg writes it. Whether it fits, the server says at commit."""
    if isinstance(value, str):
        return _checked(value)
    psycopg = driver()
    try:
        dumper = psycopg.adapt.Transformer().get_dumper(value, psycopg.adapt.PyFormat.TEXT)
        data = dumper.dump(value)
    except psycopg.Error as error:
        raise Unfit(f"psycopg does not know how to write it: {error}") from None
    return None if data is None else _checked(bytes(data).decode())


def _checked(text: str) -> str:
    if "\0" in text:
        raise Unfit("it has a character of code 0, which PostgreSQL does not take")
    text.encode()
    # Without what its own class may say of it.
    return str.__str__(text)


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
