"""Adds Python stages and exchanges to a DataFrame with few JVM calls, because each epoch builds a new plan.

`DataFrame.mapInArrow` pickles its function and looks up every column each time, which takes 10 ms per stage. Here this
happens once. `mapInArrow` also imports pandas into the driver, which adds a fifth of a second to a job's start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from penstock.spark.worker import ROW_SCHEMA

_COLUMNS = [field.split()[0] for field in ROW_SCHEMA.split(", ")]

StageFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class SparkStage:
    """A function that yields exchange rows, reused in one plan after another."""

    def __init__(self, function: StageFunction, columns: Sequence[Column] = ()) -> None:
        """`columns` are those of the input frames, if they are not exchange rows."""
        make: Any = UserDefinedFunction
        udf = make(function, returnType=ROW_SCHEMA, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        self._column = udf(*(columns or [col(name) for name in _COLUMNS]))

    def over(self, frame: DataFrame) -> DataFrame:
        return DataFrame(frame._jdf.mapInArrow(self._column._jc, False, None), frame.sparkSession)


class SparkExchange:
    """Sends each row to the partition in its `target` column."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._target: Any = col("target")

    def over(self, frame: DataFrame) -> list[DataFrame]:
        """Return the frames that this adds to a plan, the result last."""
        return [DataFrame(frame._jdf.repartitionById(self._partitions, self._target._jc), frame.sparkSession)]


def release(frame: DataFrame) -> None:
    """Free a frame's plan in the JVM with the last reference to the frame. No thread can use the frame afterwards.

    py4j caches every method called on an object in that object, and each refers back to it. Without this, the plan
    stays until Python's garbage collector runs, which does not see the JVM's memory.
    """
    frame._jdf._methods.clear()
