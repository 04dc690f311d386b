"""A job on Spark: one streaming query whose every batch is an epoch, driven to its end, a failure or a cancel."""

from __future__ import annotations

import base64
import os
import re
import shutil
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.checkpoint.epochs import (
    EngineLost,
    EpochDriver,
    EpochParameters,
    EpochStatistics,
    Settings,
)
from penstock.checkpoint.housekeeping import merge_here
from penstock.checkpoint.lineages import Lineages, SharedStorage, new_lineage
from penstock.checkpoint.manifest import load
from penstock.common.job import JobCancelled, JobExecutionResult, JobStatus
from penstock.errors import PenstockError
from penstock.graph.logical import LogicalGraph
from penstock.runtime.plan import PhysicalGraph
from penstock.runtime.probe import crash_probe
from penstock.runtime.rows import METRICS
from penstock.spark.bases import SparkMerge
from penstock.spark.executors import check_executors
from penstock.spark.inputs import inputs_of
from penstock.spark.log import SparkLog
from penstock.spark.metrics import collect_metrics
from penstock.spark.planner import PLANNING_FAILED
from penstock.spark.scratch import scratch_directory
from penstock.spark.sources import open_stream
from penstock.spark.stages import Exchange, Stage
from penstock.spark.worker import EPOCH_PROPERTY, ROW_SCHEMA, LevelStage, ShippedGraph, SilentStage, SourceStage
from penstock.state.storage import DriverStorage, Storage, StorageError

_TICK_S = 0.1
"""How often a job looks whether a timer is due."""


@dataclass
class JobSpec:
    """All that is needed to run a job, checked before Spark starts."""

    name: str
    logical: LogicalGraph
    physical: PhysicalGraph
    settings: Settings
    checkpoint_root: SharedStorage | None
    """Where this job's lineages are; None for the driver's memory."""
    checkpointing: bool
    interval_ms: int
    retain: bool
    parallelism: int
    records_per_epoch: int
    on_epoch: list[Callable[[EpochStatistics], None]] = field(default_factory=list)


