"""Transfers metrics from Spark tasks to the driver with an accumulator, because Spark compares checksums of rows.

Spark delivers a task's updates when the task has succeeded, before the next stage starts and before `collect` returns.
It drops the updates of failed tasks. A task whose output was lost runs again and delivers twice.
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
    """Return one accumulator for all epochs of a job, because stages are pickled once. Clear it before each attempt."""
    return spark.sparkContext.accumulator([], _Appending())
