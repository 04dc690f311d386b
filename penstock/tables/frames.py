"""Convert DataFrames of any kind to rows, and to the columns of a state's table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.tables.contents import KeyedContent, OperatorContent
from penstock.tables.table import flattened

_MADE = (
    "window_start",
    "window_end",
    "window_id",
    "last_access",
    "expires",
    "value_pickle",
    "value_any",
    "namespace",
    "index",
)
"""Optional columns; null if left out."""


class NotAFrame(PenstockError):
    """The argument is not a DataFrame, or lacks required columns.

    Operator action: pass a pandas, Arrow or Spark DataFrame with the columns that the message lists.
    """


def rows_of(data: Any) -> Iterator[dict[str, Any]]:
    """Return the rows of a pandas, Arrow or Spark DataFrame, of any Arrow stream, or of an iterable of dicts."""
    if _module(data) == "pyspark":
        return (row.asDict(recursive=True) for row in data.toLocalIterator())
    if _module(data) == "pandas":
        return _pandas_rows(data)
    if isinstance(data, pa.RecordBatchReader) or hasattr(data, "__arrow_c_stream__"):
        return _arrow_rows(pa.RecordBatchReader.from_stream(data))
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict)):
        return _checked_rows(data)
    raise NotAFrame(
        f"Cannot bootstrap state from a {type(data).__module__}.{type(data).__qualname__}, which has no rows.",
        fix="Pass a pandas or Spark DataFrame, an Arrow table, or a list of dicts.",
    )


def _module(data: Any) -> str:
    return type(data).__module__.partition(".")[0]


def _checked_rows(data: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for row in data:
        if not isinstance(row, dict):
            raise NotAFrame(f"A row must be a dict of columns, not {row!r}.")
        yield row


def _pandas_rows(frame: Any) -> Iterator[dict[str, Any]]:
    names = [str(name) for name in frame.columns]
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        # Python objects that Arrow cannot represent.
        return (
            {name: None if _is_missing(value) else value for name, value in zip(names, row, strict=True)}
            for row in frame.itertuples(index=False, name=None)
        )
    return _arrow_rows(table.to_reader())


def _is_missing(value: Any) -> bool:
    """Return whether a pandas cell is empty, which is a NaN."""
    return isinstance(value, float) and math.isnan(value)


def _arrow_rows(reader: pa.RecordBatchReader) -> Iterator[dict[str, Any]]:
    for batch in reader:
        yield from _without_nanos(batch).to_pylist()


def _without_nanos(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert nanoseconds to microseconds, the resolution of Python's datetime."""
    columns = [
        column.cast(pa.timestamp("us", field.type.tz), safe=False)
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns"
        else column
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return pa.record_batch(columns, names=batch.schema.names)


def as_frame(table: pa.Table, content: KeyedContent | OperatorContent, kind: str) -> Any:
    """Convert a state's table for a user function: "pandas", with key and value fields as columns, or "arrow"."""
    return table if kind == "arrow" else flattened(table, content).to_pandas()


def as_table(frame: Any, schema: pa.Schema, described: str) -> pa.Table:
    """Convert the result of a user function back to a table with the state's columns."""
    if _module(frame) == "pandas":
        given = {str(name): frame[name] for name in frame.columns}
    elif isinstance(frame, (pa.Table, pa.RecordBatch)):
        given = dict(zip(frame.schema.names, frame.columns, strict=True))
    else:
        raise NotAFrame(
            f"The function returned a {type(frame).__qualname__} for {described}.",
            fix="Return a pandas or Arrow table with the same columns.",
        )
    rows = len(frame)
    columns = []
    for field in schema:
        column = _column(field, given, rows)
        if column is None:
            raise NotAFrame(
                f"The function returned no column '{field.name}' for {described}, only {sorted(given)}.",
                fix=f"Return the columns {schema.names}.",
            )
        columns.append(column)
    known = set(schema.names) | {
        f"{field.name}.{child.name}" for field in schema if pa.types.is_struct(field.type) for child in field.type
    }
    if unknown := sorted(given.keys() - known):
        raise NotAFrame(
            f"The function returned unknown columns for {described}: {unknown}.",
            fix=f"Return the columns {schema.names}.",
        )
    return pa.table(columns, schema=schema)


def _column(field: pa.Field, given: dict[str, Any], rows: int) -> pa.Array | None:
    try:
        if field.name in given:
            return _array(given[field.name], field.type)
        if pa.types.is_struct(field.type):
            children = [given.get(f"{field.name}.{child.name}") for child in field.type]
            if all(child is not None for child in children):
                arrays = [_array(values, child.type) for values, child in zip(children, field.type, strict=True)]
                return pa.StructArray.from_arrays(arrays, fields=list(field.type))
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise NotAFrame(f"Column '{field.name}' is not of type {field.type}: {error}") from None
    return pa.nulls(rows, field.type) if field.name in _MADE else None


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values if values.type == kind else values.cast(kind)
    array = pa.array(values, kind, from_pandas=True)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
