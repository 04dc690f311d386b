"""An epoch's rows in the write-ahead log as a DataFrame. Executors read the log's files directly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.connectors.write_ahead import chunks_of, pieces_of
from penstock.driver.committing import Commit, CommitContext
from penstock.state.storage_uri import open_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def epoch_frame(
    spark: SparkSession, commits: list[Commit], context: CommitContext, schema: StructType, arrow: pa.Schema
) -> DataFrame:
    """Return an epoch's rows. The DataFrame is valid until the next epoch is committed, which removes the files.

    Each partition is one file of the log, or a small piece of a subtask's output stored inline in the manifest.
    """
    pieces = [piece for commit in commits for piece in pieces_of(commit.payload)]
    epoch = commits[0].epoch
    for piece in pieces:
        if piece.inline is None:
            context.wal.noted(epoch, piece.name)
    uri = None if context.wal.storage.in_memory else context.wal.storage.uri
    whose = f"which sink '{context.uid}' needs to commit epoch {epoch}"

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = None if uri is None else open_storage(uri)
        for batch in batches:
            for place in batch.column(0).to_pylist():
                for chunk in chunks_of(pieces[place], storage, whose):
                    yield pa.ipc.read_record_batch(pa.py_buffer(chunk), arrow)

    return spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(read, schema)
