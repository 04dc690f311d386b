"""The Spark session of an implementation: Penstock's settings, which the peer gets as well."""

import os
import sys
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bench.masters import MASTER, PARALLELISM
from bench.workload import input_files
from penstock.spark.session import default_conf


def both_ways_conf(work: Path, master: str = MASTER) -> dict[str, str]:
    """Return the settings for both Penstock and the peer."""
    # Executors in separate processes do not run in this directory.
    modules = {} if master == MASTER else {"spark.executorEnv.PYTHONPATH": os.getcwd()}
    return {
        **modules,
        **default_conf(),
        "spark.master": master,
        "spark.local.dir": str(work / "spark"),
        "spark.sql.shuffle.partitions": str(PARALLELISM),
        # By default a file of a few MB is one partition, and one core idles in the source stage. With an open cost of
        # 1 byte it is split into one partition per core; with 0, a byte can be left over.
        "spark.sql.files.openCostInBytes": "1",
    }


def session(conf: dict[str, str]) -> SparkSession:
    # The setting `spark.pyspark.python` does not reach the workers of a program that was not submitted.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    # The peer's state server logs a warning for every read of a key without state.
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read_epochs(spark: SparkSession, input_dir: Path) -> DataFrame:
    """Return the input as a stream with one file per epoch."""
    names = pq.read_schema(input_files(input_dir)[0]).names
    types = {"key": "string", "value": "long", "time": "long"}
    stream = spark.readStream.schema(", ".join(f"{name} {types[name]}" for name in names))
    stream = stream.option("maxFilesPerTrigger", 1)
    return stream.parquet(str(input_dir))
