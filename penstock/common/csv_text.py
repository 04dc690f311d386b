"""CSV: the dialect (delimiter, quotes, escapes) and the encoder that writes it."""

from __future__ import annotations

import csv
import datetime
import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from penstock.common.fields import columns_of, values_of
from penstock.common.serialization import Encoder
from penstock.common.typeinfo import TypeSpec
from penstock.errors import PenstockError

_PLAIN = frozenset({str, int, float, decimal.Decimal})
"""Types that the csv module already formats as needed."""


@dataclass(frozen=True)
class CsvText:
    """A CSV dialect. Without a `quote` character nothing is quoted."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_text: str | None = None
    line_end: str = "\n"
    comments: bool = False
    """Whether lines that start with # are skipped when reading."""
    separators: dict[str, str] = field(default_factory=dict)
    """The separator between list elements, by column name."""

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote", "escape"):
            mark = getattr(self, name)
            if mark is None and name != "delimiter":
                continue
            if not isinstance(mark, str) or len(mark) != 1 or mark in "\r\n":
                raise PenstockError(f"CSV: {name} must be one character, not {mark!r}.")

    def options(self) -> dict[str, Any]:
        """Return keyword arguments for csv.reader and csv.writer."""
        quoting = csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL
        return {
            "delimiter": self.delimiter,
            "quotechar": self.quote,
            "escapechar": self.escape,
            "quoting": quoting,
            "strict": True,
        }


class CsvEncoder(Encoder):
    """Encodes records as lines of CSV."""

    def __init__(self, columns: Sequence[str] | TypeSpec | None, text: CsvText, header: bool) -> None:
        self._text = text
        self._wants_header = header
        self._columns = _names(columns)
        self._start()

    def _start(self) -> None:
        self.format = f"csv {self._columns} {self._text}"
        if self._columns is not None:
            self._values = values_of(self._columns)
            separators = [self._text.separators.get(name, ";") for name in self._columns]
            null = self._text.null_text or ""
            self._plain = (_PLAIN if null else _PLAIN | {type(None)}).issuperset
            self._writers = [_writer(null, separator) for separator in separators]
            self.header = self._lines([self._columns]) if self._wants_header else b""

    def __reduce__(self) -> tuple[Any, ...]:
        return CsvEncoder, (self._columns, self._text, self._wants_header)

    def for_type(self, value_type: TypeSpec) -> Encoder:
        """Return an encoder with the columns of this type, or this encoder if it already has columns."""
        return self if self._columns is not None else CsvEncoder(value_type, self._text, self._wants_header)

    def encode(self, value: Any) -> bytes:
        """Return a record as one line of CSV."""
        return self._lines([self.prepare(value)])

    def prepare(self, value: Any) -> Any:
        """Return the fields of a record as text."""
        if self._columns is None:
            raise PenstockError(
                "Encoder.csv has no columns. Pass their names, Encoder.csv(['id', 'name']), or declare the stream's "
                "type with output_type=."
            )
        values = self._values(value)
        if self._plain(map(type, values)):
            return tuple(values)
        return [write(field) for write, field in zip(self._writers, values)]

    def pack(self, prepared: list[Any]) -> bytes:
        """Return prepared records as lines of CSV."""
        return self._lines(prepared)

    def _lines(self, rows: Sequence[Sequence[str]]) -> bytes:
        lines: list[str] = []
        try:
            # With this terminator the writer quotes fields that contain \r as well as \n. It is stripped below.
            csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n", **self._text.options()).writerows(
                rows
            )
        except csv.Error as error:
            raise PenstockError(f"Cannot write a record as CSV: {error}. Set a quote or escape character.") from error
        end = self._text.line_end
        return "".join([f"{line[:-2]}{end}" for line in lines]).encode("utf-8", "replace")


def _names(columns: Sequence[str] | TypeSpec | None) -> list[str] | None:
    if columns is None:
        return None
    if isinstance(columns, (list, tuple)):
        if not columns or not all(isinstance(name, str) for name in columns) or len(set(columns)) < len(columns):
            raise PenstockError(f"Encoder.csv: columns must be a list of distinct names, not {columns!r}.")
        return list(columns)
    return list(columns_of(columns))


def _writer(null: str, separator: str) -> Callable[[Any], str]:
    def write(value: Any) -> str:
        if type(value) is str:
            return value
        if value is None:
            return null
        if value is True or value is False:
            return "true" if value else "false"
        if isinstance(value, (list, tuple)):
            return separator.join(map(write, value))
        if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
            return value.isoformat()
        return str(value)

    return write
