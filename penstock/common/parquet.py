"""Write records as Parquet."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.arrow_schema import schema_of
from penstock.common.fields import values_of
from penstock.common.row import Row
from penstock.common.serialization import BulkWriter, BulkWriterFactory, OutputFile
from penstock.common.typeinfo import TypeSpec
from penstock.errors import PenstockError


class ParquetWriterFactory(BulkWriterFactory):
    """Creates writers of Parquet files that share a schema."""

    def __init__(self, schema: Any, compression: str, row_group_size: int) -> None:
        if type(row_group_size) is not int or row_group_size < 1:
            raise PenstockError(f"Parquet: row_group_size must be a whole number above 0, not {row_group_size!r}.")
        self._given = schema, compression, row_group_size
        self._schema = None if schema is None else schema_of(schema)
        self._compression = compression
        self.batch = row_group_size
        self.format = "parquet"
        if self._schema is not None:
            self._values = values_of(self._schema.names)
            self._nested = any(pa.types.is_nested(kind) for kind in self._schema.types)

    def __reduce__(self) -> tuple[Any, ...]:
        return ParquetWriterFactory, (self._schema, *self._given[1:])

    def for_type(self, value_type: TypeSpec) -> BulkWriterFactory:
        """Return a factory for this type, or this factory if it already has a schema."""
        return self if self._schema is not None else ParquetWriterFactory(value_type, *self._given[1:])

    def prepare(self, value: Any) -> Any:
        """Return a record as a row of the schema."""
        if self._schema is None:
            raise PenstockError(
                "BulkWriterFactory.parquet has no columns. Pass a dataclass, Types.ROW_NAMED or a pyarrow Schema, "
                "or declare the stream's type with output_type=."
            )
        values = self._values(value)
        # The program could change a nested list or dict before the row group is written.
        return [arrow_value(copy.deepcopy(each)) for each in values] if self._nested else tuple(values)

    def create(self, file: OutputFile) -> BulkWriter:
        """Return a writer for this file."""
        return _ParquetWriter(file, self._schema, self._compression)


class _ParquetWriter(BulkWriter):
    def __init__(self, file: OutputFile, schema: pa.Schema, compression: str) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(pa.PythonFile(file, mode="w"), schema, compression=compression)

    def write(self, prepared: list[Any]) -> None:
        columns = zip(*prepared)
        arrays = []
        for field, values in zip(self._schema, columns):
            try:
                arrays.append(pa.array(values, field.type))
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise PenstockError(f"A value of column '{field.name}' is not of type {field.type}: {error}") from error
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def finish(self) -> None:
        self._writer.close()


def arrow_value(value: Any) -> Any:
    """Convert nested records to dicts, the form Arrow accepts."""
    if isinstance(value, Row):
        return {name: arrow_value(each) for name, each in value.as_dict().items()}
    if isinstance(value, msgspec.Struct) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return {name: arrow_value(getattr(value, name)) for name in _field_names(value)}
    if isinstance(value, list):
        return [arrow_value(each) for each in value]
    return value


def _field_names(value: Any) -> list[str]:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    return [field.name for field in dataclasses.fields(value)]
