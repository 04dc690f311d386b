"""How metrics come from Spark's tasks to the driver: an accumulator, beside the rows, whose checksums Spark compares.

Spark hands a task's updates over when the task has succeeded, before the stage after it starts and before `collect`
returns; those of a task that failed, never. A task whose output was lost runs again and hands over twice.
"""

from __future__ import annotations

from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

Collected = Accumulator[list[bytes]]


class _Appending(AccumulatorParam[list[bytes]]):
    def zero(self, value: list[bytes]) -> list[bytes]:
        return []

    def addInPlace(self, value1: list[bytes], value2: list[bytes]) -> list[bytes]:
        value1 += value2
        return value1


def collect_metrics(spark: SparkSession) -> Collected:
    """One for all epochs of a job, for its stages are pickled once; the driver empties it before each attempt."""
    return spark.sparkContext.accumulator([], _Appending())
