"""Records as lines of COPY's CSV format, checked against the columns they are for.

Many records at a time, by a few calls for all of them: one checks what is common, one writes it, for a list in JSON is
a line of CSV in brackets. A column that holds anything else is gone through value by value, and the first that does not
fit is named.
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
"""For COPY. A null is without quotes, a text of these letters with them."""
_NATIVE = (datetime.datetime, datetime.date, datetime.time, uuid.UUID)
"""Types that no text is taken for."""
_ESCAPE = re.compile(rb"\\(?:u00(..)|(.))")
_RAW = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}

_lines = msgspec.json.Encoder().encode_lines


class RowEncoder:
    """For one table and some of its columns. `who` is for messages."""

    def __init__(self, table: Table, columns: Sequence[Column], who: str) -> None:
        self._table = table
        self._columns = columns
        self._who = who
        self._one = [field_encoder(column) for column in columns]
        self._common = [_common(column) for column in columns]
        """By column the type of what is written as it is; None where there is none."""
        self._rows: Any = None if None in self._common else list[tuple[tuple(self._common)]]  # type: ignore[misc]
        self.mutable = [
            index for index, column in enumerate(columns) if column.type not in IMMUTABLE or column.kind != "b"
        ]
        """Columns whose values may change after they were given."""

    # A row of a text and two numbers takes 0.16 µs.
    def encode(self, rows: list[tuple[Any, ...]]) -> bytes:
        """Each row has a value for each column, or a `WrittenField`."""
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

    def field(self, index: int, value: Any, row: Sequence[Any]) -> WrittenField:
        """The value of one column, as it is now."""
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


class WrittenField:
    """A field that is written already."""

    __slots__ = ("text",)

    def __init__(self, text: str | None) -> None:
        self.text = text


def _shown(value: Any) -> str:
    text = str(value.text) if type(value) is WrittenField else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _common(column: Column) -> Any:
    """The type of values that are in JSON what the column reads."""
    if column.kind != "b":
        return None
    common: Any = _COMMON.get(column.type)
    if column.type in INTEGERS:
        limit = 1 << INTEGERS[column.type]
        common = Annotated[int, Meta(ge=-limit, le=limit - 1)]
    elif column.type in LARGEST:
        # And so no NaN, which JSON does not have.
        common = Annotated[float, Meta(ge=-LARGEST[column.type], le=LARGEST[column.type])]
    elif column.type in TEXTS:
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
