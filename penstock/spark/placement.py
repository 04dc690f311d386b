"""Exchanges whose tasks return to the executors that hold their replicas, made of classes that Spark has.

Each exchange is united with an RDD that has no rows, as many partitions, and a preferred executor for each of them.
Both sides have the same hash partitioning, so Spark's `UnionExec` joins partition i of one with partition i of the
other in one task, and the scheduler asks the empty side where that task should run. Rows, partition numbers, shuffles
and checksums are those of a plain exchange.

Spark does not publish these classes. If they cannot be used, exchanges are plain, and the results are the same: tasks
then run on any executor, which first replays what its replicas lack.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import array, col, get, lit

from penstock.driver.epoch_parameters import EpochParameters
from penstock.driver.held_state import Block
from penstock.driver.job_snapshot import ExecutorSnapshot
from penstock.driver.placement import Executor, Placement
from penstock.graph.physical import PhysicalGraph
from penstock.spark.executor_watch import list_executors
from penstock.spark.locations import executor_location, rdd_without_rows, scala_sequence
from penstock.spark.session import runs_tasks_in_driver
from penstock.spark.stages import SparkExchange
from penstock.spark.standbys import StandbyReplicas, standby_blocks
from penstock.spark.worker import ROW_SCHEMA
from penstock.state.backends import Backend
from penstock.state.blocks import Blocks

_WAIT = "spark.locality.wait"
_LEAST_WAIT_MS, _MOST_WAIT_MS = 1_000, 10_000
_EPOCHS = 10
"""How many epochs determine how long a task waits for its executor."""
_JOINING_EPOCHS = 8
"""After how many epochs a new executor runs subtasks although it has not followed all of its blocks."""

_logger = logging.getLogger("penstock")


class Exchanges:
    """The exchanges of a job, and the standby replicas of its state. Used by the thread that runs its epochs."""

    def __init__(self, spark: SparkSession, backend: Backend, standbys: int) -> None:
        """`standbys`: how many further executors follow the state of each subtask."""
        self._spark = spark
        self._places = not runs_tasks_in_driver(str(spark.sparkContext.master))
        self._executors = _Executors(spark)
        self._shares_disk = any(map(os.path.isabs, backend.directories))
        self._placement = Placement(standbys)
        self._standbys = StandbyReplicas(spark.sparkContext) if standbys and self._places else None
        self._followed: tuple[list[PlacedExchange], dict[str, Blocks], dict[str, list[Block]]] | None = None
        self._wait = _LocalityWait(spark)
        self._empty: _EmptySides | None = None
        self._made_for: tuple[PhysicalGraph, int] | None = None
        self._made: list[PlacedExchange] = []
        self._seen: Set[str] = frozenset()
        self._joining: dict[str, int] = {}
        """Executors that follow state before they run subtasks, with the most epochs that this takes."""

    def of(self, graph: PhysicalGraph) -> Sequence[SparkExchange | PlacedExchange]:
        """Return the exchange in front of each level. If nothing has changed, this costs one JVM call."""
        if self._places:
            try:
                executors = self._executors.look()
                if len(executors) > 1:
                    return self._placed(graph, executors)
            except Py4JNetworkError:  # the JVM has died
                raise
            except Exception as error:  # what Spark does not publish can raise anything
                self._places = False
                _logger.warning("Tasks cannot be placed, so Spark runs them on any executor: %s", error)
        self._made, self._made_for, self._followed = [], None, None
        return [SparkExchange(graph.targets(level)) for level in range(1, len(graph.levels))]

    def epoch_ran(self, graph: PhysicalGraph, parameters: EpochParameters, seconds: float) -> None:
        """Adjust how long tasks wait for their executor, and let the standby replicas follow."""
        if not self._places:
            return
        self._wait.epoch_took(seconds)
        if self._standbys is not None and self._made and not parameters.single_epoch:
            followed = self._followed
            if followed is None or followed[0] is not self._made or followed[1] != parameters.blocks:
                blocks = standby_blocks(graph, self._placement, parameters)
                followed = self._followed = self._made, parameters.blocks, blocks
            self._standbys.follow(parameters, followed[2], self._executors.known)
            for executor in [*self._joining]:
                self._joining[executor] -= 1
                if not self._joining[executor] or self._standbys.has_followed(executor):
                    del self._joining[executor]
                    self._made_for = None

    def followed(self) -> Mapping[str, Sequence[Block]]:
        """Return the blocks that each executor follows as a standby. Can be called from any thread."""
        found = self._followed
        return {} if found is None else found[2]

    def close(self) -> None:
        """Stop following. No epoch runs afterwards."""
        if self._standbys is not None:
            self._standbys.close()

    def _placed(self, graph: PhysicalGraph, executors: Mapping[str, ExecutorSnapshot]) -> list[PlacedExchange]:
        made_for, generation = self._made_for, self._executors.generation
        if made_for is None or made_for[0] is not graph or made_for[1] != generation:
            if self._empty is None:
                self._empty = _EmptySides(self._spark)
            self._let_join(executors.keys())
            cluster = {each.id: self._as_placed(each) for each in executors.values()}
            levels = self._placement.place(graph, cluster, self._joining)
            self._made = [PlacedExchange(self._empty, [executors[each] for each in level]) for level in levels]
            self._made_for = graph, generation
        return self._made

    def _let_join(self, executors: Set[str]) -> None:
        """Let new executors follow first if others have the state. They would have to replay all of it."""
        if self._standbys is not None:
            if self._seen & executors:
                self._joining |= dict.fromkeys(executors - self._seen, _JOINING_EPOCHS)
            self._joining = {each: epochs for each, epochs in self._joining.items() if each in executors}
            if executors == self._joining.keys():
                self._joining = {}
        self._seen = frozenset(executors)

    def _as_placed(self, executor: ExecutorSnapshot) -> Executor:
        host = executor.address.rpartition(":")[0]
        return Executor(executor.slots, host if self._shares_disk else f"{host} {executor.id}")


class PlacedExchange:
    """Sends each row to the partition in its `target` column, and runs each partition on a chosen executor."""

    def __init__(self, empty: _EmptySides, executors: Sequence[ExecutorSnapshot]) -> None:
        self._partitions = len(executors)
        self._by = empty.partitioning(self._partitions)
        self._side = empty.side(executors)

    def over(self, frame: DataFrame) -> list[DataFrame]:
        """Return the frames that this adds to a plan, the result last."""
        exchanged = DataFrame(frame._jdf.repartition(self._partitions, self._by), frame.sparkSession)
        return [exchanged, DataFrame(exchanged._jdf.union(self._side), frame.sparkSession)]


class _EmptySides:
    """Makes the sides of unions that have no rows. A new one costs 10 ms, and is made when executors change."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._session: Any = spark._jsparkSession
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._schema = jvm.org.apache.spark.sql.types.StructType.fromDDL(ROW_SCHEMA)
        self._partitions = 0
        self._by: Any = None
        self._form: Any = None

    def partitioning(self, partitions: int) -> Any:
        """Return the columns by which a frame is repartitioned so that target i goes to partition i."""
        if partitions != self._partitions:
            salts = self._salts(partitions)
            by: Any = get(array(*map(lit, salts)), col("target"))
            self._by = scala_sequence(self._spark.sparkContext, [by._jc])
            frame = self._session.internalCreateDataFrame(self._rdd([[]] * partitions), self._schema, False)
            self._form = frame.repartition(partitions, self._by)
            self._partitions = partitions
        return self._by

    def side(self, executors: Sequence[ExecutorSnapshot]) -> Any:
        """Return a Java frame without rows, with a preferred executor for each of its partitions."""
        by = self.partitioning(len(executors))
        logical = self._object("org.apache.spark.sql.execution.LogicalRDD")
        # The plan has the partitioning of the form, whose exchange is not part of it.
        plan = logical.fromDataset(self._rdd([_location(each) for each in executors]), self._form, False, False)
        side = self._object("org.apache.spark.sql.classic.Dataset").ofRows(self._session, plan)
        united = self._form.repartition(len(executors), by).union(side).queryExecution().toRdd().getNumPartitions()
        if united != len(executors):
            raise RuntimeError(f"a union of {len(executors)} partitions has {united}")
        return side

    def _salts(self, partitions: int) -> list[int]:
        """Return for each partition a number that Spark's hash puts there. Spark computes them without a job."""
        found: dict[int, int] = {}
        first = 0
        while len(found) < partitions:
            numbers = range(first, first := first + 8 * partitions + 64)
            rows = ", ".join(f"({each}, pmod(hash({each}), {partitions}))" for each in numbers)
            for number, partition in self._spark.sql(f"select * from values {rows} as t(number, part)").collect():
                found.setdefault(partition, number)
        return [found[each] for each in range(partitions)]

    def _rdd(self, locations: Sequence[list[str]]) -> Any:
        rdd, _ = rdd_without_rows(self._spark.sparkContext, "org.apache.spark.sql.catalyst.InternalRow", locations)
        return rdd

    def _object(self, name: str) -> Any:
        """Return a Scala object."""
        found: Any = self._jvm
        for part in f"{name}$".split("."):
            found = getattr(found, part)
        return getattr(found, "MODULE$")


