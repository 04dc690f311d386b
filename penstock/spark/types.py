"""Spark's types, for annotations in layers that do not import PySpark."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import SparkSession as SparkSession
    from pyspark.sql.types import StructType as StructType
