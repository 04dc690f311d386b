"""RDDs without rows whose partitions prefer executors, made of classes that Spark has but does not publish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark import SparkContext

from penstock.driver.job_snapshot import ExecutorSnapshot


def rdd_without_rows(context: SparkContext, class_name: str, locations: Sequence[Sequence[str]]) -> tuple[Any, Any]:
    """Return a Scala RDD with a partition for each item of `locations`, which lists where Spark should run it.

    Also return the class tag of its elements, which are instances of `class_name`.
    """
    jvm: Any = context._jvm
    preferred = jvm.java.util.HashMap()
    for partition, where in enumerate(locations):
        if where:
            preferred.put(partition, scala_sequence(context, where))
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName(class_name))
    rdd = jvm.org.apache.spark.rdd.ParallelCollectionRDD
    nothing, preferred = scala_sequence(context, []), jvm.PythonUtils.toScalaMap(preferred)
    return rdd(context._jsc.sc(), nothing, len(locations), preferred, tag), tag


def executor_location(executor: ExecutorSnapshot) -> str:
    """Return Spark's name of an executor as a location of data."""
    host = executor.address.rpartition(":")[0]
    # Spark splits the name at underscores, which are not part of host names that it can resolve.
    return f"executor_{'-' if '_' in host else host}_{executor.id}"


def scala_sequence(context: SparkContext, items: Sequence[Any]) -> Any:
    """Return a Scala sequence of JVM objects or strings."""
    jvm: Any = context._jvm
    found = jvm.java.util.ArrayList()
    for item in items:
        found.add(item)
    return jvm.PythonUtils.toSeq(found)
