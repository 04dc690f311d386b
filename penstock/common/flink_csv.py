"""CSV as Flink writes it: Jackson's rules for quotes, and Java's notation for numbers."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

from penstock.common.csv_text import CsvText
from penstock.common.display import shower
from penstock.common.fields import values_of
from penstock.common.java_values import TEXTS, value_text
from penstock.common.serialization import Encoder
from penstock.common.simple_types import BasicTypeInfo
from penstock.common.typeinfo import Types, TypeSpec

_LONGEST_CHECKED = 24
"""Jackson quotes longer text without looking at it."""


class JacksonLine:
    """Formats the fields of one line like Jackson's CSV generator.

    A text is quoted if it has more than 24 characters, or one that sorts up to the delimiter or the quote character:
    with a comma, blanks and most punctuation.
    """

    def __init__(self, text: CsvText) -> None:
        self._text = text
        marks = (text.delimiter, text.quote or "", *text.line_end)
        self._safe = chr(max(map(ord, "".join(marks))) + 1)

    def quoted(self, value: str) -> str:
        """Return a text, in quotes if necessary."""
        quote, escape = self._text.quote, self._text.escape
        if quote is None:
            return value
        if len(value) <= _LONGEST_CHECKED and not (escape and escape in value):
            safe = self._safe
            if all(char >= safe for char in value):
                return value
        if escape:
            value = value.replace(escape, escape * 2)
        return f"{quote}{value.replace(quote, quote * 2)}{quote}"

    def joined(self, fields: list[str]) -> str:
        """Return the line of formatted fields, with its end."""
        return f"{self._text.delimiter.join(fields)}{self._text.line_end}"


class FlinkCsvEncoder(Encoder):
    """Encodes records as lines of CSV with the columns of a ``CsvSchema``."""

    def __init__(self, columns: Mapping[str, TypeSpec], text: CsvText, header: bool) -> None:
        self._given = (dict(columns), text, header)
        self._line = JacksonLine(text)
        self._values = values_of(list(columns))
        self._writers = [self._writer(kind, text.separators.get(name, ";")) for name, kind in self._given[0].items()]
        self.format = f"flink csv {list(columns)} {text}"
        self.header = self._line.joined(list(columns)).encode() if header else b""

    def __reduce__(self) -> tuple[Any, ...]:
        return FlinkCsvEncoder, self._given

    def encode(self, value: Any) -> bytes:
        """Return a record as one line of CSV."""
        fields = [write(field) for write, field in zip(self._writers, self._values(value))]
        return self._line.joined(fields).encode("utf-8", "replace")

    def _writer(self, kind: TypeSpec, separator: str) -> Callable[[Any], str]:
        null, quoted = self._text_of_null(), self._line.quoted
        number = TEXTS.get(kind.get_basic_type()) if isinstance(kind, BasicTypeInfo) else None

        def write(value: Any) -> str:
            if value is None:
                return null
            if number is not None:
                return number(value)
            if isinstance(value, (str, list, tuple, datetime.date, datetime.time)):
                return quoted(_plain(value, separator))
            return value_text(value)

        return write

    def _text_of_null(self) -> str:
        return self._given[1].null_text or ""


_timestamp, _time = shower(Types.SQL_TIMESTAMP()), shower(Types.SQL_TIME())


def _plain(value: Any, separator: str) -> str:
    if isinstance(value, (list, tuple)):
        return separator.join("" if each is None else _plain(each, separator) for each in value)
    if isinstance(value, datetime.datetime):
        return _timestamp(value)
    return _time(value) if isinstance(value, datetime.time) else value_text(value)
