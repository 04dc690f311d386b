"""Starts Python workers while the query starts, so that the first epoch finds them running."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress

from pyspark import SparkContext

from penstock.spark.worker import ShippedGraph


class WarmUp:
    """Runs a small Spark job in a separate thread. It can fail without consequences.

    It does not use a DataFrame, because planning the first one takes a second.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._tag = f"penstock-warm-up-{uuid.uuid4().hex}"

    def start(self, graph: ShippedGraph, parallelism: int) -> threading.Thread:
        thread = threading.Thread(target=self._run, args=(graph, parallelism), name="penstock-warm-up", daemon=True)
        thread.start()
        return thread

    def cancel(self) -> None:
        # The JVM might be gone.
        with suppress(Exception):
            self._context.cancelJobsWithTag(self._tag)

    def _run(self, graph: ShippedGraph, parallelism: int) -> None:
        with suppress(Exception):
            self._context.addJobTag(self._tag)
            workers = min(parallelism, self._context.defaultParallelism)
            self._context.parallelize(range(workers), workers).mapPartitions(_Opens(graph)).collect()


class _Opens:
    """Unpickles the graph in a worker, which imports all modules it needs, including the user's."""

    def __init__(self, graph: ShippedGraph) -> None:
        self._graph = graph

    def __call__(self, _: Iterable[int]) -> Iterator[int]:
        # If this fails, the first epoch reports the error.
        with suppress(Exception):
            self._graph.open()
        return iter(())
