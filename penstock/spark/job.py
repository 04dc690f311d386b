"""A job on Spark: one streaming query whose every batch is an epoch, driven to its end, a failure or a cancel."""

from __future__ import annotations

import base64
import logging
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.checkpoint.housekeeping import merge_here
from penstock.checkpoint.lineages import Lineages, SharedStorage, new_lineage
from penstock.checkpoint.manifest import Fenced, Manifest, Version, load
from penstock.common.error_format import short_form
from penstock.common.job import JobCancelled, JobExecutionResult, JobStatus, JobSuspended
from penstock.connectors.guarantees import throttled_sources
from penstock.driver.clock import StepsBack
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.driver.epoch_settings import Settings
from penstock.driver.epoch_statistics import EpochStatistics
from penstock.driver.epochs import EpochDriver
from penstock.driver.error_identity import error_identity
from penstock.driver.flow_control import FlowControl, FlowSettings
from penstock.driver.restarts import Completed, Failed, Restart, Restarts, RestartStrategy, Resumed
from penstock.driver.slots import Slots, SlotSettings
from penstock.errors import PenstockError
from penstock.graph.logical import LogicalGraph
from penstock.runtime.plan import Chain, PhysicalGraph
from penstock.runtime.probe import crash_probe
from penstock.savepoint.format import savepoint_storage
from penstock.savepoint.restoring import (
    RestoreSettings,
    check_savepoint,
    lineage_from_savepoint,
    restore_savepoint,
)
from penstock.savepoint.saving import make_savepoint
from penstock.spark.bases import SparkMerge
from penstock.spark.bounded import open_batch
from penstock.spark.credit_files import CreditFiles
from penstock.spark.engine import SparkEngine
from penstock.spark.executors import check_executors, slot_counter
from penstock.spark.inputs import inputs_of
from penstock.spark.jvm import jvm_death
from penstock.spark.log import SparkLog
from penstock.spark.lost import brief
from penstock.spark.planner import NOT_RETRYABLE, PLANNING_FAILED
from penstock.spark.scratch import remove_scratch, scratch_directory
from penstock.spark.sources import came_to_an_end, may_come_to_an_end, open_stream, sources_in_log
from penstock.spark.stages import release
from penstock.state.backends import remove_replicas
from penstock.state.storage import DriverStorage, LocalStorage, Storage, StorageError

_TICK_S = 0.1
"""How often a job looks whether a timer is due."""

_LEAST_STEP_BACK_S = 5.0
"""Smaller steps of the clock hold a job up for less time than a new query takes."""

_INTERRUPTIBLE_S = 0.2
"""A wait without time-out cannot be interrupted by Ctrl-C while another thread is inside the JVM."""

_NO_SAVEPOINT = "no savepoint can be made of it"

_logger = logging.getLogger("penstock")


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
    restart_strategy: RestartStrategy
    restore: RestoreSettings | None = None
    """The savepoint that the job begins with."""
    store_options: Mapping[str, Any] = field(default_factory=dict)
    """Of the stores that hold savepoints."""
    slots: SlotSettings = field(default_factory=SlotSettings)
    on_epoch: list[Callable[[EpochStatistics], None]] = field(default_factory=list)
    flow: FlowSettings | None = None
    """How sources that can are held back; None where they are not."""
    single_epoch: bool = False
    """Whether it is a batch that is read at once: one Spark job, without checkpoints, and again from the start after a
    failure."""


