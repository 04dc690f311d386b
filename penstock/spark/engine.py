"""Runs an epoch's tasks as one Spark job, and cancels the job when the checkpoint timeout has passed."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from penstock.common.garbage import GarbageCollector
from penstock.driver.epoch_errors import TookTooLong
from penstock.driver.epoch_parameters import EpochParameters
from penstock.driver.epoch_settings import Settings
from penstock.driver.held_state import Block
from penstock.driver.rescaling import Scale
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.rows import METRICS
from penstock.spark.lost import brief, lost
from penstock.spark.metrics import collect_metrics
from penstock.spark.placement import Exchanges
from penstock.spark.stages import SparkStage, release
from penstock.spark.warm_up import WarmUp
from penstock.spark.worker import EPOCH_PROPERTY, LevelStage, Preparation, ShippedGraph, SilentStage, SourceStage

_ENDING_S = 15.0
"""Maximum wait for the tasks of a cancelled job. Spark kills a worker after a few seconds."""
_EPOCHS_PER_COLLECTION = 50
"""Maximum number of epochs that JVM objects in reference cycles of PySpark and py4j stay alive. A collection in a
driver with 100,000 objects takes 25 ms."""


class SparkEngine:
    """Call `ship` before the first epoch and after each failure. For each epoch, set `frame` to the output of the
    sources, or to None, and call `execute`. `stop` can be called from any thread."""

    def __init__(
        self, spark: SparkSession, graph: PhysicalGraph, settings: Settings, check_cancelled: Callable[[], None]
    ) -> None:
        """`check_cancelled` raises if the job was cancelled."""
        self._spark = spark
        self._graph = graph
        self._timeout_ms = settings.timeout_ms
        self._check_cancelled = check_cancelled
        self._metrics = collect_metrics(spark)
        self._warm_up = WarmUp(spark.sparkContext)
        self._garbage = GarbageCollector(_EPOCHS_PER_COLLECTION)
        self._exchanges = Exchanges(spark, settings.backend, settings.standby_replicas)
        self._at_scale: tuple[Scale, PhysicalGraph] | None = None
        self._tag: str | None = None
        self._given_up: list[str] = []
        """Tags of jobs whose tasks might still run."""
        self.frame: DataFrame | None = None

    def ship(self, generation: int) -> None:
        """Create the stages. Workers treat each generation as a new graph and open all functions again."""
        self._shipped = ShippedGraph(self._graph, generation)
        levels = range(1, len(self._graph.levels))
        self._stages = [SparkStage(LevelStage(self._shipped, self._metrics, level)) for level in levels]

    def warm_up(self) -> None:
        """Start workers in the background, for the first epoch."""
        self._warm_up.start(self._shipped, max(self._graph.targets(level) for level in range(len(self._graph.levels))))

    def first_chain(self, chain: int, frame: DataFrame) -> DataFrame:
        """Add a source's first chain to its stream, as part of the streaming plan."""
        columns = [frame[name] for name in frame.columns]
        return SparkStage(SourceStage(self._shipped, self._metrics, chain), columns).over(frame)

    def execute(self, parameters: EpochParameters) -> Iterable[tuple[int, bytes]]:
        """Run the chains of the sources, then each level. Return reports, failures and metrics."""
        self._metrics.value = []
        frames: list[DataFrame] = []
        began = time.monotonic()
        try:
            rows = self._run(parameters, lambda: self._plan(parameters.scale, frames).collect())
            self._exchanges.epoch_ran(self._rescaled(parameters.scale), parameters, time.monotonic() - began)
        finally:
            for frame in frames:
                release(frame)
            frames.clear()
            self._garbage.work_done()
        reports = [(row.kind, bytes(row.payload)) for row in rows]
        return reports + [(METRICS, measured) for measured in self._metrics.value]

    def prepare(self, parameters: EpochParameters, chains: list[int]) -> list[tuple[int, bytes]]:
        """Open one subtask of each of these chains in a worker. Return failures."""
        work = Preparation(self._shipped, self._metrics, chains)
        one = self._spark.sparkContext.parallelize(range(1), 1)
        return self._run(parameters, one.mapPartitions(work).collect)

    @contextmanager
    def stoppable(self) -> Iterator[str]:
        """Let `stop` cancel the Spark jobs of this context. Yield their tag."""
        self._tag = tag = f"penstock-{uuid.uuid4().hex}"
        self._spark.sparkContext.addJobTag(tag)
        try:
            yield tag
        finally:
            self._spark.sparkContext.removeJobTag(tag)

    def _run(self, parameters: EpochParameters, work: Callable[[], list[Any]]) -> list[Any]:
        """Run a Spark job with the parameters of this epoch."""
        context = self._spark.sparkContext
        context.setLocalProperty(EPOCH_PROPERTY, msgspec.json.encode(parameters).decode())
        # A task can hang forever. Each attempt has its own tag, so that a late timer cancels only that attempt.
        with self.stoppable() as tag:
            return self._run_within_time(parameters, work, tag)

    def _run_within_time(self, parameters: EpochParameters, work: Callable[[], list[Any]], tag: str) -> list[Any]:
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
            # Spark wraps the loss of a worker, executor or stage in its own exception classes.
            self._check_cancelled()
            if expired.is_set():
                raise TookTooLong(brief(error)) from None
            raise lost(error, self._graph.rescaled(parameters.scale), self._stages_of(tag)) from None
        finally:
            timer.cancel()

    def _stages_of(self, tag: str) -> list[int]:
        """Return the IDs of a job's Spark stages in level order, or an empty list if Spark does not report them."""
        try:
            tracker = self._spark.sparkContext.statusTracker()
            jobs = [
                tracker.getJobInfo(job)
                for job in self._spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(tag)
            ]
            return sorted(stage for job in jobs if job is not None for stage in job.stageIds)
        except Exception:  # a dying JVM can raise anything, and the original failure matters more
            return []

    def stop(self) -> None:
        """Cancel the epoch in progress."""
        self._warm_up.cancel()
        if self._tag is not None:
            self._spark.sparkContext.cancelJobsWithTag(self._tag)

    def followed(self) -> Mapping[str, Sequence[Block]]:
        """Return the blocks that each executor follows as a standby. Can be called from any thread."""
        return self._exchanges.followed()

    def close(self) -> None:
        """Stop the work that runs concurrently with epochs. No epoch runs afterwards."""
        self._warm_up.cancel()
        self._exchanges.close()

    def await_tasks(self) -> None:
        """Wait a limited time until no task of a cancelled job runs. Spark itself does not wait for them.

        Spark has closed the workers' sockets by then, so their functions are being closed.
        """
        tags, self._given_up = self._given_up, []
        until = time.monotonic() + _ENDING_S
        # Ignore all errors of the bridge to a JVM that is gone.
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
        """Return the plan of an epoch. Frames that only this attempt uses are appended to `made`."""
        frame = self.frame
        if frame is None:
            one = self._spark.range(0, 1, 1, 1)
            frame = SparkStage(SilentStage(self._shipped, self._metrics), [one["id"]]).over(one)
            made += one, frame
        for exchange, stage in zip(self._exchanges.of(self._rescaled(scale)), self._stages, strict=True):
            exchanged = exchange.over(frame)
            frame = stage.over(exchanged[-1])
            made += *exchanged, frame
        return frame

    def _rescaled(self, scale: Scale) -> PhysicalGraph:
        if self._at_scale is None or self._at_scale[0] != scale:
            self._at_scale = dict(scale), self._graph.rescaled(scale)
        return self._at_scale[1]
