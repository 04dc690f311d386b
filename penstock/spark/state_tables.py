"""States of savepoints and checkpoints as Spark DataFrames. Each task reads one block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def state_frame(
    spark: SparkSession,
    schema: pa.Schema,
    parts: list[int],
    batches_of: Callable[[int], Iterator[pa.RecordBatch]],
) -> DataFrame:
    """Return the rows of a state. One task per part calls `batches_of`, and no row passes through the driver."""
    schema = _for_spark(schema)
    spark_schema = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    if not parts:
        return spark.createDataFrame([], spark_schema)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                for found in batches_of(parts[place]):
                    yield found.cast(schema)

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, spark_schema)


def _for_spark(schema: pa.Schema) -> pa.Schema:
    """Replace null types with strings, because Spark has no null columns."""
    fields = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in schema]
    return pa.schema(fields)
