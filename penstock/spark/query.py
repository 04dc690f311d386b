"""A job's streaming query: it reads the sources, and each of its batches becomes an epoch."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import PenstockError
from penstock.runtime.plan import Chain
from penstock.spark.bounded import open_batch
from penstock.spark.engine import SparkEngine
from penstock.spark.job_spec import JobSpec
from penstock.spark.lost import brief
from penstock.spark.open_lineage import OpenLineage
from penstock.spark.planner import NOT_RETRYABLE, PLANNING_FAILED
from penstock.spark.sources import SourceInput, came_to_an_end, may_come_to_an_end, open_stream


class EpochQuery:
    """Call `start`, then `ended_within` until it returns True; then repeat. `stop` can be called from any thread."""

    def __init__(self, spark: SparkSession, spec: JobSpec, engine: SparkEngine) -> None:
        self._spark, self._spec, self._engine = spark, spec, engine
        self._can_end = may_come_to_an_end(spec.logical)
        self._query: Any = None

    def start(self, lineage: OpenLineage, on_batch: Callable[[DataFrame, int], None]) -> None:
        """Start the query. Raises if Spark cannot start it. `ended_within` raises the failure of a batch."""
        with _failures_in_words():
            writer = self._stream(lineage).writeStream.foreachBatch(on_batch)
            writer = writer.option("checkpointLocation", str(lineage.log.root))
            if self._spec.bounded:
                writer = writer.trigger(availableNow=True)
            elif self._spec.checkpointing:
                writer = writer.trigger(processingTime=f"{self._spec.interval_ms} milliseconds")
            self._query = writer.start()

    def ended_within(self, seconds: float) -> bool:
        with _failures_in_words():
            return bool(self._query.awaitTermination(seconds))

    def stop(self) -> None:
        """Stop the query and wait until no batch is running."""
        query = self._query
        if query is not None:
            query.stop()

    def drain(self) -> None:
        """Stop once the bounded sources are read completely. Raises the failure of a batch."""
        if any(node.source.bounded for _, node in self._source_nodes()):
            with _failures_in_words():
                self._query.processAllAvailable()
        self._query.stop()

    def input_is_over(self, lineage: OpenLineage) -> bool:
        """Return whether the sources whose end was not known in advance have all ended."""
        return self._can_end and came_to_an_end(self._spec.logical, lineage.driver.sources, lineage.log.offsets())

    def read_at_once(self, lineage: OpenLineage) -> DataFrame:
        """Return the complete input as a batch."""
        return self._joined(
            _in_few_tasks(chain, open_batch(self._input(lineage, chain, node))) for chain, node in self._source_nodes()
        )

    def _stream(self, lineage: OpenLineage) -> DataFrame:
        last = lineage.driver.last
        return self._joined(
            _in_few_tasks(
                chain,
                open_stream(
                    self._input(lineage, chain, node),
                    records_per_epoch=self._spec.records_per_epoch,
                    # The copy of a collection is made before this driver's first checkpoint.
                    read_before=0 if last is None else last.records.get(node.uid, 0),
                    credits=lineage.credits.path(node.uid),
                ),
            )
            for chain, node in self._source_nodes()
        )

    def _input(self, lineage: OpenLineage, chain: Chain, node: Any) -> SourceInput:
        return SourceInput(
            spark=self._spark,
            chain=chain,
            origin=node.source.origin,
            place=partial(lineage.inputs.folder, f"source-{node.id}"),
            parallelism=chain.tasks if chain.own_parallelism else self._spec.parallelism,
            program=self._spec.physical.program,
        )

    def _source_nodes(self) -> Iterator[tuple[Chain, Any]]:
        nodes = {node.uid: node for node in self._spec.logical.nodes.values()}
        return ((chain, nodes[chain.source_uid or ""]) for chain in self._spec.physical.sources())

    def _joined(self, frames: Iterable[DataFrame]) -> DataFrame:
        """Return the combined output of the sources' first chains."""
        chains = self._spec.physical.sources()
        branches = [self._engine.first_chain(chain.id, frame) for chain, frame in zip(chains, frames, strict=True)]
        return reduce(DataFrame.unionAll, branches)


def _in_few_tasks(chain: Chain, frame: DataFrame) -> DataFrame:
    """Return the input of a source in at most as many partitions as its own parallelism, if it has one."""
    return frame.coalesce(chain.tasks) if chain.own_parallelism else frame


class _failures_in_words:
    """Raises Spark's errors about a query as PenstockError."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, PySparkException):
            return
        marked = re.search(rf"{PLANNING_FAILED}({NOT_RETRYABLE})?([A-Za-z0-9+/=]+)", str(error))
        if marked is None:
            raise PenstockError(f"The query failed in Spark: {brief(error)}") from None
        raise PenstockError(base64.b64decode(marked[2]).decode(), retryable=marked[1] is None) from None
