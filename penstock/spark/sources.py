"""Opens each kind of source as a streaming DataFrame."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from functools import partial, reduce
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from penstock.common.class_pickling import dump_records
from penstock.connectors.files.file_source import FileSource
from penstock.connectors.source import Source, at_end
from penstock.graph.logical import LogicalGraph
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.plan import Chain
from penstock.spark.inputs import set_order
from penstock.spark.planner import planned_stream

_FILE_SCHEMA = "path string, modificationTime timestamp, length long, content binary"
FILE_RANGE = (
    "regexp_replace(path, '^file:/+', '/') AS split",
    "'null' AS start",
    "concat('[', length, ',', unix_millis(modificationTime), ']') AS end",
)
"""A file that Spark found, as a split's range."""
_CHUNK = 1000
"""Records per row of a collection's file."""


class SourceInput(NamedTuple):
    """Everything needed to read a source, as a stream or as a batch."""

    spark: SparkSession
    chain: Chain
    origin: Any
    place: Callable[[str, Callable[[Path], None]], Path]
    """Returns a folder for the source that is kept between runs of one lineage. Calls the given function to fill the
    folder, unless an earlier run did."""
    parallelism: int
    program: bytes
    """Classes that tasks cannot import."""


def open_stream(source: SourceInput, records_per_epoch: int, read_before: int, credits: str | None) -> DataFrame:
    """Return the source as a streaming DataFrame.

    Input that Spark cannot stream (a collection, a batch DataFrame) is written to Parquet once and streamed from there.
    It is then read in epochs and is replayable, like any other source.

    `read_before`: records of a collection that were read before this lineage started from a savepoint. `credits`: the
    credit file of a Python source.
    """
    spark, chain, origin, place, parallelism, program = source
    if isinstance(origin, DataFrame) and origin.isStreaming:
        return origin
    if isinstance(origin, FileSource):
        return _discovered(spark, origin)
    if chain.pickled_source is not None:
        return planned_stream(
            spark, chain.source_name, chain.pickled_source, parallelism, records_per_epoch, credits, program
        )
    write = _write_frame if isinstance(origin, DataFrame) else partial(_write_rest, read_before, program=program)
    folder = place(chain.source_name, lambda folder: write(origin, folder, records_per_epoch))
    reader = spark.readStream.schema(origin.schema if isinstance(origin, DataFrame) else "chunk binary")
    if records_per_epoch:
        reader = reader.option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def sources_in_log(logical: LogicalGraph, physical: PhysicalGraph) -> list[str]:
    """Return the source uid for each line of Spark's offsets."""
    origins = {node.uid: node.source.origin for node in logical.nodes.values() if node.source is not None}
    uids = [chain.source_uid for chain in physical.sources() if chain.source_uid is not None]
    return [uid for uid in uids for _ in range(lines_in_log(origins[uid]))]


def may_come_to_an_end(logical: LogicalGraph) -> bool:
    """Return whether all sources that are not bounded can still end, and at least one such source exists."""
    endless = [node.source.origin for node in logical.nodes.values() if node.source and not node.source.bounded]
    return bool(endless) and all(isinstance(origin, Source) and origin.may_end for origin in endless)


def came_to_an_end(logical: LogicalGraph, uids: list[str], offsets: list[str]) -> bool:
    """Return whether all sources have ended, given the offsets of a batch and the source uid of each offset."""
    sources = {node.uid: node.source for node in logical.nodes.values() if node.source is not None}
    pairs = [(sources[uid], line) for uid, line in zip(uids, offsets)]
    return bool(pairs) and all(each.bounded or at_end(each.origin, json.loads(line)) for each, line in pairs)


def lines_in_log(origin: Any) -> int:
    """Return the number of Spark sources behind the result of `open_stream`. Each has a line in Spark's offsets."""
    if isinstance(origin, FileSource):
        return len(origin.local_paths)
    if isinstance(origin, DataFrame) and origin.isStreaming:
        leaves = origin._jdf.queryExecution().analyzed().collectLeaves()
        return sum(1 for number in range(leaves.size()) if leaves.apply(number).isStreaming())
    return 1


def _discovered(spark: SparkSession, source: FileSource) -> DataFrame:
    """Return the files to read. Spark finds new files and logs them; only names pass through it.

    Spark's binary file reader does not open files if the column `content` is not selected.
    """
    frames = []
    for path in source.local_paths:
        reader = spark.readStream.format("binaryFile").schema(_FILE_SCHEMA)
        # Otherwise Spark skips files that are a week older than the newest one.
        reader = reader.option("recursiveFileLookup", True).option("maxFileAge", "36500d")
        if source.max_files_per_epoch is not None:
            reader = reader.option("maxFilesPerTrigger", source.max_files_per_epoch)
        frames.append(reader.load(path).selectExpr(*FILE_RANGE))
    return reduce(DataFrame.unionAll, frames)


def _write_rest(read_before: int, records: list[Any], folder: Path, per_file: int, program: bytes = b"") -> None:
    write_collection(records[read_before:], folder, per_file, program)


def write_collection(records: list[Any], folder: Path, per_file: int = 0, program: bytes = b"") -> None:
    """Write records in chunks, in files of `per_file` records or in one file."""
    for number, part in enumerate(_parts(records, per_file or len(records) or 1)):
        table = pa.table({"chunk": pa.array(chunks_of(part, program), pa.binary())})
        _write(folder / f"{number:06d}.parquet", table, number)


def chunks_of(records: list[Any], program: bytes) -> list[bytes]:
    """Return records in the form that the source's chain reads."""
    return [dump_records(chunk, program) for chunk in _parts(records, _CHUNK)]


def _write_frame(frame: DataFrame, folder: Path, per_file: int) -> None:
    writer = frame.write.mode("overwrite")
    if per_file:
        writer = writer.option("maxRecordsPerFile", per_file)
    writer.parquet(str(folder))
    for number, path in enumerate(sorted(folder.glob("*.parquet"))):
        set_order(path, number)


def _write(path: Path, table: pa.Table, number: int) -> None:
    temporary = path.with_name(f".{path.name}")
    pq.write_table(table, temporary)
    os.replace(temporary, path)
    set_order(path, number)


def _parts(records: list[Any], size: int) -> Iterable[list[Any]]:
    iterator = iter(records)
    while part := list(islice(iterator, size)):
        yield part