class Job:
    """Order of calls: `start` once; then `wait` or `cancel` from any thread."""

    def __init__(self, spark: SparkSession, spec: JobSpec) -> None:
        self.id = uuid.uuid4().hex
        self.spec = spec
        self._spark = spark
        self._bounded = all(node.source.bounded for node in spec.logical.nodes.values() if node.source is not None)
        self._status = JobStatus.CREATED
        self._error: BaseException | None = None
        self._cancelled = threading.Event()
        self._done = threading.Event()
        self._epoch_lock = threading.Lock()
        self._query: Any = None
        self._batch_frame: DataFrame | None = None
        self._started_at = time.time()
        self._workdir = scratch_directory()
        self._shipped = ShippedGraph(spec.physical)
        self._metrics = collect_metrics(spark)
        self._lineages = None if spec.checkpoint_root is None else Lineages(spec.checkpoint_root)
        self._storage, lineage = self._open_storage()
        self._inputs = inputs_of(self._storage, self._workdir / "inputs", self._master())
        self._log = SparkLog(self._workdir / "spark", self._inputs.own)
        self._line: list[Exchange | Stage] = []
        for level in range(1, len(spec.physical.levels)):
            stage = Stage(LevelStage(self._shipped, self._metrics, level))
            self._line += [Exchange(spec.physical.targets(level)), stage]
        self._bases = SparkMerge(spark, self.id)
        self.driver = EpochDriver(
            spec.physical,
            self._storage,
            spec.settings,
            self._execute,
            spec.logical.sinks(),
            crash_probe("driver", lambda: self.driver.number),
            lineage=lineage,
            merge=merge_here if self._storage.in_memory else self._bases,
        )

    def _open_storage(self) -> tuple[Storage, str]:
        if self._lineages is None:
            return DriverStorage(self._driver_host()), new_lineage()
        # Without checkpoints nobody will go on with it, so nobody needs to find it.
        lineage = self._lineages.current() if self.spec.checkpointing else new_lineage()
        return self._lineages.storage_of(lineage), lineage

    def _driver_host(self) -> str:
        """Loopback, unless the user chose a cluster: then its executors must reach the driver."""
        if self._master().startswith("local"):
            return "127.0.0.1"
        return str(self._spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1"))

    def _master(self) -> str:
        return str(self._spark.sparkContext.master)

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._status = JobStatus.RUNNING
        threading.Thread(target=self._run, name=f"penstock-{self.spec.name}", daemon=True).start()

    def status(self) -> JobStatus:
        return self._status

    def cancel(self) -> None:
        """Stop at once; the epoch under way is given up, nothing of it is visible."""
        if self._done.is_set():
            return
        self._cancelled.set()
        self._status = JobStatus.CANCELLING
        query = self._query
        if query is not None:
            query.stop()
        self._done.wait()

    def wait(self, timeout: float | None = None) -> JobExecutionResult:
        """Until the job ends; raises what it failed with. Interruptible by Ctrl-C."""
        deadline = None if timeout is None else time.monotonic() + timeout
        # A wait without time-out cannot be interrupted while another thread is inside the JVM.
        while not self._done.wait(0.2):
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"job '{self.spec.name}' still runs after {timeout} s")
        if self._error is not None:
            raise self._error
        took = int((time.time() - self._started_at) * 1000)
        return JobExecutionResult(self.id, took, list(self.driver.statistics), self.driver.metrics.read())

    @property
    def ended(self) -> bool:
        return self._done.is_set()

    def _run(self) -> None:
        try:
            self._run_query()
            if self._cancelled.is_set():
                raise JobCancelled(f"Job '{self.spec.name}' was cancelled.")
            self._status = JobStatus.FINISHED
            self._clean_up(ended=True)
        except BaseException as error:  # the job's thread: whatever it is, the waiting thread must see it
            self._error = error
            self._status = JobStatus.CANCELED if self._cancelled.is_set() else JobStatus.FAILED
            if self._cancelled.is_set():
                self._error = JobCancelled(f"Job '{self.spec.name}' was cancelled.")
            if self._cancelled.is_set():
                self._finish_sinks()
            self._clean_up(ended=self._cancelled.is_set())
        finally:
            self._done.set()

    def _run_query(self) -> None:
        if not re.fullmatch(r"local(\[.*\])?", self._master()):
            check_executors(self._spark, self.spec.checkpoint_root)
        last = self.driver.recover() if self.spec.checkpointing else None
        if last is not None and last.ended:
            return
        self._log.rewrite(last, lambda number: load(self._storage, number)[0])
        if self.spec.physical.sources():
            writer = self._stream().writeStream.foreachBatch(self._on_batch)
            writer = writer.option("checkpointLocation", str(self._log.root))
            if self._bounded:
                writer = writer.trigger(availableNow=True)
            elif self.spec.checkpointing:
                writer = writer.trigger(processingTime=f"{self.spec.interval_ms} milliseconds")
            try:
                self._query = writer.start()
                if self._cancelled.is_set():
                    self._query.stop()
                while not self._query.awaitTermination(_TICK_S):
                    self._wake_up()
            except PySparkException as error:
                if self._error is None and not self._cancelled.is_set():
                    raise _query_failed(error) from None
        if self._error is not None:
            raise self._error
        if self._bounded and not self._cancelled.is_set():
            self._batch_frame = None
            self._notify(self.driver.run_epoch(None, {}, ends_input=True))

    def _wake_up(self) -> None:
        """Run an epoch without records if a timer or an idle channel is due: Spark runs none while nothing comes."""
        due = self.driver.next_wakeup
        if due is None or due > time.time() * 1000 or self._cancelled.is_set():
            return
        with self._epoch_lock:
            due = self.driver.next_wakeup
            if due is None or due > time.time() * 1000 or self._error is not None:
                return
            try:
                self._batch_frame = None
                self._notify(self.driver.run_epoch(None, {}))
                return
            except BaseException as error:  # as in _on_batch: `wait` raises it
                self._error = self._error or error
        self._query.stop()

    def _finish_sinks(self) -> None:
        """A cancelled job that nobody can resume shows what its last checkpoint holds."""
        if not (self.spec.retain and self.spec.checkpointing):
            try:
                self.driver.finish_sinks()
            except Exception as error:  # the user's sink; that the job was cancelled stays true
                self._error = PenstockError(f"The job was cancelled, but a sink could not be finished: {error}")

    def _clean_up(self, ended: bool) -> None:
        self._bases.cancel()
        self.driver.close()
        self._storage.close()
        shutil.rmtree(self._workdir, ignore_errors=True)
        if ended or not self.spec.checkpointing:
            for directory in self.spec.settings.backend.directories:
                shutil.rmtree(os.path.join(directory, self.driver.lineage), ignore_errors=True)
            if self._lineages is not None:
                try:
                    retain = self.spec.retain and self.spec.checkpointing
                    self._lineages.end(self.driver.lineage, last=self.driver.next_number - 1, retain=retain)
                except StorageError as error:
                    # What the job did stays done; whoever starts it next sweeps.
                    warnings.warn(f"Job '{self.spec.name}' is over, but not its checkpoints: {error}", stacklevel=2)

    # -- epochs ----------------------------------------------------------------------------------------------------

    def _stream(self) -> DataFrame:
        branches = []
        for chain in self.spec.physical.sources():
            node = next(node for node in self.spec.logical.nodes.values() if node.uid == chain.source_uid)
            assert node.source is not None
            place = partial(self._inputs.folder, f"source-{node.id}")
            frame = open_stream(
                self._spark, chain, node.source.origin, place, self.spec.parallelism, self.spec.records_per_epoch
            )
            branches.append(frame.mapInArrow(SourceStage(self._shipped, self._metrics, chain.id), ROW_SCHEMA))
        return reduce(DataFrame.unionAll, branches)

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        """Called by Spark for every batch. Whatever fails is kept for `wait`: through the JVM only a word travels."""
        self._epoch_lock.acquire()
        try:
            before = None if self.driver.last is None else self.driver.last.batch
            expected = 0 if before is None else before + 1
            if batch != expected:
                raise PenstockError(
                    f"Spark runs batch {batch}, but after checkpoint {self.driver.next_number - 1} batch {expected} "
                    f"must follow: its log was changed."
                )
            self._batch_frame = frame
            files = self._log.appeared(batch)
            index = self._log.index(self.driver.next_number, files)
            statistics = self.driver.run_epoch(batch, files, log_index=index)
            self._log.published(index)
            self._notify(statistics)
            return
        except BaseException as error:  # see docstring
            self._error = self._error or error
        finally:
            self._batch_frame = None
            self._epoch_lock.release()
        raise RuntimeError("the epoch failed") from None

    def _notify(self, statistics: EpochStatistics) -> None:
        for listener in self.spec.on_epoch:
            listener(statistics)

    def _execute(self, parameters: EpochParameters) -> Iterable[tuple[int, bytes]]:
        """One Spark job: the sources' chains, then level after level. Gives their reports and failures, and metrics."""
        self._spark.sparkContext.setLocalProperty(EPOCH_PROPERTY, msgspec.json.encode(parameters).decode())
        self._metrics.value = []
        try:
            rows = self._plan().collect()
        except Exception as error:  # Spark wraps every loss of a worker, executor or stage in classes of its own
            if self._cancelled.is_set():
                raise JobCancelled(f"Job '{self.spec.name}' was cancelled.") from None
            raise EngineLost(_brief(error)) from None
        reports = [(row.kind, bytes(row.payload)) for row in rows]
        return reports + [(METRICS, measured) for measured in self._metrics.value]

    def _plan(self) -> DataFrame:
        frame = self._batch_frame
        if frame is None:
            frame = self._spark.range(0, 1, 1, 1).mapInArrow(SilentStage(self._shipped, self._metrics), ROW_SCHEMA)
        for part in self._line:
            frame = part.over(frame)
        return frame


def _query_failed(error: Exception) -> PenstockError:
    marked = re.search(rf"{PLANNING_FAILED}([A-Za-z0-9+/=]+)", str(error))
    if marked is not None:
        return PenstockError(base64.b64decode(marked[1]).decode())
    return PenstockError(f"The query failed in Spark: {_brief(error)}")


def _brief(error: Exception) -> str:
    """A Spark error without its JVM frames; of a Python worker's, the exception itself."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith(("at ", "... "))]
    for index, line in enumerate(lines):
        if line.startswith("Traceback (most recent call last)"):
            # The frames are indented; the first line that is not names the exception.
            after = [last for last in lines[index + 1 :] if not last.startswith(" ")]
            return "\n".join(after[:3])
    return "\n".join(lines[:4]) or type(error).__name__
