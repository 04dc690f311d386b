"""CSV messages as Rows; ``penstock.datastream.formats.csv`` exports the schemas under PyFlink's names."""

from __future__ import annotations

import base64
import csv
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.common.csv_text import CsvText
from penstock.common.display import shower
from penstock.common.flink_csv import JacksonLine
from penstock.common.java_values import TEXTS, text_parser
from penstock.common.row import Row, values_of
from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.simple_types import BasicType, BasicTypeInfo, TimestampTypeInfo, TimeTypeInfo
from penstock.common.typeinfo import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    Types,
    TypeSpec,
)
from penstock.errors import PenstockError

_LISTS = (PrimitiveArrayTypeInfo, BasicArrayTypeInfo, ObjectArrayTypeInfo, ListTypeInfo)
_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_TEXTUAL = (BasicType.STRING, BasicType.CHAR)


class CsvRowDeserializationSchema(DeserializationSchema):
    """Reads a line of CSV as a Row with the fields of a row type.

    Example:
        >>> schema = CsvRowDeserializationSchema.Builder(Types.ROW([Types.INT(), Types.STRING()])).build()
    """

    def __init__(
        self, type_info: RowTypeInfo, text: CsvText, comments: bool, elements: str, ignore_parse_errors: bool
    ) -> None:
        self._given = (type_info, text, comments, elements, ignore_parse_errors)
        self._names = tuple(type_info.get_field_names())
        self._text, self._comments, self._lenient = text, comments, ignore_parse_errors
        self._fields = [_reader(kind, elements) for kind in type_info.get_field_types()]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._given

    @property
    def produced_type(self) -> RowTypeInfo:
        """The type of the Rows."""
        return self._given[0]

    def deserialize(self, data: bytes) -> Row | None:
        """Return the Row of a line, or None if it is invalid and errors are ignored."""
        try:
            return self._row(data.decode())
        except (ValueError, csv.Error) as error:
            if self._lenient:
                return None
            raise PenstockError(
                f"Cannot read {data[:200]!r} as {self._given[0]}: {error}.",
                fix="Correct the message or the type, or call set_ignore_parse_errors(True) on the builder.",
            ) from None

    def _row(self, text: str) -> Row:
        lines = text.splitlines(keepends=True)
        if self._comments:
            lines = [line for line in lines if not line.startswith("#")]
        found = next(csv.reader(lines, **self._text.options()), None)
        if not found:
            raise ValueError("it has no fields")
        missing = len(found) < len(self._fields) and self._lenient
        if len(found) != len(self._fields) and not missing:
            raise ValueError(f"{len(self._fields)} fields expected, but it has {len(found)}")
        values: list[Any] = []
        for name, read, field in zip(self._names, self._fields, found):
            if field == self._text.null_text:
                values.append(None)
                continue
            try:
                values.append(read(field))
            except ValueError as error:
                if not self._lenient:
                    raise ValueError(f"field '{name}': {error}") from None
                values.append(None)
        values += [None] * (len(self._fields) - len(values))
        return Row.of(self._names, values)

    class Builder:
        """Builds a ``CsvRowDeserializationSchema``.

        Args:
            type_info: The row type.

        Raises:
            TypeError: If the type is None.
        """

        def __init__(self, type_info: TypeSpec) -> None:
            self._type = _row_type(type_info)
            self._text = CsvText()
            self._comments = self._lenient = False
            self._elements = ";"

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character between fields. The default is a comma."""
            self._text = replace(self._text, delimiter=delimiter)
            return self

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Set whether to skip lines that start with ``#``."""
            self._comments = allow_comments
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the text between the elements of arrays and nested rows. The default is a semicolon."""
            self._elements = delimiter
            return self

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character around values that contain delimiters. The default is a double quote."""
            self._text = replace(self._text, quote=c)
            return self

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character that escapes the next one. By default escaping is off."""
            self._text = replace(self._text, escape=c)
            return self

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """Set the text that represents None. By default nothing does."""
            self._text = replace(self._text, null_text=null_literal)
            return self

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> CsvRowDeserializationSchema.Builder:
            """Set whether invalid or missing fields, and invalid lines, become None. By default they fail the job."""
            self._lenient = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """Return the schema."""
            return CsvRowDeserializationSchema(self._type, self._text, self._comments, self._elements, self._lenient)


class CsvRowSerializationSchema(SerializationSchema):
    """Writes Rows as lines of CSV, with the fields of a row type."""

    def __init__(self, type_info: RowTypeInfo, text: CsvText, elements: str) -> None:
        self._given = (type_info, text, elements)
        self._fields = [_writer(kind, elements) for kind in type_info.get_field_types()]
        self._strings = [_is_string(kind) for kind in type_info.get_field_types()]
        self._null = text.null_text or ""
        self._line = JacksonLine(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._given

    def serialize(self, value: Any) -> bytes:
        """Return a Row as a line of CSV."""
        values = values_of(value) if isinstance(value, Row) else value
        if len(values) != len(self._fields):
            raise PenstockError(f"Cannot write {value!r}: {len(self._fields)} fields expected, not {len(values)}.")
        parts = []
        for field, write, string in zip(values, self._fields, self._strings):
            if field is None:
                parts.append(self._null)
            else:
                parts.append(self._line.quoted(write(field)) if string else write(field))
        return self._line.joined(parts).encode()

    class Builder:
        """Builds a ``CsvRowSerializationSchema``.

        Args:
            type_info: The row type.

        Raises:
            TypeError: If the type is None.
        """

        def __init__(self, type_info: TypeSpec) -> None:
            self._type = _row_type(type_info)
            self._text = CsvText()
            self._elements = ";"

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character between fields. The default is a comma."""
            self._text = replace(self._text, delimiter=c)
            return self

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            r"""Set the end of a line: ``\n`` (the default), ``\r``, ``\r\n`` or nothing.

            Raises:
                PenstockError: For any other text.
            """
            if delimiter not in ("\n", "\r", "\r\n", ""):
                raise PenstockError(f"The line delimiter must be \\n, \\r, \\r\\n or empty, not {delimiter!r}.")
            self._text = replace(self._text, line_end=delimiter)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the text between the elements of arrays and nested rows. The default is a semicolon."""
            self._elements = delimiter
            return self

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """Write values without quotes."""
            self._text = replace(self._text, quote=None)
            return self

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character around values that need it. The default is a double quote."""
            self._text = replace(self._text, quote=c)
            return self

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character that escapes the next one. By default escaping is off."""
            self._text = replace(self._text, escape=c)
            return self

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """Set the text for None. The default is empty."""
            self._text = replace(self._text, null_text=s)
            return self

        def build(self) -> CsvRowSerializationSchema:
            """Return the schema."""
            return CsvRowSerializationSchema(self._type, self._text, self._elements)


def _row_type(type_info: TypeSpec) -> RowTypeInfo:
    if type_info is None:
        raise TypeError("The type information must not be None.")
    if not isinstance(type_info, RowTypeInfo):
        raise PenstockError(
            f"CSV messages need a row type, not {type_info!r}.", fix="Use Types.ROW_NAMED or Types.ROW."
        )
    return type_info


def _reader(spec: TypeSpec, elements: str) -> Callable[[str], Any]:
    if isinstance(spec, RowTypeInfo):
        names = tuple(spec.get_field_names())
        fields = [_reader(kind, elements) for kind in spec.get_field_types()]

        def read(text: str) -> Row:
            parts = text.split(elements)
            if len(parts) != len(fields):
                raise ValueError(f"{len(fields)} fields expected, but it has {len(parts)}")
            return Row.of(names, [field(part) for field, part in zip(fields, parts)])

        return read
    if spec == _BYTES:
        return lambda text: base64.b64decode(text, validate=True)
    if isinstance(spec, _LISTS):
        element = _reader(spec.get_element_type(), elements)
        return lambda text: [element(part) for part in text.split(elements)] if text else []
    parse = text_parser(spec)
    if parse is None:
        raise PenstockError(f"CSV cannot contain {spec!r}.", fix="Use a row type of plain values, arrays and rows.")
    return parse


def _writer(spec: TypeSpec, elements: str) -> Callable[[Any], str]:
    if isinstance(spec, RowTypeInfo):
        fields = [_writer(kind, elements) for kind in spec.get_field_types()]
        return lambda value: elements.join("" if v is None else write(v) for write, v in zip(fields, value))
    if spec == _BYTES:
        return lambda value: base64.b64encode(value).decode()
    if isinstance(spec, _LISTS):
        element = _writer(spec.get_element_type(), elements)
        return lambda value: elements.join("" if each is None else element(each) for each in value)
    if text_parser(spec) is None:
        raise PenstockError(f"CSV cannot contain {spec!r}.", fix="Use a row type of plain values, arrays and rows.")
    if isinstance(spec, BasicTypeInfo):
        return TEXTS.get(spec.get_basic_type(), str)
    return shower(spec) if isinstance(spec, (TimestampTypeInfo, TimeTypeInfo)) else str


def _is_string(spec: TypeSpec) -> bool:
    """Return whether values are text for Jackson, and quoted if necessary. Numbers and booleans never are."""
    return not isinstance(spec, BasicTypeInfo) or spec.get_basic_type() in _TEXTUAL
