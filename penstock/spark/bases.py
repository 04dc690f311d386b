"""Merges bases on Spark, in a job that runs concurrently with epochs. Each of its few tasks merges blocks in turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from pyspark.sql import SparkSession

from penstock.checkpoint.bases import Block, merge_block
from penstock.checkpoint.manifest import BaseHandle, Version
from penstock.state.storage import Storage
from penstock.state.storage_uri import open_storage

_SHARE = 4
"""One in this many cores merges bases; epochs use the others."""


class SparkMerge:
    """The `Merge` implementation for Spark. Called in the housekeeping thread."""

    def __init__(self, spark: SparkSession, job: str) -> None:
        self._context = spark.sparkContext
        self._group = f"penstock-bases-{job}"

    def __call__(
        self, storage: Storage, version: Version, blocks: list[Block], into: Storage | None = None
    ) -> list[BaseHandle]:
        context = self._context
        context.setJobGroup(self._group, "Penstock merges bases", interruptOnCancel=True)
        parts = max(1, min(len(blocks), context.defaultParallelism // _SHARE))
        merged = context.parallelize(list(enumerate(blocks)), parts).mapPartitions(
            _Part(storage.uri, version, None if into is None else into.uri)
        )
        return [handle for _, handle in sorted(merged.collect(), key=lambda each: each[0])]

    def cancel(self) -> None:
        # The JVM might be gone, and the job with it.
        with suppress(Exception):
            self._context.cancelJobGroup(self._group)


class _Part:
    def __init__(self, uri: str, version: Version, into: str | None) -> None:
        self._uri = uri
        self._version = version
        self._into = into

    def __call__(self, blocks: Iterable[tuple[int, Block]]) -> Iterator[tuple[int, BaseHandle]]:
        storage = open_storage(self._uri)
        into = None if self._into is None else open_storage(self._into)
        for place, block in blocks:
            yield place, merge_block(storage, self._version, block, into)
