"""CSV under PyFlink's names. A column's type is a hint such as `int`, or one of `Types`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.absent import explain_absent
from penstock.common.csv_text import CsvEncoder, CsvText
from penstock.common.serialization import BulkWriterFactory
from penstock.common.typeinfo import TypeSpec
from penstock.connectors.files.csv_format import CsvFormat
from penstock.errors import PenstockError

__all__ = ["CsvBulkWriters", "CsvReaderFormat", "CsvSchema", "CsvSchemaBuilder"]


class CsvSchema:
    """The columns of CSV files and how they are written. Made by its builder."""

    def __init__(self, columns: dict[str, Any], text: CsvText, header: bool, strict: bool, skip_first: bool) -> None:
        self.columns = columns
        self.text = text
        self.header = header
        self.strict = strict
        self.skip_first = skip_first

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """Return a builder of schemas."""
        return CsvSchemaBuilder()

    def size(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    __len__ = size

    def __repr__(self) -> str:
        return f"CsvSchema({', '.join(self.columns)})"


class CsvSchemaBuilder:
    """Builds a `CsvSchema`: first columns, then settings, then `build`."""

    def __init__(self) -> None:
        self._columns: dict[str, Any] = {}
        # As in Flink, None is written as nothing.
        self._text = CsvText(null_text="")
        self._separators: dict[str, str] = {}
        self._header = self._strict = self._skip_first = False

    def build(self) -> CsvSchema:
        """Return the schema."""
        if not self._columns:
            raise PenstockError("A CsvSchema needs columns: add_string_column('name') and the like.")
        text = replace(self._text, separators=dict(self._separators))
        return CsvSchema(dict(self._columns), text, self._header, self._strict, self._skip_first)

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of text."""
        return self._add(name, str)

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of `true` and `false`."""
        return self._add(name, bool)

    def add_number_column(self, name: str, number_type: TypeSpec = int) -> CsvSchemaBuilder:
        """Add a column of numbers."""
        return self._add(name, number_type)

    def add_array_column(self, name: str, separator: str = ";", element_type: TypeSpec = str) -> CsvSchemaBuilder:
        """Add a column of lists, with a separator between elements."""
        self._separators[name] = separator
        return self._add(name, list[element_type])

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """Add the columns of another schema."""
        self._columns |= schema.columns
        self._separators |= schema.text.separators
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        """Remove all columns."""
        self._columns.clear()
        self._separators.clear()
        return self

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """Set the character between columns; a comma by default."""
        return self._set(delimiter=char)

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """Set the character around values that contain separators; a double quote by default."""
        return self._set(quote=char)

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Take quotes as part of values."""
        return self._set(quote=None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """Set the character that makes the next one part of the value."""
        return self._set(escape=char)

    def disable_escape_char(self) -> CsvSchemaBuilder:
        """Use no escape character."""
        return self._set(escape=None)

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the end of lines for writing; reading takes line feeds, carriage returns and both."""
        return self._set(line_end=separator)

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """Set the text that stands for None."""
        return self._set(null_text=null_value)

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Set whether the first line of a file names the columns."""
        self._header = use
        return self

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Set whether the header must name the columns of the schema in their order."""
        self._strict = strict
        return self

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Set whether the first line of a file is passed over."""
        self._skip_first = skip
        return self

    def _add(self, name: str, kind: Any) -> CsvSchemaBuilder:
        self._columns[name] = kind
        return self

    def _set(self, **marks: Any) -> CsvSchemaBuilder:
        self._text = replace(self._text, **marks)
        return self


class CsvReaderFormat(CsvFormat):
    """Rows with the columns of a schema."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """Return the format for a `FileSource` of CSV files."""
        if schema.header and schema.skip_first:
            raise PenstockError("A CsvSchema has a header or a first row to skip, not both.")
        # A row to skip is a header that is not looked at.
        header = schema.header or schema.skip_first
        return CsvReaderFormat(schema.columns, header, None, schema.text, strict=schema.strict and schema.header)


class CsvBulkWriters:
    """Writers of CSV files for a `FileSink`."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> BulkWriterFactory:
        """Return a factory of writers for this schema."""
        return BulkWriterFactory.of_encoder(CsvEncoder(list(schema.columns), schema.text, schema.header))


explain_absent(__name__)
