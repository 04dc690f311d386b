"""Task-side half of a columnar sink: record batches of a fixed Arrow schema in a write-ahead log."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Integral, Real
from types import NoneType
from typing import Any

import pyarrow as pa

from penstock.common.arrow_columns import arrow_value
from penstock.common.fields import values_of
from penstock.connectors.sink import SinkWriter
from penstock.connectors.write_ahead import WriteAhead
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.operators import EpochInfo

_TOGETHER = 4096
"""Rows per record batch."""


class DoesNotFit(PenstockError):
    """A record does not match the schema of the sink.

    Operator action: convert the records in a `map` before the sink, or change the schema.
    """


class ArrowWriter(SinkWriter):
    """Write each record batch, without its schema, as one chunk of the log.

    `types` are the column types as the user wrote them, for error messages.
    """

    def __init__(self, schema: pa.Schema, types: list[str], context: RuntimeContext) -> None:
        self._schema = schema
        self._types = types
        self._whose = context.described()
        self._log = WriteAhead(context)
        self._values_of = values_of(schema.names)
        self._nested = any(pa.types.is_nested(kind) for kind in schema.types)
        self._rows: list[Any] = []

    def begin_epoch(self, epoch: EpochInfo) -> None:
        self._log.begin(epoch)
        self._rows = []

    def write(self, value: Any) -> None:
        try:
            values = self._values_of(value)
        except PenstockError as error:
            raise DoesNotFit(
                f"{self._whose} cannot pass a record to Spark: it does not match the schema. {error}"
            ) from None
        # The program could change a nested list or dict before the batch is built.
        row = [arrow_value(copy.deepcopy(each)) for each in values] if self._nested else tuple(values)
        self._rows.append(row)
        if len(self._rows) == _TOGETHER:
            self._add()

    def prepare_commit(self) -> bytes | None:
        if self._rows:
            self._add()
        return self._log.seal()

    def _add(self) -> None:
        rows, self._rows = self._rows, []
        arrays = []
        for place, (field, values) in enumerate(zip(self._schema, zip(*rows, strict=True), strict=True)):
            try:
                arrays.append(_column(field, values))
            except _NOT_OF_IT:
                raise self._refused(place, field, rows) from None
        self._log.add(pa.RecordBatch.from_arrays(arrays, schema=self._schema).serialize().to_pybytes())

    def _refused(self, place: int, field: pa.Field, rows: list[Any]) -> DoesNotFit:
        for row in rows:
            try:
                _column(field, [row[place]])
            except _NOT_OF_IT as error:
                value, problem = row[place], str(error)
                break
        record = dict(zip(self._schema.names, row, strict=True))
        return DoesNotFit(
            f"{self._whose} cannot pass a record to Spark: the field '{field.name}' is declared as "
            f"{self._types[place]}, but its value is {value!r:.200} ({type(value).__name__}): {problem}. The record is "
            f"{record!r:.1000}.",
            fix="Convert the records to the schema of to_spark in a map before it, or change the schema.",
        )


_NOT_OF_IT = (ValueError, TypeError, NotImplementedError, OverflowError, IndexError, AttributeError)
"""Arrow's own errors are subclasses of these. The last two come from a value without the expected elements."""


_TAKEN: list[tuple[Callable[[pa.DataType], bool], tuple[type, ...], tuple[type, ...]]] = [
    (pa.types.is_boolean, (bool,), ()),
    (pa.types.is_integer, (int, Integral), (bool,)),
    (pa.types.is_floating, (float, Real), (bool,)),
    (pa.types.is_decimal, (Decimal, int), (bool,)),
    (pa.types.is_string, (str,), ()),
    (pa.types.is_binary, (bytes, bytearray), ()),
    (pa.types.is_date, (date,), (datetime,)),
    (pa.types.is_timestamp, (datetime,), ()),
    (pa.types.is_time, (time,), ()),
    (pa.types.is_duration, (timedelta,), ()),
]
"""Per Arrow type: the accepted Python classes (including numpy numbers) and the subclasses to reject.

Without this check Arrow truncates a float to fit an integer column and reads an integer as microseconds."""


def _check(kind: pa.DataType, values: Iterable[Any]) -> None:
    """Raise TypeError if a value, or a value nested in it, has a class that this type does not accept."""
    if pa.types.is_nested(kind):
        some = [value for value in values if value is not None]
        if pa.types.is_struct(kind):
            for place, field in enumerate(kind):
                _check(field.type, [each.get(field.name) if isinstance(each, dict) else each[place] for each in some])
        elif pa.types.is_map(kind):
            pairs = [pair for each in some for pair in (each.items() if isinstance(each, dict) else each)]
            _check(kind.key_type, [key for key, _ in pairs])
            _check(kind.item_type, [value for _, value in pairs])
        else:
            _check(kind.value_type, [value for each in some for value in each])
        return
    for matches, taken, refused in _TAKEN:
        if matches(kind):
            for cls in set(map(type, values)) - {NoneType}:
                if not issubclass(cls, taken) or issubclass(cls, refused):
                    raise TypeError(f"expected {taken[0].__name__}, got {cls.__name__}")


def _column(field: pa.Field, values: Any) -> pa.Array:
    _check(field.type, values)
    array = pa.array(values, field.type)
    if array.null_count and not field.nullable:
        raise ValueError("the field is not nullable")
    return array
