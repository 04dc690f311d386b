"""Python stages and exchanges put on a DataFrame with few calls to the JVM: an epoch's plan is built anew each time.

`DataFrame.mapInArrow` pickles its function and looks up every column each time, 10 ms a stage; here that is done once.
It also imports pandas into the driver, which is a fifth of a second of a job's start.
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
    """A function that gives exchange rows, as it is put on one plan after another."""

    def __init__(self, function: StageFunction, columns: Sequence[Column] = ()) -> None:
        """`columns` are those of the frames it is put on, if they are not exchange rows."""
        make: Any = UserDefinedFunction
        udf = make(function, returnType=ROW_SCHEMA, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        self._column = udf(*(columns or [col(name) for name in _COLUMNS]))

    def over(self, frame: DataFrame) -> DataFrame:
        return DataFrame(frame._jdf.mapInArrow(self._column._jc, False, None), frame.sparkSession)


class SparkExchange:
    """Delivers rows to the partition their `target` says."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._target: Any = col("target")

    def over(self, frame: DataFrame) -> DataFrame:
        return DataFrame(frame._jdf.repartitionById(self._partitions, self._target._jc), frame.sparkSession)


def release(frame: DataFrame) -> None:
    """Let a frame's plan in the JVM go as soon as the last reference to the frame does. No thread uses it any more.

    py4j keeps every method that was called on an object in that object, and each refers back to it: without this the
    plan stays until Python's collector comes, which knows nothing of the JVM's memory.
    """
    frame._jdf._methods.clear()
