"""A job's thread: executes the life cycle's instructions, with a streaming query whose batches are epochs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from penstock.checkpoint.lineages import SharedStorage
from penstock.checkpoint.manifest import Fenced, Manifest, Version
from penstock.common.error_format import short_form
from penstock.common.job import JobCancelled, JobStatus, JobSuspended
from penstock.common.scratch import remove_scratch, scratch_directory
from penstock.driver.assignment import RecordedFailure, Superseded, Verdict, verdict_on
from penstock.driver.clock import StepsBack
from penstock.driver.epoch_statistics import EpochStatistics
from penstock.driver.epochs import EpochDriver
from penstock.driver.failures import replayed
from penstock.driver.instructions import AwaitRestart, End, JobFailure, Recover, RunEpoch, StartQuery, StopQuery
from penstock.driver.job_observer import JobObserver
from penstock.driver.job_snapshot import ExceptionSnapshot
from penstock.driver.life_cycle import LifeCycle, Wish
from penstock.driver.requests import Requests
from penstock.driver.rescaling import Scale
from penstock.driver.slots import Slots, TooFewSlots
from penstock.errors import PenstockError
from penstock.runtime.probe import crash_probe
from penstock.spark.engine import SparkEngine
from penstock.spark.executor_watch import ExecutorWatch
from penstock.spark.executors import check_first_executors, slot_counter
from penstock.spark.job_facts import job_facts
from penstock.spark.job_spec import JobSpec
from penstock.spark.jvm import jvm_death
from penstock.spark.open_lineage import OpenLineage
from penstock.spark.query import EpochQuery
from penstock.spark.stages import release

_TICK_S = 0.1
"""How often a job checks whether a timer is due."""

_LEAST_STEP_BACK_S = 5.0
"""Smaller clock changes delay a job for less time than a new query takes to start."""

_logger = logging.getLogger("penstock")

_Instruction = Recover | StartQuery | RunEpoch | AwaitRestart | End


class JobExecution:
    """Call `start` once; `done` is set at the end.

    Three kinds of threads meet here: the job's thread executes instructions, Spark's thread runs batches, and request
    threads (`driver/requests.py`) run epochs and stop the query. `epoch_lock` guards epochs and phase changes.
    """

    def __init__(self, spark: SparkSession, spec: JobSpec, job: str) -> None:
        """`job` is the job ID."""
        self._spark, self._spec, self._job = spark, spec, job
        self._executors = ExecutorWatch(spark)
        self.observer = JobObserver(
            job_facts(spark, spec, job), executors=self._executors.executors, followed=lambda: self._engine.followed()
        )
        self.life = LifeCycle(spec.traits, spec.restart_strategy, self.observer.changed)
        self.epoch_lock = threading.RLock()  # reentrant, because a listener can rescale
        self.done = threading.Event()
        self.recovered = threading.Event()
        """Set while requests can be executed, and always once the job is done."""
        self.error: BaseException | None = None
        """The exception that the job, or an epoch of its query, failed with."""
        self.last_failure: BaseException | None = None
        self._epoch_thread: int | None = None
        """The thread that runs an epoch or its listeners."""
        self._kept_scale: Scale | None = None
        """The scale of a job that restarts without checkpoints."""
        self.at_start: list[Callable[[Manifest | None], None]] = []
        self.at_end: list[Callable[[], None]] = []
        self._awake = threading.Event()
        """Set to end a pause, because the job is stopping."""
        self.clock = StepsBack(time.time, time.monotonic)
        self._has_recovered = False
        self._unfinished = False
        """Whether a sink could not finish its part of a job that has ended. The checkpoints are then kept."""
        self._workdir = scratch_directory()
        self._engine = SparkEngine(spark, spec.physical, spec.settings, self._stop_if_given_up)
        self._engine.ship(self.life.generation)
        self._query = EpochQuery(spark, spec, self._engine)
        waits = self.observer.waits_for_slots
        self._slots = Slots(
            spec.name, lambda: self.driver.graph, slot_counter(spark), spec.slots, self._pause_for_slots, on_wait=waits
        )
        self.lineage = self._open_lineage()
        self._probe = crash_probe("driver", lambda: self.driver.number)
        self.requests = Requests(spec.name, self)
        if spec.assignment is not None:
            earlier, since_1970_ms = spec.assignment.failures(), int((time.time() - time.monotonic()) * 1000)
            self.life.replayed(*replayed(earlier, since_1970_ms))
            self.observer.failed_before(earlier)
        if spec.assignment is not None and spec.assignment.finalize:
            self.life.cancel_requested()

    def _open_lineage(self) -> OpenLineage:
        lineage = OpenLineage(
            self._spark,
            self._spec,
            self._engine,
            self._job,
            self._workdir,
            slots=self._slots,
            wait=self._wait,
            observe=lambda epoch: self.observer.completed(self.driver, epoch),
        )
        if self._spec.assignment is not None:
            self._spec.assignment.confirm()
        return lineage

    @property
    def driver(self) -> EpochDriver:
        return self.lineage.driver

    def start(self) -> None:
        self._engine.warm_up()
        self._executors.start()
        first = self.life.start()
        threading.Thread(target=self._run, args=(first,), name=f"penstock-{self._spec.name}", daemon=True).start()

    def stop_query(self, stop: StopQuery | None) -> None:
        """Stop the query. Call from any thread that does not run an epoch."""
        if stop is None:
            return
        self.wake()
        self._query.stop()
        if stop.now:
            self._engine.stop()

    def stop(self, stop: StopQuery) -> None:
        """Stop the query and wait until the job has ended."""
        self.stop_query(stop)
        self.done.wait()

    @contextmanager
    def between_epochs(self) -> Iterator[None]:
        """Wait until the job has recovered or ended and no epoch runs. No epoch begins inside the context."""
        while True:
            if self._epoch_thread == threading.get_ident() and not self.recovered.is_set():
                raise PenstockError(
                    f"An epoch of job '{self._spec.name}' has just failed, so the job takes no request before it has "
                    f"recovered.",
                    fix="Repeat the request at a later epoch.",
                )
            self.recovered.wait()
            with self.epoch_lock:
                # The epoch that this thread waited for might have failed.
                if self.recovered.is_set():
                    yield
                    return

    def save(self, directory: SharedStorage, manifest: Manifest, version: Version) -> str:
        """Make a savepoint of a pinned checkpoint and return its path."""
        return self.lineage.save(directory, manifest, version)

    def wake(self) -> None:
        """End a pause of the job's thread."""
        self._awake.set()

    # -- the job's thread ------------------------------------------------------------------------------------------

    def _run(self, instruction: _Instruction) -> None:
        closed = False
        try:
            while not isinstance(instruction, End):
                try:
                    instruction = self._execute(instruction)
                except BaseException as error:  # the waiting thread must see every error
                    instruction = self._failed(error)
            self._end(instruction)
            closed = True
        except BaseException as error:  # as above
            self.error = error
            self.observer.failed(error, self)
        finally:
            self._executors.stop()
            self.life.ended(failed=not closed)
            for act in self.at_end:
                act()
            self.done.set()
            self.recovered.set()

    def _execute(self, instruction: Recover | StartQuery | RunEpoch | AwaitRestart) -> _Instruction:
        match instruction:
            case Recover():
                return self._recover()
            case StartQuery(generation):
                return self._read_sources(generation)
            case RunEpoch():
                return self._end_input(instruction)
            case AwaitRestart():
                return self._await_restart(instruction)

    def _recover(self) -> _Instruction:
        check_first_executors(self._spark, self._spec, self._engine, self._slots, self._goes_on_after)
        # An epoch of the previous query might not have noticed yet that it is over.
        with self.epoch_lock:
            last = self.lineage.recover()
            if self._kept_scale is not None:
                self.driver.set_scale(self._kept_scale)
            self._has_recovered = True
            instruction = self.life.recovered(None if last is None else last.id, last is not None and last.ended)
            for act in self.at_start:
                act(last)
            self.recovered.set()
        return instruction

    def _goes_on_after(self, seconds: float) -> bool:
        """Wait some seconds, and return whether nothing ends the job."""
        self._awake.wait(seconds)
        return self.life.wish is Wish.GO_ON

    def _read_sources(self, generation: int) -> _Instruction:
        self._look_for_end()
        self._query.start(self.lineage, partial(self._on_batch, generation))
        self.stop_query(self.life.query_started())
        try:
            while not self._query.ended_within(_TICK_S):
                self._check_commits()
                self._wake_up()
                if self.error is not None:
                    self._query.stop()
                    continue
                recover = self._recover_from_step_back()
                if recover is not None:
                    return recover
                if self.life.drains_query:
                    self._query.drain()
        except PenstockError:
            # Errors lose their type on the way through the JVM; `self.error` has the original.
            if self.error is None and self.life.wish is Wish.GO_ON:
                raise
        with self.epoch_lock:
            self._raise_failure()
            return self.life.query_ended()

    def _raise_failure(self) -> None:
        """Raise the failure of an epoch, after which the job must recover before it runs another."""
        if self.error is not None:
            raise self.error

    def _recover_from_step_back(self) -> Recover | None:
        """Restart the query if the machine's clock was set back, because Spark's trigger would wait for it."""
        back = self.clock.seconds()
        if back < _LEAST_STEP_BACK_S:
            return None
        with self.epoch_lock:
            recover = self.life.clock_set_back()
            if recover is not None:
                self.recovered.clear()
        if recover is not None:
            _logger.warning(
                "This machine's clock went back by %.0f s. Job '%s' restarts its query from the last checkpoint.",
                back,
                self._spec.name,
            )
            self._query.stop()
        return recover

    def _end_input(self, epoch: RunEpoch) -> _Instruction:
        """Run the epoch that ends the input. It is the only epoch of a batch."""
        frame = self._query.read_at_once(self.lineage) if self._spec.single_epoch else None
        enough = self._slots.await_enough()
        with self.epoch_lock:
            self._raise_failure()
            # A savepoint might have ended the job while this thread waited.
            if enough and self.life.wants_epochs:
                self.run_epoch(epoch, frame)
            return self.life.query_ended()

    def _await_restart(self, restart: AwaitRestart) -> _Instruction:
        self._awake.wait(restart.delay_ms / 1000)
        with self.epoch_lock:
            instruction = self.life.delay_over()
            if isinstance(instruction, End):
                return instruction
            self.error = None
            if restart.new_lineage:
                self._kept_scale = self.driver.scale
                self._abort_uncommitted()
                self.lineage.end(retain=self._unfinished)
                self.lineage = self._open_lineage()
            self._engine.ship(self.life.generation)
            self.driver.metrics.restarted(restart.number)
        return instruction

    def _failed(self, error: BaseException) -> AwaitRestart | End:
        lives = self._session_lives()
        # Without the JVM, the error is one of the bridge to it.
        cause = error if lives else jvm_death() or error
        exception = self.observer.failed(cause, self) if self.life.wish is Wish.GO_ON else None
        with self.epoch_lock:
            failure = JobFailure.of(error, int(time.monotonic() * 1000), restartable=lives)
            record = None if exception is None else self._record(failure, exception)
            instruction = self.life.failed(failure)
            self.recovered.clear()
        self.error = cause
        if self._spec.assignment is not None and record is not None:
            self._spec.assignment.failed(record)
        name, wish = self._spec.name, self.life.wish
        if wish is Wish.GO_ON:
            self.last_failure = error
        elif wish is not Wish.CANCEL and not isinstance(error, JobSuspended):
            # The next run repeats that epoch, and the restart strategy applies then.
            self.last_failure = error
            _logger.warning("Job '%s' failed while stopping: %s", name, error)
        if isinstance(instruction, AwaitRestart):
            _logger.warning(
                "%s\nJob '%s' failed. Restart %d in %.1f s, %s.",
                short_form(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}",
                name,
                instruction.number,
                instruction.delay_ms / 1000,
                self._restart_point(),
            )
        elif instruction.reason:
            _logger.warning("Job '%s' does not restart: %s.", name, instruction.reason)
        return instruction

    def _record(self, failure: JobFailure, exception: ExceptionSnapshot) -> RecordedFailure | None:
        """Return the record of a failure, before the life cycle decides what follows. None without a cluster."""
        if self._spec.assignment is None:
            return None
        return RecordedFailure(
            attempt=self._spec.assignment.attempt,
            exception=exception,
            from_user=failure.from_user,
            identity=failure.identity,
            progressed=self.life.progressed,
            counts=failure.restartable,
        )

    def _restart_point(self) -> str:
        if not self._spec.checkpointing:
            return "from scratch, because it has no checkpoints"
        return "from the start" if self.driver.last is None else f"from checkpoint {self.driver.last.id}"

    def _session_lives(self) -> bool:
        try:
            return not self._spark.sparkContext._jsc.sc().isStopped()
        except Exception:  # any error of the bridge to a JVM that is gone
            return False

    def _wait(self, seconds: float) -> None:
        """Wait some seconds. Raises if the job is stopping."""
        self._awake.wait(seconds)
        if self.life.wish in (Wish.SUSPEND, Wish.CANCEL):
            raise self._interruption()

    def _pause_for_slots(self) -> bool:
        self._wait(_TICK_S)
        return self.error is None and self.life.wants_epochs

    def _stop_if_given_up(self) -> None:
        if self.life.gives_up_epoch or self.life.wish is Wish.CANCEL:
            raise self._interruption()

    def _interruption(self) -> PenstockError:
        """Return the exception of a job that was cancelled, or stopped before its input ended."""
        if self.life.wish is Wish.CANCEL:
            return JobCancelled(f"Job '{self._spec.name}' was cancelled.")
        return JobSuspended(f"Job '{self._spec.name}' was stopped.")

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self, end: End) -> None:
        if end.status in (JobStatus.SUSPENDED, JobStatus.CANCELED):
            self.error = self._interruption()
        elif end.status is not JobStatus.FAILED:
            self.error = None
        ends_lineage = end.end_lineage
        verdict = self._verdict(end)
        if end.close or end.finish_sinks:
            # A lost attempt leaves the last checkpoint to the next one, which commits it.
            owned = verdict is not Verdict.LOST and self._close_lineage(end)
            ends_lineage = owned or not self._spec.checkpointing
            verdict = verdict if owned else Verdict.LOST
        self._abort_uncommitted()
        self._engine.close()
        retain = end.retain or self._unfinished
        if self._decide(verdict, removes=ends_lineage and not retain) and ends_lineage:
            self.lineage.end(retain=retain)
        else:
            self.lineage.close()
        remove_scratch(self._workdir)

    def _decide(self, verdict: Verdict, removes: bool) -> bool:
        """Decide how this attempt ended, before anything is removed. Return False if the cluster declared it lost."""
        assignment = self._spec.assignment
        if assignment is None:
            return True
        savepoint = self.requests.savepoint_at_end or ""
        self._probe("deciding")
        try:
            assignment.decide(verdict, "" if self.error is None else str(self.error), savepoint, removes)
        except Superseded as error:
            self.error = error
            return False
        self._probe("decided")
        return True

    def _verdict(self, end: End) -> Verdict:
        """Return the verdict on this attempt, unless it turns out that another driver has continued the job."""
        match end.status:
            case JobStatus.FINISHED:
                return Verdict.STOPPED if self.requests.savepoint_at_end else Verdict.FINISHED
            case JobStatus.CANCELED if self._has_recovered or self._spec.assignment is None:
                return Verdict.CANCELED
            case JobStatus.FAILED if self.error is not None and self._session_lives():
                return verdict_on(self.error, starting=self._got_no_slot())
        # Suspended, without its JVM, or cancelled although the last checkpoint could not be read.
        return Verdict.LOST

    def _got_no_slot(self) -> bool:
        """Return whether this attempt could not resume the job, because its application got no executor."""
        assignment = self._spec.assignment
        resumes = assignment is not None and assignment.resumes
        return resumes and not self._has_recovered and isinstance(self.error, TooFewSlots)

    def _close_lineage(self, end: End) -> bool:
        """Close the lineage. Return whether this driver can remove its checkpoints, or another one continues them."""
        how = "stopped" if end.status is JobStatus.FINISHED else "cancelled"
        try:
            # The epoch in progress might be about to publish.
            with self.epoch_lock:
                if end.close:
                    self.driver.close()
                if end.finish_sinks:
                    self.driver.finish_sinks()
        except Fenced as fenced:
            self.error = JobCancelled(f"Job '{self._spec.name}' was {how} here, but its checkpoints remain. {fenced}")
            return False
        except Exception as error:  # from the user's sink; the job is cancelled nevertheless
            self.error = PenstockError(
                f"The job was {how}, but a sink could not finish its output, so the checkpoints are kept: {error}"
            )
            self._unfinished = True
        return True

    def _abort_uncommitted(self) -> None:
        """Abort sink output that no checkpoint holds, before it is forgotten."""
        try:
            with self.epoch_lock:
                self.driver.abort_uncommitted(everything=not self._spec.checkpointing)
        except Exception as error:  # from the user's sink; completed work stays valid
            self._unfinished = True
            _logger.warning("Job '%s': %s", self._spec.name, error)

    # -- epochs ----------------------------------------------------------------------------------------------------

    def _on_batch(self, generation: int, frame: DataFrame, batch: int) -> None:
        """Run a batch; called by Spark. Failures are kept for `wait`, because errors lose their type in the JVM."""
        try:
            # Wait without the lock: meanwhile the job can be rescaled to the available slots, or saved and stopped.
            enough = self._slots.await_enough()
            with self.epoch_lock:
                # Spark must not take a batch for completed that did not run because an epoch of a request failed.
                self._raise_failure()
                epoch = self.life.batch_ready(generation) if enough else None
                if epoch is not None:
                    self.run_epoch(epoch, frame, batch)
            return
        except BaseException as error:  # see docstring
            self.error = self.error or error
        finally:
            release(frame)
        raise RuntimeError("the epoch failed") from None

    def run_epoch(self, epoch: RunEpoch, frame: DataFrame | None = None, batch: int | None = None) -> None:
        """Run an epoch. The caller holds the lock. `frame` is the output of the sources, `batch` Spark's batch ID.

        After a failure, no other epoch or request begins before the job has recovered.
        """
        # A listener can request another epoch, inside this one.
        outer, self._epoch_thread = self._epoch_thread, threading.get_ident()
        try:
            self._engine.frame = frame
            try:
                if batch is None:
                    statistics = self.driver.run_epoch(None, {}, ends_input=epoch.ends_input)
                else:
                    statistics = self._run_batch(batch)
            finally:
                self._engine.frame = None
            self.life.epoch_done(ended=epoch.ends_input)
            self._call_listeners(statistics)
        except BaseException as error:
            self._must_recover(error)
            raise
        finally:
            self._epoch_thread = outer

    def _call_listeners(self, statistics: EpochStatistics) -> None:
        try:
            for listener in self._spec.on_epoch:
                listener(statistics)
        except BaseException:
            # Otherwise an epoch that the listener requested has failed, and the restart strategy applies.
            if self.error is None:
                self.life.listener_failed()
            raise

    def _must_recover(self, error: BaseException) -> None:
        """Keep a failure for the job's thread, which stops the query. The caller holds the lock."""
        self.error = self.error or error
        self.recovered.clear()

    def _run_batch(self, batch: int) -> EpochStatistics:
        driver, log = self.driver, self.lineage.log
        before = None if driver.last is None else driver.last.batch
        expected = 0 if before is None else before + 1
        if batch != expected:
            raise PenstockError(
                f"Spark runs batch {batch}, but checkpoint {driver.next_number - 1} must be followed by batch "
                f"{expected}: Spark's log was changed."
            )
        files = log.appeared(batch)
        index = log.index(driver.next_number, files)
        statistics = driver.run_epoch(batch, files, log_index=index)
        log.recorded(index, files)
        self._look_for_end()
        return statistics

    def _look_for_end(self) -> None:
        if self._query.input_is_over(self.lineage):
            self.life.input_over()

    def _check_commits(self) -> None:
        """Check for a failed concurrent commit. Without data, no epoch would notice it."""
        if not self.epoch_lock.acquire(blocking=False):
            return
        try:
            self.driver.check_commits()
        except BaseException as error:  # as in _on_batch: `wait` raises it
            self._must_recover(error)
        finally:
            self.epoch_lock.release()

    def _wake_up(self) -> None:
        """Run an epoch without records if a timer or an idle channel is due. Spark runs none without new data."""
        if not self.driver.wakeup_is_due or not self.life.wants_epochs or self.driver.pause_left() > 0:
            return
        try:
            if not self._slots.await_enough():
                return
            with self.epoch_lock:
                epoch = self.life.wakeup_due()
                if self.driver.wakeup_is_due and self.error is None and epoch is not None:
                    self.run_epoch(epoch)
                return
        except BaseException as error:  # as in _on_batch: `wait` raises it
            self.error = self.error or error
        self._query.stop()
