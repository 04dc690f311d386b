"""CSV, under PyFlink's names. The type of a column is a Python type such as ``int``, or one of ``Types``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_origin

from penstock.absent import explain_absent
from penstock.common.csv_messages import CsvRowDeserializationSchema, CsvRowSerializationSchema
from penstock.common.csv_text import CsvText
from penstock.common.flink_csv import FlinkCsvEncoder
from penstock.common.serialization import BulkWriterFactory
from penstock.common.typeinfo import TypeSpec
from penstock.connectors.files.csv_format import CsvFormat
from penstock.errors import PenstockError

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]


class CsvSchema:
    """The columns of CSV files and their syntax. Create one with ``CsvSchema.builder()``.

    Example:
        >>> schema = CsvSchema.builder().add_string_column("name").add_number_column("age").build()
    """

    def __init__(
        self,
        *,
        columns: dict[str, Any],
        text: CsvText,
        header: bool,
        strict: bool,
        skip_first: bool,
        drops_others: bool,
    ) -> None:
        self.columns = columns
        self.text = text
        self.header = header
        self.strict = strict
        self.skip_first = skip_first
        self.drops_others = drops_others

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """Return a new schema builder."""
        return CsvSchemaBuilder()

    def size(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    __len__ = size

    def __repr__(self) -> str:
        return f"CsvSchema({', '.join(self.columns)})"


class CsvSchemaBuilder:
    """Builds a ``CsvSchema``."""

    def __init__(self) -> None:
        self._columns: dict[str, Any] = {}
        # As in Flink, None is written as an empty field, which is read as empty text.
        self._text = CsvText()
        self._separators: dict[str, str] = {}
        self._separator = ";"
        self._header = self._strict = self._skip_first = self._drops_others = False

    def build(self) -> CsvSchema:
        """Return the schema.

        Raises:
            PenstockError: If the schema has no columns.
        """
        if not self._columns:
            raise PenstockError(
                "A CsvSchema needs at least one column. Add one with, for example, add_string_column('name')."
            )
        separators = {name: self._separator for name, kind in self._columns.items() if get_origin(kind) is list}
        separators |= self._separators
        for name, separator in separators.items():
            if not separator:
                raise PenstockError(
                    f"CSV: list column '{name}' has no separator.",
                    fix="Pass one to add_array_column, or call set_array_element_separator.",
                )
        text = replace(self._text, separators=separators)
        return CsvSchema(
            columns=dict(self._columns),
            text=text,
            header=self._header,
            strict=self._strict,
            skip_first=self._skip_first,
            drops_others=self._drops_others,
        )

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """Add a text column.

        Args:
            name: The name of the column.
        """
        return self._add(name, str)

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of ``true`` and ``false``.

        Args:
            name: The name of the column.
        """
        return self._add(name, bool)

    def add_number_column(self, name: str, number_type: TypeSpec | None = None) -> CsvSchemaBuilder:
        """Add a numeric column.

        Args:
            name: The name of the column.
            number_type: The type of the numbers. The default is ``int``.
        """
        return self._add(name, int if number_type is None else number_type)

    def add_array_column(
        self, name: str, separator: str = ";", element_type: TypeSpec | None = None
    ) -> CsvSchemaBuilder:
        """Add a list column.

        Args:
            name: The name of the column.
            separator: The separator between elements.
            element_type: The type of the elements. The default is ``str``.
        """
        self._separators[name] = separator
        elements: Any = str if element_type is None else element_type
        return self._add(name, list[elements])

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """Add the columns of another schema.

        Args:
            schema: The other schema.
        """
        self._columns |= schema.columns
        self._separators |= schema.text.separators
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        """Remove all columns."""
        self._columns.clear()
        self._separators.clear()
        return self

    def size(self) -> int:
        """Return the number of columns."""
        return len(self._columns)

    __len__ = size

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the separator of list columns that were added without one. The default is a semicolon.

        Args:
            separator: The text between elements.
        """
        self._separator = separator
        return self

    def disable_array_element_separator(self) -> CsvSchemaBuilder:
        """Remove the separator of list columns that were added without one."""
        return self.set_array_element_separator("")

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """Remove the separator of a list column, which then has that of ``set_array_element_separator``.

        Args:
            index: The position of the column.
        """
        self._separators.pop(list(self._columns)[index], None)
        return self

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        """Set whether lines that start with ``#`` are skipped.

        Args:
            allow: Whether to skip them.
        """
        return self._set(comments=allow)

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """Set the character between columns. The default is a comma.

        Args:
            char: The separator.
        """
        return self._set(delimiter=char)

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """Set the character around values that contain separators. The default is a double quote.

        Args:
            char: The quote character.
        """
        return self._set(quote=char)

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Treat quotes as part of the value."""
        return self._set(quote=None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """Set the character that escapes the next one. By default escaping is off.

        Args:
            char: The escape character.
        """
        return self._set(escape=char)

    def disable_escape_char(self) -> CsvSchemaBuilder:
        """Disable escaping."""
        return self._set(escape=None)

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the line separator for writing. Reading accepts LF, CR and CRLF.

        Args:
            separator: The separator.
        """
        return self._set(line_end=separator)

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """Set the text that represents None.

        Args:
            null_value: The text.
        """
        return self._set(null_text=null_value)

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Set whether the first line of a file contains the column names.

        Args:
            use: Whether files have a header.
        """
        self._header = use
        return self

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Set whether the header must contain the columns of the schema in the same order.

        Args:
            strict: Whether to check the header.
        """
        self._strict = strict
        return self

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Set whether to skip the first line of a file.

        Args:
            skip: Whether to skip it.
        """
        self._skip_first = skip
        return self

    def set_any_property_name(self, name: str) -> CsvSchemaBuilder:
        """Accept lines with more fields than the schema has columns when reading, and drop those fields.

        Args:
            name: The name of the property to which Flink assigns the fields before it drops them.
        """
        self._drops_others = bool(name)
        return self

    def _add(self, name: str, kind: Any) -> CsvSchemaBuilder:
        self._columns[name] = kind
        return self

    def _set(self, **marks: Any) -> CsvSchemaBuilder:
        self._text = replace(self._text, **marks)
        return self


class CsvReaderFormat(CsvFormat):
    """Reads CSV files as Rows with the columns of a schema."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """Return the format for a ``FileSource`` of CSV files.

        Args:
            schema: The columns and syntax of the files.

        Raises:
            PenstockError: If the schema has both a header and a first row to skip.
        """
        if schema.header and schema.skip_first:
            raise PenstockError("A CsvSchema can have a header or a first row to skip, not both.")
        # A row to skip is treated as a header that is not validated.
        header = schema.header or schema.skip_first
        return CsvReaderFormat(
            schema.columns,
            header,
            None,
            schema.text,
            strict=schema.strict and schema.header,
            drops_others=schema.drops_others,
        )


class CsvBulkWriters:
    """Writers of CSV files for a ``FileSink``."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> BulkWriterFactory:
        """Return a writer factory for a schema.

        Args:
            schema: The columns and syntax of the files.
        """
        return BulkWriterFactory.of_encoder(FlinkCsvEncoder(schema.columns, schema.text, schema.header))


explain_absent(__name__)
