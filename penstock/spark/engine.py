"""Runs an epoch's tasks as one Spark job, which is given up when the checkpoint's timeout has passed."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from penstock.common.garbage import GarbageCollector
from penstock.driver.epoch_errors import TookTooLong
from penstock.driver.epoch_parameters import EpochParameters
from penstock.driver.rescaling import Scale
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.rows import METRICS
from penstock.spark.lost import brief, lost
from penstock.spark.metrics import collect_metrics
from penstock.spark.stages import SparkExchange, SparkStage, release
from penstock.spark.warm_up import WarmUp
from penstock.spark.worker import EPOCH_PROPERTY, LevelStage, Preparation, ShippedGraph, SilentStage, SourceStage

_ENDING_S = 15.0
"""How long to wait for tasks of a job that was given up. Spark kills a worker after a few seconds."""
_EPOCHS_PER_COLLECTION = 50
"""Objects of the JVM that PySpark and py4j leave in cycles stay for so many epochs at most. A collection in a driver of
100,000 objects takes 25 ms."""


class SparkEngine:
    """Order of calls: `ship` before the first epoch and after each failure; then, for each epoch, `frame` is set to
    what the sources give, or None, and `execute` is called. `stop` from any thread."""

    def __init__(
        self, spark: SparkSession, graph: PhysicalGraph, timeout_ms: int, check_cancelled: Callable[[], None]
    ) -> None:
        """`check_cancelled` raises if the job was cancelled."""
        self._spark = spark
        self._graph = graph
        self._timeout_ms = timeout_ms
        self._check_cancelled = check_cancelled
        self._metrics = collect_metrics(spark)
        self._warm_up = WarmUp(spark.sparkContext)
        self._garbage = GarbageCollector(_EPOCHS_PER_COLLECTION)
        self._tag: str | None = None
        self._given_up: list[str] = []
        """Tags of jobs whose tasks may still run."""
        self.frame: DataFrame | None = None

    def ship(self, generation: int) -> None:
        """Make the stages. To workers the graph of each generation is a new one: they open all functions again."""
        self._shipped = ShippedGraph(self._graph, generation)
        levels = range(1, len(self._graph.levels))
        self._stages = [SparkStage(LevelStage(self._shipped, self._metrics, level)) for level in levels]

    def warm_up(self) -> None:
        """Make workers ready in the background, for the first epoch."""
        self._warm_up.start(self._shipped, max(self._graph.targets(level) for level in range(len(self._graph.levels))))

    def first_chain(self, chain: int, frame: DataFrame) -> DataFrame:
        """A source's stream with its first chain, as a part of the streaming plan."""
        columns = [frame[name] for name in frame.columns]
        return SparkStage(SourceStage(self._shipped, self._metrics, chain), columns).over(frame)

    def execute(self, parameters: EpochParameters) -> Iterable[tuple[int, bytes]]:
        """The sources' chains, then level after level. Gives their reports and failures, and metrics."""
        self._metrics.value = []
        frames: list[DataFrame] = []
        try:
            rows = self._run(parameters, lambda: self._plan(parameters.scale, frames).collect())
        finally:
            for frame in frames:
                release(frame)
            frames.clear()
            self._garbage.work_done()
        reports = [(row.kind, bytes(row.payload)) for row in rows]
        return reports + [(METRICS, measured) for measured in self._metrics.value]

    def prepare(self, parameters: EpochParameters, chains: list[int]) -> list[tuple[int, bytes]]:
        """Open a subtask of each of these chains in a worker. Gives failures."""
        work = Preparation(self._shipped, self._metrics, chains)
        one = self._spark.sparkContext.parallelize(range(1), 1)
        return self._run(parameters, one.mapPartitions(work).collect)

    def _run(self, parameters: EpochParameters, work: Callable[[], list[Any]]) -> list[Any]:
        """A Spark job with what the tasks of this epoch need to know."""
        context = self._spark.sparkContext
        context.setLocalProperty(EPOCH_PROPERTY, msgspec.json.encode(parameters).decode())
        # A task may hang for ever. Each attempt has a tag of its own: a late timer must not end the next one.
        self._tag = tag = f"penstock-{uuid.uuid4().hex}"
        context.addJobTag(tag)
        expired = threading.Event()
        timer = threading.Timer(self._timeout_ms / 1000, self._expire, (tag, expired))
        timer.daemon = True
        timer.start()
        try:
            self._check_cancelled()
            return work()
        except BaseException as error:
            self._given_up.append(tag)
            if not isinstance(error, Exception):
                raise
            # Spark wraps every loss of a worker, executor or stage in classes of its own.
            self._check_cancelled()
            if expired.is_set():
                raise TookTooLong(brief(error)) from None
            raise lost(error, self._graph.rescaled(parameters.scale), self._stages_of(tag)) from None
        finally:
            timer.cancel()
            context.removeJobTag(tag)

    def _stages_of(self, tag: str) -> list[int]:
        """The ids of the Spark stages of a job, the first level's first; none where Spark does not say."""
        try:
            tracker = self._spark.sparkContext.statusTracker()
            jobs = [
                tracker.getJobInfo(job)
                for job in self._spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(tag)
            ]
            return sorted(stage for job in jobs if job is not None for stage in job.stageIds)
        except Exception:  # a dying JVM may raise anything, and the failure itself matters more
            return []

    def stop(self) -> None:
        """Give up the epoch under way."""
        self._warm_up.cancel()
        if self._tag is not None:
            self._spark.sparkContext.cancelJobsWithTag(self._tag)

    def await_tasks(self) -> None:
        """Wait, for some seconds at most, until no task runs of a job that was given up: Spark does not wait for them.

        The socket of a worker is closed by then, so that its functions are being closed.
        """
        tags, self._given_up = self._given_up, []
        until = time.monotonic() + _ENDING_S
        # Whatever the bridge says of a JVM that is gone.
        with suppress(Exception):
            while any(map(self._runs, tags)) and time.monotonic() < until:
                time.sleep(0.02)

    def _runs(self, tag: str) -> bool:
        context = self._spark.sparkContext
        tracker = context.statusTracker()
        jobs = map(tracker.getJobInfo, context._jsc.sc().statusTracker().getJobIdsForTag(tag))
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)

    def _expire(self, tag: str, expired: threading.Event) -> None:
        expired.set()
        self._spark.sparkContext.cancelJobsWithTag(tag)

    def _plan(self, scale: Scale, made: list[DataFrame]) -> DataFrame:
        """`made` takes the frames that belong to this attempt alone."""
        frame = self.frame
        if frame is None:
            one = self._spark.range(0, 1, 1, 1)
            frame = SparkStage(SilentStage(self._shipped, self._metrics), [one["id"]]).over(one)
            made += one, frame
        graph = self._graph.rescaled(scale)
        for level, stage in enumerate(self._stages, 1):
            exchanged = SparkExchange(graph.targets(level)).over(frame)
            frame = stage.over(exchanged)
            made += exchanged, frame
        return frame
