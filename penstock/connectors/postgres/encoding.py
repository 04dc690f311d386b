"""Encodes records as lines of COPY's CSV format, checked against their columns.

Records are processed in batches with a few calls: one checks the common types, and one encodes them as JSON, because a
JSON list is a line of CSV in brackets. Columns with other values are encoded value by value, and the error for a value
of the wrong type names it.
"""

from __future__ import annotations

import csv
import datetime
import enum
import io
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.connectors.postgres.connection import PostgresRefused
from penstock.connectors.postgres.fields import IMMUTABLE, INTEGERS, LARGEST, TEXTS, Unfit, field_encoder
from penstock.connectors.postgres.table import Column, Table

FORMAT = "FORMAT csv, NULL 'null', ESCAPE E'\\\\'"
"""Options of COPY. NULL is unquoted, and the text "null" is quoted."""
_NATIVE = (datetime.datetime, datetime.date, datetime.time, uuid.UUID)
"""Types for which msgspec must not accept text."""
_ESCAPE = re.compile(rb"\\(?:u00(..)|(.))")
_RAW = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}

_lines = msgspec.json.Encoder().encode_lines


class RowEncoder:
    """Encoder for some columns of a table. `who` is for error messages."""

    def __init__(self, table: Table, columns: Sequence[Column], who: str) -> None:
        self._table = table
        self._columns = columns
        self._who = who
        self._one = [field_encoder(column) for column in columns]
        self._common = [_common(column) for column in columns]
        """By column: the type of values that are encoded directly; None to encode value by value."""
        self._rows: Any = None if None in self._common else list[tuple[tuple(self._common)]]  # type: ignore[misc]
        self.mutable = [
            index for index, column in enumerate(columns) if column.type not in IMMUTABLE or column.kind != "b"
        ]
        """Columns whose values can change after `write`."""

    # 0.16 µs per row of a string and two numbers.
    def encode(self, rows: list[tuple[Any, ...]]) -> bytes:
        """Encode rows with one value, or a `WrittenField`, per column."""
        try:
            lines = _lines(rows if _fits(rows, self._rows) else self._by_columns(rows, self._column))
        except (UnicodeEncodeError, TypeError):
            # A string that is not valid Unicode, or a subclass of int or float, which msgspec does not encode.
            lines = _lines(self._by_columns(rows, self._texts))
        # Brackets inside strings cannot match: their newlines are escaped.
        written = lines[1:-2].replace(b"]\n[", b"\n") + b"\n"
        if b"\\" not in written or b"\\" not in written.replace(rb"\\", b"").replace(rb"\"", b""):
            return written
        if rb"\u0000" in written:
            self._by_columns(rows, self._texts)
        # CSV escapes only quotes and backslashes, so undo JSON's other escapes.
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

    def field(self, index: int, value: Any, row: Sequence[Any]) -> WrittenField:
        """Encode the current value of one column."""
        return WrittenField(self._field(index, value, row))

    def _field(self, index: int, value: Any, row: Sequence[Any]) -> str | None:
        if type(value) is WrittenField:
            return value.text
        column = self._columns[index]
        if isinstance(value, enum.Enum):
            value = value.value
        if value is None:
            if not column.not_null:
                return None
            reason = "it is None, but the column is NOT NULL"
        else:
            try:
                return self._one[index](value)
            except Unfit as unfit:
                reason = str(unfit)
            except UnicodeEncodeError:
                reason = "it contains half of a surrogate pair, which is not a valid character"
        record = ", ".join(f"{each.name}={_shown(part)}" for each, part in zip(self._columns, row))
        raise PostgresRefused(
            f"{self._who}: a record does not match {self._table.where}: column '{column.name}' is {column.described}, "
            f"but the value is {_shown(value)}: {reason}. The record: {record}.",
            fix=f"Change the records before the sink, or the column: ALTER TABLE {'.'.join(self._table.names)} ALTER "
            f"COLUMN {column.name} ...",
        )


def record_at(line: int, chunks: Iterable[bytes]) -> list[str]:
    """Return the fields of the record that ends at this line; [] past the end. Chunks hold complete records."""
    for chunk in chunks:
        if (lines := chunk.count(b"\n")) < line:
            line -= lines
            continue
        reader = csv.reader(io.StringIO(chunk.decode()), doublequote=False, escapechar="\\")
        return next((record for record in reader if reader.line_num >= line), [])
    return []


class WrittenField:
    """A field that is already encoded."""

    __slots__ = ("text",)

    def __init__(self, text: str | None) -> None:
        self.text = text


def _shown(value: Any) -> str:
    text = str(value.text) if type(value) is WrittenField else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _common(column: Column) -> Any:
    """Return the type of values whose JSON form the column can parse, or None."""
    if column.kind != "b":
        return None
    common: Any = _COMMON.get(column.type)
    if column.type in INTEGERS:
        limit = 1 << INTEGERS[column.type]
        common = Annotated[int, Meta(ge=-limit, le=limit - 1)]
    elif column.type in LARGEST:
        # The bounds exclude NaN, which JSON cannot represent.
        common = Annotated[float, Meta(ge=-LARGEST[column.type], le=LARGEST[column.type])]
    elif column.type in TEXTS:
        common = Annotated[str, Meta(max_length=column.modifier - 4)] if column.modifier >= 0 else str
    return common if common is None or column.not_null else common | None


_ZONED = tuple[Annotated[datetime.datetime, Meta(tz=True)], ...]
"""Encoded separately, because JSON has no seconds in a UTC offset."""
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
