"""Write records as Parquet."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.arrow_columns import Columns
from penstock.common.arrow_schema import schema_of
from penstock.common.serialization import BulkWriter, BulkWriterFactory, OutputFile
from penstock.common.typeinfo import TypeSpec
from penstock.errors import PenstockError


class ParquetWriterFactory(BulkWriterFactory):
    """Creates writers of Parquet files that share a schema."""

    def __init__(self, schema: Any, compression: str, row_group_size: int) -> None:
        if type(row_group_size) is not int or row_group_size < 1:
            raise PenstockError(f"Parquet: row_group_size must be a whole number above 0, not {row_group_size!r}.")
        self._given = schema, compression, row_group_size
        self._columns = None if schema is None else Columns(schema_of(schema))
        self._compression = compression
        self.batch = row_group_size
        self.format = "parquet"

    def __reduce__(self) -> tuple[Any, ...]:
        return ParquetWriterFactory, (None if self._columns is None else self._columns.schema, *self._given[1:])

    def for_type(self, value_type: TypeSpec) -> BulkWriterFactory:
        """Return a factory for this type, or this factory if it already has a schema."""
        return self if self._columns is not None else ParquetWriterFactory(value_type, *self._given[1:])

    def prepare(self, value: Any) -> Any:
        """Return a record as a row of the schema."""
        if self._columns is None:
            raise PenstockError(
                "BulkWriterFactory.parquet has no columns. Pass a dataclass, Types.ROW_NAMED or a pyarrow Schema, "
                "or declare the stream's type with output_type=."
            )
        return self._columns.prepare(value)

    def create(self, file: OutputFile) -> BulkWriter:
        """Return a writer for this file."""
        assert self._columns is not None
        return _ParquetWriter(file, self._columns, self._compression)


class _ParquetWriter(BulkWriter):
    def __init__(self, file: OutputFile, columns: Columns, compression: str) -> None:
        self._columns = columns
        self._writer = pq.ParquetWriter(pa.PythonFile(file, mode="w"), columns.schema, compression=compression)

    def write(self, prepared: list[Any]) -> None:
        self._writer.write_batch(self._columns.batch(prepared))

    def finish(self) -> None:
        self._writer.close()