class Job:
    """Order of calls: `start` once; then `wait` or `cancel` from any thread."""

    def __init__(self, spark: SparkSession, spec: JobSpec) -> None:
        self.id = uuid.uuid4().hex
        self.spec = spec
        self._spark = spark
        self._bounded = all(node.source.bounded for node in spec.logical.nodes.values() if node.source is not None)
        self._may_end = may_come_to_an_end(spec.logical)
        self._input_over = False
        """Whether sources of which nobody knew when they would end have done so."""
        self._status = JobStatus.CREATED
        self._error: BaseException | None = None
        self._cancelled = threading.Event()
        self._stopping = threading.Event()
        """Set when a savepoint holds all there will be of this job."""
        self._suspended = threading.Event()
        """Set when the job is to stop after the epoch under way and to remove nothing."""
        self._abandoned = threading.Event()
        """Set when it is not to wait for that epoch."""
        self._awake = threading.Event()
        """Set when a pause is to end because the job is to stop."""
        self._done = threading.Event()
        self._recovered = threading.Event()
        """Set while the driver stands on the last checkpoint; always set when the job is done."""
        self.at_start: list[Callable[[Manifest | None], None]] = []
        """Called with the checkpoint that the job goes on from, each time it has recovered. They must not raise."""
        self.savepoint_at_end: str | None = None
        """The path of the savepoint that the job was stopped with."""
        self.at_end: list[Callable[[], None]] = []
        """Called when the job ends, before anybody hears of it. They must not raise."""
        self._epoch_lock = threading.RLock()  # a listener may rescale
        self._query: Any = None
        self.started_at = time.time()
        self._started = time.monotonic()
        self._clock = StepsBack(time.time, time.monotonic)
        self._generation = 0
        """Of queries; a batch of an earlier one is not run."""
        self._workdir = scratch_directory()
        self._lineages = None if spec.checkpoint_root is None else Lineages(spec.checkpoint_root)
        self._restarts = Restarts(spec.restart_strategy)
        self.last_failure: BaseException | None = None
        self._unfinished = False
        """Whether a sink could not finish its part of a job that is over: then its checkpoints stay."""
        self._listener_failed = False
        self._engine = SparkEngine(spark, spec.physical, spec.settings.timeout_ms, self._stop_if_given_up)
        self._engine.ship(0)
        self._bases = SparkMerge(spark, self.id)
        self._saving = SparkMerge(spark, f"{self.id}-savepoint")
        self._slots = Slots(
            spec.name, lambda: self.driver.graph, slot_counter(spark), spec.slots, self._pause_for_slots
        )
        self._sources = sources_in_log(spec.logical, spec.physical)
        self._open_lineage()

    def _open_lineage(self) -> None:
        self._storage, lineage = self._open_storage()
        self._inputs = inputs_of(self._storage, self._workdir / "inputs", self._master())
        self._log = SparkLog(self._workdir / "spark", self._inputs.own)
        held = throttled_sources(self.spec.logical) if self.spec.flow is not None else []
        self._credits = CreditFiles(self._workdir / "credits", held)
        self.driver = EpochDriver(
            self.spec.physical,
            self._storage,
            self.spec.settings,
            self._engine.execute,
            self.spec.logical.sinks(),
            crash_probe("driver", lambda: self.driver.number),
            prepare=self._engine.prepare,
            lineage=lineage,
            wait=self._wait,
            merge=merge_here if self._storage.in_memory else self._bases,
            open_savepoint=partial(savepoint_storage, options=self.spec.store_options),
            single_epoch=self.spec.single_epoch,
            executor=ThreadPoolExecutor(1, "penstock-commits"),
            await_tasks=self._engine.await_tasks,
            flow=FlowControl(self.spec.flow, held, self._credits) if self.spec.flow is not None and held else None,
            slots=self._slots,
            source_lines=self._sources,
        )

    def _open_storage(self) -> tuple[Storage, str]:
        if self._lineages is None:
            lineage = new_lineage()
            if not self.spec.checkpointing and self._master().startswith("local"):
                # Executors are on this host: state is limited by its disk, and not by the driver's memory.
                root = self._workdir / "state" / lineage
                root.mkdir(parents=True)
                return LocalStorage(root, synced=False), lineage
            return DriverStorage(self._driver_host()), lineage
        if not self.spec.checkpointing:
            # Nobody will go on with it, so nobody needs to find it.
            lineage = new_lineage()
        elif self.spec.restore is None:
            lineage = self._lineages.current()
        else:
            lineage = lineage_from_savepoint(self._lineages, self.spec.physical, self._sources, self.spec.restore)
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
        self._engine.warm_up()
        threading.Thread(target=self._run, name=f"penstock-{self.spec.name}", daemon=True).start()

    def status(self) -> JobStatus:
        return self._status

    @property
    def restarts(self) -> int:
        return self._restarts.number

    @property
    def web_ui(self) -> str | None:
        """The address of Spark's own page, if it has one."""
        return self._spark.sparkContext.uiWebUrl

    def cancel(self) -> None:
        """Stop at once; the epoch under way is given up, nothing of it is visible."""
        if self._done.is_set():
            return
        self._status = JobStatus.CANCELLING
        self._cancelled.set()
        self._awake.set()
        self._give_up_epoch()
        self._done.wait()

    def suspend(self) -> None:
        """Stop after the epoch under way and remove nothing: the next start of the program goes on from there. Returns
        when the job has stopped. A job that no start can resume ends as if it was cancelled, after that epoch too."""
        if self._done.is_set():
            return
        self._suspended.set()
        self._awake.set()
        if self.spec.single_epoch:
            # Its one epoch is all of it.
            self.abandon()
        # The epoch under way comes to its end; after it none begins. Both waits end at a second Ctrl-C.
        while not self._epoch_lock.acquire(timeout=_INTERRUPTIBLE_S):
            pass
        try:
            query = self._query
        finally:
            self._epoch_lock.release()
        if query is not None:
            # Of a JVM that is gone the job's own thread hears too.
            with suppress(Exception):
                query.stop()
        while not self._done.wait(_INTERRUPTIBLE_S):
            pass

    def abandon(self) -> None:
        """As `suspend`, but give up the epoch under way: nothing of it is visible. Does not wait."""
        self._suspended.set()
        self._abandoned.set()
        self._awake.set()
        # The JVM may be gone, or about to go.
        with suppress(Exception):
            self._give_up_epoch()

    def _give_up_epoch(self) -> None:
        query = self._query
        if query is not None:
            query.stop()
        self._engine.stop()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def _resumable(self) -> bool:
        return self.spec.checkpointing and not self._storage.in_memory

    @property
    def resumes_from(self) -> int | None:
        """The checkpoint that the next start of the program goes on from; None where it starts from scratch."""
        return self.driver.last.id if self._resumable and self.driver.last is not None else None

    def savepoint(self, directory: SharedStorage) -> str:
        """Make one of the last checkpoint below this directory, beside the epochs that follow; gives its path."""
        self._await_recovery(_NO_SAVEPOINT)
        with ExitStack() as held:
            with self._epoch_lock:
                self._await_first_checkpoint()
                manifest, version = held.enter_context(self.driver.pinned_last())
            return self._save(directory, manifest, version)

    def stop_with_savepoint(self, directory: SharedStorage, drain: bool, cancel: bool = False) -> str:
        """Make one of all that the job did, and end it; gives the savepoint's path. If it fails, the job goes on.

        `drain`: the input is ended first, so that all timers and windows fire; then the job is over in any case.
        """
        self._await_recovery(_NO_SAVEPOINT)
        try:
            with self._epoch_lock:
                self._await_first_checkpoint()
                if drain:
                    self._engine.frame = None
                    self._notify(self.driver.run_epoch(None, {}, ends_input=True))
                    self._stopping.set()
                with self.driver.pinned_last() as (manifest, version):
                    path = self._save(directory, manifest, version)
                self.savepoint_at_end = path
                self._stopping.set()
                if cancel:
                    self._status = JobStatus.CANCELLING
                    self._cancelled.set()
        finally:
            if self._stopping.is_set():
                query = self._query
                if query is not None:
                    query.stop()
                self._done.wait()
        return path

    def _await_first_checkpoint(self) -> None:
        """Between epochs: see that the job runs, and that there is something to save."""
        if self._done.is_set() or self._given_up:
            raise PenstockError(
                f"Job '{self.spec.name}' is over: {_NO_SAVEPOINT}.",
                fix="Start it again, and make the savepoint while it runs.",
            )
        if self.driver.last is None:
            self._engine.frame = None
            self._notify(self.driver.run_epoch(None, {}))

    def _await_recovery(self, refused: str) -> None:
        """Until the driver stands on the last checkpoint. `refused`: what a batch, which has none, is told."""
        if self.spec.single_epoch:
            raise PenstockError(
                f"Job '{self.spec.name}' runs as a batch, which has no checkpoints: {refused}.",
                fix="Run it with RuntimeExecutionMode.STREAMING.",
            )
        self._recovered.wait()

    def _save(self, directory: SharedStorage, manifest: Manifest, version: Version) -> str:
        return make_savepoint(
            directory,
            self.spec.name,
            self.driver.graph,
            self._storage,
            manifest,
            version,
            self.spec.logical.derived_uids(),
            merge_here if self._storage.in_memory else self._saving,
        )

    @property
    def _given_up(self) -> bool:
        """Whether the job ends before its input does, because somebody asked for it."""
        return self._cancelled.is_set() or self._stopping.is_set() or self._suspended.is_set()

    def rescale(self, parallelism: int | Mapping[str, int]) -> None:
        """From the next epoch on. Returns when the epoch under way, if any, is over."""
        self._await_recovery("its parallelism stays")
        with self._epoch_lock:
            if self._done.is_set():
                raise PenstockError(
                    f"Job '{self.spec.name}' is over, and cannot be rescaled.",
                    fix="Start it again with another parallelism: penstock run -p N, or env.set_parallelism(N).",
                )
            self.driver.rescale(parallelism)

    def wait(self, timeout: float | None = None) -> JobExecutionResult:
        """Until the job ends; raises what it failed with. Interruptible by Ctrl-C."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._done.wait(_INTERRUPTIBLE_S):
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"job '{self.spec.name}' still runs after {timeout} s")
        if self._error is not None:
            raise self._error
        took = int((time.monotonic() - self._started) * 1000)
        return JobExecutionResult(self.id, took, list(self.driver.statistics), self.driver.metrics.read())

    @property
    def ended(self) -> bool:
        return self._done.is_set()

    def _run(self) -> None:
        try:
            if not re.fullmatch(r"local(\[.*\])?", self._master()):
                check_executors(self._spark, self.spec.checkpoint_root)
            self._run_to_the_end()
            if self._suspended.is_set() and not (self._stopping.is_set() or self._has_ended):
                raise JobSuspended(f"Job '{self.spec.name}' was stopped.")
            stopped = self._stopping.is_set() and not self._has_ended
            self._clean_up(ended=not stopped or self._close_lineage())
            self._status = JobStatus.FINISHED
        except BaseException as error:  # the job's thread: whatever it is, the waiting thread must see it
            self._error = error if self._session_lives() else jvm_death() or error
            if self._cancelled.is_set():
                self._error = JobCancelled(f"Job '{self.spec.name}' was cancelled.")
            suspended = isinstance(error, JobSuspended)
            over = self._cancelled.is_set() or (suspended and not self._resumable)
            self._clean_up(ended=over and self._close_lineage())
            if over:
                self._status = JobStatus.CANCELED
            else:
                self._status = JobStatus.SUSPENDED if suspended else JobStatus.FAILED
        finally:
            for act in self.at_end:
                act()
            self._done.set()
            self._recovered.set()

    @property
    def _has_ended(self) -> bool:
        return self.driver.last is not None and self.driver.last.ended

    def _run_to_the_end(self) -> None:
        """Run the query, and again as often as the restart strategy allows; raises what it does not."""
        while True:
            try:
                if self._run_query():
                    self._stop_if_cancelled()
                    return
            except Exception as error:
                self._stop_if_cancelled()
                if self._suspended.is_set():
                    self._note_failure_while_stopping(error)
                    return
                self._await_restart(error)

    def _note_failure_while_stopping(self, error: Exception) -> None:
        """The next start runs that epoch again, and then the restart strategy decides."""
        if not isinstance(error, JobSuspended):
            self.last_failure = error
            _logger.warning("Job '%s' failed while it was being stopped: %s", self.spec.name, error)

    def _await_restart(self, error: Exception) -> None:
        """Decide, wait and make ready, or raise the error."""
        self._become(JobStatus.FAILING)
        self.last_failure = error
        retryable = error.retryable if isinstance(error, PenstockError) else True
        if not retryable or self._listener_failed or not self._session_lives():
            raise error
        from_user = isinstance(error, UserFunctionFailed)
        decision = self._restarts.handle(Failed(int(time.monotonic() * 1000), from_user, error_identity(error)))
        name = self.spec.name
        if not isinstance(decision, Restart):
            if decision is not None and decision.reason:
                _logger.warning("Job '%s' is not restarted: %s.", name, decision.reason)
            raise error
        self._become(JobStatus.RESTARTING)
        # From here on no epoch of the query before runs, so no listener waits for what waits for the epoch.
        with self._epoch_lock:
            self._generation += 1
            self._recovered.clear()
        where = "from scratch, for it has no checkpoints"
        if self.spec.checkpointing:
            where = "from the start" if self.driver.last is None else f"from checkpoint {self.driver.last.id}"
        _logger.warning(
            "%s\nJob '%s' failed. Restart %d in %.1f s, %s.",
            short_form(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}",
            name,
            decision.number,
            decision.delay_ms / 1000,
            where,
        )
        self._wait(decision.delay_ms / 1000)
        self._error = None
        if not self.spec.checkpointing and not self.spec.single_epoch:
            self._abandon()
            self._end_lineage(retain=self._unfinished)
            self._open_lineage()
        self._engine.ship(self.restarts)
        self.driver.metrics.restarted(self.restarts)
        self._become(JobStatus.RUNNING)

    def _session_lives(self) -> bool:
        try:
            return not self._spark.sparkContext._jsc.sc().isStopped()
        except Exception:  # whatever the bridge says of a JVM that is gone
            return False

    def _wait(self, seconds: float) -> None:
        self._awake.wait(seconds)
        self._stop_if_cancelled()
        if self._suspended.is_set():
            raise JobSuspended(f"Job '{self.spec.name}' was stopped.")

    def _pause_for_slots(self) -> bool:
        self._wait(_TICK_S)
        return self._error is None and not self._given_up

    def _stop_if_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise JobCancelled(f"Job '{self.spec.name}' was cancelled.")

    def _stop_if_given_up(self) -> None:
        self._stop_if_cancelled()
        if self._abandoned.is_set():
            raise JobSuspended(f"Job '{self.spec.name}' was stopped.")

    def _become(self, status: JobStatus) -> None:
        if not self._cancelled.is_set():
            self._status = status

    def _run_single_epoch(self) -> None:
        """All of the input in one epoch, which is also the end of it."""
        self._engine.frame = self._joined(self._opened_at_once())
        self._slots.await_enough()
        try:
            with self._epoch_lock:
                self.driver.start_sinks()
                # The same lineage after a failure, so that sinks find what that left.
                self.driver.recover()
                self._announce(None)
                self._notify(self.driver.run_epoch(None, {}, ends_input=True))
        finally:
            self._engine.frame = None

    def _run_query(self) -> bool:
        """Whether the job is over; else the query is to be started again."""
        if self.spec.single_epoch:
            self._run_single_epoch()
            return True
        # An epoch of the query before may not have heard yet that it is over.
        with self._epoch_lock:
            driver, restore = self.driver, self.spec.restore
            if restore is not None:
                restore_savepoint(
                    self._storage, self.spec.physical, driver.sources, driver.lineage, driver.token, restore
                )
            driver.start_sinks()
            last = driver.recover() if self.spec.checkpointing or restore is not None else None
            if last is not None:
                self._restarts.handle(Resumed())
            self._announce(last)
            self._recovered.set()
        if (last is not None and last.ended) or self._suspended.is_set():
            return True
        self._log.rewrite(last, lambda number: load(self._storage, number)[0])
        self._look_for_end()
        if self.spec.physical.sources():
            writer = self._stream().writeStream.foreachBatch(partial(self._on_batch, self._generation))
            writer = writer.option("checkpointLocation", str(self._log.root))
            if self._bounded:
                writer = writer.trigger(availableNow=True)
            elif self.spec.checkpointing:
                writer = writer.trigger(processingTime=f"{self.spec.interval_ms} milliseconds")
            try:
                self._query = writer.start()
                # Whoever ended the job meanwhile did not see this query.
                if self._given_up:
                    self._query.stop()
                while not self._query.awaitTermination(_TICK_S):
                    self._check_commits()
                    self._wake_up()
                    if self._trigger_is_stuck():
                        return False
                    if self._input_over:
                        if any(node.source.bounded for _, node in self._source_nodes()):
                            # They may have more.
                            self._query.processAllAvailable()
                        self._query.stop()
            except PySparkException as error:
                if self._error is None and not self._given_up:
                    raise _query_failed(error) from None
        if self._error is not None:
            raise self._error
        if (self._bounded or self._input_over) and not self._given_up and self._slots.await_enough():
            with self._epoch_lock:
                # A savepoint may have ended the job while this waited for it.
                if not self._given_up:
                    self._engine.frame = None
                    self._notify(self.driver.run_epoch(None, {}, ends_input=True))
        return True

    def _trigger_is_stuck(self) -> bool:
        """Whether the machine's clock was set back, so that Spark, whose trigger waits for a time by that clock, would
        run no batch until it is there again. Then the query is stopped; a new one reads the clock as it is now."""
        back = self._clock.seconds()
        if back < _LEAST_STEP_BACK_S or self._bounded or not self.spec.checkpointing or self._given_up:
            return False
        with self._epoch_lock:
            self._generation += 1
        _logger.warning(
            "The clock of this machine went back by %.0f s. Job '%s' starts its query again from the last checkpoint.",
            back,
            self.spec.name,
        )
        self._query.stop()
        return True

    def _check_commits(self) -> None:
        """Hear of a sink that failed beside the epochs: without data none comes that would."""
        if not self._epoch_lock.acquire(blocking=False):
            return
        try:
            self.driver.check_commits()
        except BaseException as error:  # as in _on_batch: `wait` raises it
            self._error = self._error or error
            self._query.stop()
        finally:
            self._epoch_lock.release()

    def _wake_up(self) -> None:
        """Run an epoch without records if a timer or an idle channel is due: Spark runs none while nothing comes."""
        if not self.driver.wakeup_is_due or self._given_up or self.driver.pause_left() > 0:
            return
        try:
            if not self._slots.await_enough():
                return
            with self._epoch_lock:
                if not self.driver.wakeup_is_due or self._error is not None or self._given_up:
                    return
                self._engine.frame = None
                self._notify(self.driver.run_epoch(None, {}))
                return
        except BaseException as error:  # as in _on_batch: `wait` raises it
            self._error = self._error or error
        self._query.stop()

    def _close_lineage(self) -> bool:
        """Of a cancelled or stopped job: whether its checkpoints are this driver's to remove.

        Another may have gone on with them. What nobody can resume shows what its last checkpoint holds.
        """
        how = "stopped" if self._stopping.is_set() and not self._cancelled.is_set() else "cancelled"
        try:
            # The epoch under way may be about to publish.
            with self._epoch_lock:
                if self.spec.checkpointing:
                    self.driver.close()
                # What sinks have open belongs to whoever begins with the savepoint.
                if not (self.spec.retain and self.spec.checkpointing) and not self._stopping.is_set():
                    self.driver.finish_sinks()
        except Fenced as fenced:
            self._error = JobCancelled(f"Job '{self.spec.name}' was {how} here, but not its checkpoints. {fenced}")
            return False
        except Exception as error:  # the user's sink; that the job was cancelled stays true
            self._error = PenstockError(
                f"The job was {how}, but a sink could not be finished, so its checkpoints are kept: {error}"
            )
            self._unfinished = True
        return True

    def _abandon(self) -> None:
        """Abort what sinks prepared and no checkpoint holds, before anybody forgets it."""
        try:
            with self._epoch_lock:
                self.driver.abort_uncommitted(everything=not self.spec.checkpointing)
        except Exception as error:  # the user's sink; what the job did stays done
            self._unfinished = True
            _logger.warning("Job '%s': %s", self.spec.name, error)

    def _clean_up(self, ended: bool) -> None:
        self._abandon()
        if ended or not self.spec.checkpointing:
            self._end_lineage(retain=(self.spec.retain and self.spec.checkpointing) or self._unfinished)
        else:
            self._close_storage()
        remove_scratch(self._workdir)

    def _end_lineage(self, retain: bool) -> None:
        self._close_storage()
        remove_replicas(self.spec.settings.backend, self.driver.lineage)
        if self._lineages is None:
            shutil.rmtree(self._workdir / "state" / self.driver.lineage, ignore_errors=True)
        else:
            try:
                self._lineages.end(self.driver.lineage, last=self.driver.next_number - 1, retain=retain)
            except StorageError as error:
                # What the job did stays done; whoever starts it next sweeps.
                _logger.warning("The checkpoints of job '%s' were not removed: %s", self.spec.name, error)

    def _close_storage(self) -> None:
        self._credits.close()
        self._bases.cancel()
        self._saving.cancel()
        self.driver.stop()
        self._storage.close()

    # -- epochs ----------------------------------------------------------------------------------------------------

    def _stream(self) -> DataFrame:
        return self._joined(
            open_stream(
                self._spark,
                chain,
                node.source.origin,
                partial(self._inputs.folder, f"source-{node.id}"),
                self.spec.parallelism,
                self.spec.records_per_epoch,
                # The copy of a collection is made before the first checkpoint of this driver's own.
                0 if self.driver.last is None else self.driver.last.records.get(node.uid, 0),
                self._credits.path(node.uid),
                self.spec.physical.program,
            )
            for chain, node in self._source_nodes()
        )

    def _opened_at_once(self) -> Iterator[DataFrame]:
        for chain, node in self._source_nodes():
            place = partial(self._inputs.folder, f"source-{node.id}")
            program = self.spec.physical.program
            yield open_batch(self._spark, chain, node.source.origin, place, self.spec.parallelism, program)

    def _source_nodes(self) -> Iterator[tuple[Chain, Any]]:
        nodes = {node.uid: node for node in self.spec.logical.nodes.values()}
        return ((chain, nodes[chain.source_uid or ""]) for chain in self.spec.physical.sources())

    def _joined(self, frames: Iterable[DataFrame]) -> DataFrame:
        """What the sources' first chains give."""
        chains = self.spec.physical.sources()
        branches = [self._engine.first_chain(chain.id, frame) for chain, frame in zip(chains, frames, strict=True)]
        return reduce(DataFrame.unionAll, branches)

    def _on_batch(self, generation: int, frame: DataFrame, batch: int) -> None:
        """Called by Spark for every batch. Whatever fails is kept for `wait`: through the JVM only a word travels."""
        try:
            # Without the lock: while it waits, the job may be rescaled to what it has, or saved and stopped.
            if self._slots.await_enough():
                with self._epoch_lock:
                    self._run_batch(generation, frame, batch)
            return
        except BaseException as error:  # see docstring
            self._error = self._error or error
        finally:
            release(frame)
        raise RuntimeError("the epoch failed") from None

    def _run_batch(self, generation: int, frame: DataFrame, batch: int) -> None:
        try:
            if generation != self._generation or self._stopping.is_set() or self._suspended.is_set():
                # Of a query that was given up while it waited for its turn.
                return
            before = None if self.driver.last is None else self.driver.last.batch
            expected = 0 if before is None else before + 1
            if batch != expected:
                raise PenstockError(
                    f"Spark runs batch {batch}, but after checkpoint {self.driver.next_number - 1} batch {expected} "
                    f"must follow: its log was changed."
                )
            self._engine.frame = frame
            files = self._log.appeared(batch)
            index = self._log.index(self.driver.next_number, files)
            statistics = self.driver.run_epoch(batch, files, log_index=index)
            self._log.published(index, files)
            self._look_for_end()
            self._notify(statistics)
        finally:
            self._engine.frame = None

    def _look_for_end(self) -> None:
        if self._may_end:
            self._input_over = came_to_an_end(self.spec.logical, self._sources, self._log.offsets())

    def _announce(self, last: Manifest | None) -> None:
        for act in self.at_start:
            act(last)

    def _notify(self, statistics: EpochStatistics) -> None:
        self._restarts.handle(Completed())
        try:
            for listener in self.spec.on_epoch:
                listener(statistics)
        except BaseException:
            # The program's own wish; it would come again at the next epoch.
            self._listener_failed = True
            raise


def check_savepoint_of(spec: JobSpec) -> None:
    """Refuse a savepoint that the job cannot begin with, before Spark starts. Changes nothing."""
    restore, root = spec.restore, spec.checkpoint_root
    if restore is None:
        return
    # A job that has begun with it goes on, and may have removed it.
    if not (root is not None and spec.checkpointing and Lineages(root).goes_on_from(restore.origin)):
        check_savepoint(spec.physical, sources_in_log(spec.logical, spec.physical), restore)


def _query_failed(error: Exception) -> PenstockError:
    marked = re.search(rf"{PLANNING_FAILED}({NOT_RETRYABLE})?([A-Za-z0-9+/=]+)", str(error))
    if marked is not None:
        failure = PenstockError(base64.b64decode(marked[2]).decode())
        failure.retryable = marked[1] is None
        return failure
    return PenstockError(f"The query failed in Spark: {brief(error)}")
