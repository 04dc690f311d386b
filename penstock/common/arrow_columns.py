"""Records as Arrow's columns, for formats that store columns."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import msgspec
import pyarrow as pa

from penstock.common.fields import values_of
from penstock.common.row import Row
from penstock.errors import PenstockError


class Columns:
    """Turns records into record batches of a schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._values = values_of(schema.names)
        self._nested = any(pa.types.is_nested(kind) for kind in schema.types)

    def prepare(self, value: Any) -> Any:
        """Return a record as a row of the schema."""
        values = self._values(value)
        # The program could change a nested list or dict before the rows are written.
        return [arrow_value(copy.deepcopy(each)) for each in values] if self._nested else tuple(values)

    def batch(self, prepared: list[Any]) -> pa.RecordBatch:
        """Return prepared rows as a batch. Raises PenstockError, with the column, for a value of another type."""
        columns = zip(*prepared)
        arrays = []
        for field, values in zip(self.schema, columns):
            try:
                arrays.append(pa.array(values, field.type))
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise PenstockError(f"A value of column '{field.name}' is not of type {field.type}: {error}") from error
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


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
