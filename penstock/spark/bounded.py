"""Bounded sources of a batch: each is a DataFrame that is read once, so the entire job is one Spark job."""

from __future__ import annotations

import pickle
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.connectors.files.file_source import FileSource
from penstock.connectors.source import Source, SplitRange, ranges
from penstock.errors import PenstockError
from penstock.runtime.failures import describe_error, user_traceback
from penstock.spark.planner import RANGE_SCHEMA
from penstock.spark.sources import FILE_RANGE, SourceInput, chunks_of, write_collection


def read_at_once(origin: Any) -> bool:
    """Return whether a bounded source can be read as a batch DataFrame. A streaming DataFrame cannot be converted."""
    return not (isinstance(origin, DataFrame) and origin.isStreaming)


def open_batch(source: SourceInput) -> DataFrame:
    """Return all of a bounded source, with the same columns as `open_stream`."""
    spark, chain, origin, place, parallelism, program = source
    if isinstance(origin, DataFrame):
        return origin
    if isinstance(origin, FileSource):
        reader = spark.read.format("binaryFile").option("recursiveFileLookup", True)
        return reduce(DataFrame.unionAll, [reader.load(path).selectExpr(*FILE_RANGE) for path in origin.local_paths])
    if chain.pickled_source is not None:
        # Use a copy of the program's source, as the planner does.
        opened: Source = pickle.loads(chain.pickled_source)
        return _ranges(spark, _all_of(opened, chain.source_name, parallelism), parallelism)
    if not str(spark.sparkContext.master).startswith("local"):
        # Executors of a cluster cannot read the driver's disk.
        return spark.createDataFrame([(chunk,) for chunk in chunks_of(origin, program)], "chunk binary").coalesce(1)
    folder = place(chain.source_name, lambda folder: write_collection(origin, folder, program=program))
    return spark.read.schema("chunk binary").parquet(str(folder))


def _ranges(spark: SparkSession, found: list[SplitRange], parallelism: int) -> DataFrame:
    """Return the ranges in at most as many partitions as the job's parallelism, as in an epoch."""
    frames = [
        spark.createDataFrame([tuple(each) for each in share], RANGE_SCHEMA).coalesce(1)
        for share in (found[number::parallelism] for number in range(parallelism))
        if share
    ]
    return reduce(DataFrame.unionAll, frames) if frames else spark.createDataFrame([], RANGE_SCHEMA)


def _all_of(source: Source, name: str, parallelism: int) -> list[SplitRange]:
    """Return all ranges of a source, from its start until it has no more data."""
    try:
        start = source.start(parallelism)
        end = start
        while (further := source.advance(end, None)) != end:
            end = further
        return ranges(start, end)
    except Exception as error:  # user code can raise anything
        text = f"Source '{name}' failed while planning the batch:\n{user_traceback(error)}\n{describe_error(error)}"
        raise PenstockError(text) from None
    finally:
        source.close()
