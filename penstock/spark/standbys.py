"""Standby replicas: executors that do not run a subtask follow its state, so that one of them can take it over.

After an epoch, while the driver publishes its checkpoint, a Spark job replays the previous checkpoint into the standby
replicas. It has one task for each executor. Nothing depends on it: a standby that is behind replays more when it takes
over.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import msgspec
from pyspark import RDD, SparkContext
from pyspark.serializers import CPickleSerializer

from penstock.driver.epoch_parameters import EpochParameters
from penstock.driver.held_state import Block
from penstock.driver.job_snapshot import ExecutorSnapshot
from penstock.driver.placement import Placement
from penstock.graph.physical import PhysicalGraph
from penstock.spark.locations import executor_location, rdd_without_rows
from penstock.spark.worker import EPOCH_PROPERTY, epoch_parameters, open_state
from penstock.spark.worker_place import worker_place
from penstock.state.key_groups import range_of_subtask
from penstock.state.replica import StaleAttempt

_BUDGET_S = 0.2
"""For how long a task begins to bring further blocks up to date. It has a slot that the next epoch waits for."""
_BYTES = "[B"
"""The JVM's name of the class of byte arrays, which are the rows of an RDD in Python."""

_logger = logging.getLogger("penstock")


class StandbyReplicas:
    """Brings standby replicas up to date in the background. Used by the thread that runs epochs."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._thread = ThreadPoolExecutor(1, "penstock-standbys")
        self._work: Future[dict[str, int]] | None = None
        self._tag = f"penstock-standbys-{uuid.uuid4().hex}"
        self._begin: dict[str, int] = {}
        """By executor, the position in its list of blocks at which its next task begins."""
        self._blocks: Mapping[str, Sequence[Block]] = {}
        self._done: Counter[str] = Counter()
        """By executor, how many of these blocks were brought up to date."""
        self._warned = False

    def follow(
        self, parameters: EpochParameters, blocks: Mapping[str, Sequence[Block]], where: Mapping[str, ExecutorSnapshot]
    ) -> None:
        """Begin to replay the checkpoint that these tasks resumed from, unless the previous replay still runs.

        Args:
            parameters: Those of an epoch that has just run.
            blocks: By executor, the blocks to bring up to date.
            where: The executors by id.
        """
        if parameters.wanted is None or not self._has_finished(blocks):
            return
        if blocks is not self._blocks:
            self._blocks = blocks
            self._done.clear()
        turns = {
            executor: _from(self._begin.get(executor, 0), each)
            for executor, each in blocks.items()
            if executor in where
        }
        if turns:
            self._work = self._thread.submit(self._run, parameters, turns, [where[each] for each in turns])

    def has_followed(self, executor: str) -> bool:
        """Return whether an executor has brought all blocks that it follows up to date at least once."""
        return 0 < len(self._blocks.get(executor, ())) <= self._done[executor]

    def close(self) -> None:
        """Cancel the work. No task runs afterwards, as far as Spark waits for it."""
        # The JVM might be gone.
        with suppress(Exception):
            self._context.cancelJobsWithTag(self._tag)
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _has_finished(self, blocks: Mapping[str, Sequence[Block]]) -> bool:
        """Return whether no replay runs. Note how far the last one came."""
        if self._work is None:
            return True
        if not self._work.done():
            return False
        error = self._work.exception()
        if error is None:
            for executor, count in self._work.result().items():
                if blocks is self._blocks:
                    self._done[executor] += count
                each = blocks.get(executor)
                self._begin[executor] = (self._begin.get(executor, 0) + count) % len(each) if each else 0
        elif not self._warned:
            self._warned = True
            _logger.warning(
                "Standby replicas could not follow the last checkpoint. This is tried again after each epoch, and "
                "logged once: %s",
                error,
            )
        self._work = None
        return True

    def _run(
        self, parameters: EpochParameters, blocks: Mapping[str, Sequence[Block]], executors: Sequence[ExecutorSnapshot]
    ) -> dict[str, int]:
        """Run the Spark job. Return how many blocks each executor brought up to date."""
        context = self._context
        context.addJobTag(self._tag)
        context.setLocalProperty(EPOCH_PROPERTY, msgspec.json.encode(parameters).decode())
        rdd, tag = rdd_without_rows(context, _BYTES, [[executor_location(each)] for each in executors])
        jvm: Any = context._jvm
        empty: RDD[Any] = RDD(jvm.org.apache.spark.api.java.JavaRDD(rdd, tag), context, CPickleSerializer())
        return dict(empty.mapPartitionsWithIndex(Replay([*blocks.items()])).collect())


class Replay:
    """The task of one executor."""

    def __init__(self, blocks: Sequence[tuple[str, Sequence[Block]]]) -> None:
        self._blocks = blocks

    def __call__(self, partition: int, rows: Iterable[Any]) -> Iterator[tuple[str, int]]:
        # Spark reuses a worker only if it has read its input to the end.
        deque(rows, maxlen=0)
        executor, blocks = self._blocks[partition]
        if worker_place().executor != executor:
            # It was busy for too long, or has died.
            return
        parameters, done = epoch_parameters(), 0
        access = open_state(parameters)
        until = time.monotonic() + _BUDGET_S
        for uid, block in blocks:
            replicas = access.replicas(uid)
            try:
                replicas.reader(access.blocks[uid].groups(block).start)
            except StaleAttempt:
                # The executor has taken over a subtask, whose tasks are ahead of this one.
                pass
            finally:
                replicas.close()
            done += 1
            if time.monotonic() > until:
                break
        yield executor, done


def standby_blocks(graph: PhysicalGraph, placement: Placement, parameters: EpochParameters) -> dict[str, list[Block]]:
    """Return the blocks that each executor follows."""
    found: dict[str, dict[Block, None]] = {}
    for chain in graph.chains:
        for subtask, standbys in enumerate(placement.standbys(chain.id)):
            groups = range_of_subtask(subtask, chain.parallelism, chain.max_parallelism)
            for operator in chain.operators:
                blocks = parameters.blocks.get(operator.uid)
                for number in () if blocks is None else blocks.touching(groups):
                    for executor in standbys:
                        found.setdefault(executor, {})[operator.uid, number] = None
    return {executor: list(blocks) for executor, blocks in found.items()}


def _from(begin: int, blocks: Sequence[Block]) -> list[Block]:
    begin %= len(blocks)
    return [*blocks[begin:], *blocks[:begin]]