def _location(executor: ExecutorSnapshot) -> list[str]:
    """Return an executor as a location of data, as seen through a union.

    Spark's union asks its sides for hosts only. The host of the cached HDFS block `hdfs_cache_X` is X, and Spark parses
    that again. It is listed twice to outvote the hosts that the shuffle prefers (`reduceLocality`).
    """
    return [f"hdfs_cache_{executor_location(executor)}"] * 2


class _Executors:
    """The executors that run tasks."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._context: Any = spark.sparkContext._jsc.sc()
        self.known: Mapping[str, ExecutorSnapshot] = {}
        """Those of the last look, by id."""
        self.generation = 0
        """Changes with the executors."""

    def look(self) -> Mapping[str, ExecutorSnapshot]:
        """Return the executors by id. If they are the same as before, this costs one call."""
        living = set(filter(None, str(self._context.getExecutorIds().mkString(",")).split(",")))
        if living != self.known.keys():
            # The list follows the ids after a moment.
            listed = list_executors(self._spark)
            known = {each.id: each for each in listed if each.id in living and not each.excluded}
            if known.keys() != self.known.keys():
                self.generation += 1
            self.known = known
        return self.known


class _LocalityWait:
    """Sets how long a task waits for its executor while that lives and is busy. Spark reads it for each stage.

    In steady state, a task waits for the others on its executor, at most as long as an epoch takes. If an executor dies
    during an epoch, its tasks wait as long before they run elsewhere, so the time follows that of recent epochs.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._conf: Any = spark.sparkContext._jsc.sc().conf()
        self._adjusts = not any(self._conf.contains(f"{_WAIT}{level}") for level in ("", ".process"))
        self._recent: deque[float] = deque(maxlen=_EPOCHS)
        self._set_ms = 0

    def epoch_took(self, seconds: float) -> None:
        if not self._adjusts:
            return
        self._recent.append(seconds)
        wanted = min(max(int(max(self._recent) * 1000), _LEAST_WAIT_MS), _MOST_WAIT_MS)
        # Not for each small change: it costs a call.
        if not self._set_ms * 0.8 <= wanted <= self._set_ms:
            if not self._set_ms:
                for level in (".node", ".rack"):
                    self._conf.setIfMissing(f"{_WAIT}{level}", "0")
            self._set_ms = min(wanted * 5 // 4, _MOST_WAIT_MS)
            self._conf.set(f"{_WAIT}.process", f"{self._set_ms}ms")
