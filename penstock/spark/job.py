"""A job on Spark, as its program and commands see it. Requests can come from any thread."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress

from pyspark.sql import SparkSession

from penstock.checkpoint.lineages import SharedStorage
from penstock.checkpoint.manifest import Manifest
from penstock.common.job import JobExecutionResult, JobStatus
from penstock.driver.epochs import EpochDriver
from penstock.driver.instructions import StopQuery
from penstock.driver.job_snapshot import JobSnapshot
from penstock.driver.process_facts import Environment
from penstock.spark.environment import spark_environment
from penstock.spark.execution import JobExecution
from penstock.spark.job_spec import JobSpec

_INTERRUPTIBLE_S = 0.2
"""Ctrl-C cannot interrupt a wait without a timeout while another thread is inside the JVM."""


class Job:
    """Call `start` once, then `wait` or `cancel` from any thread."""

    def __init__(self, spark: SparkSession, spec: JobSpec) -> None:
        self.id = uuid.uuid4().hex if spec.assignment is None else spec.assignment.job_id
        self.spec = spec
        self._spark = spark
        self.started_at = time.time()
        self._started = time.monotonic()
        self._execution = JobExecution(spark, spec, self.id)

    @property
    def at_start(self) -> list[Callable[[Manifest | None], None]]:
        """Callbacks that receive the checkpoint the job resumes from, after each recovery. They must not raise."""
        return self._execution.at_start

    @property
    def at_end(self) -> list[Callable[[], None]]:
        """Callbacks for the end of the job, before any waiting thread is notified. They must not raise."""
        return self._execution.at_end

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def driver(self) -> EpochDriver:
        return self._execution.driver

    @property
    def restarts(self) -> int:
        return self._execution.life.restarts

    @property
    def last_failure(self) -> BaseException | None:
        return self._execution.last_failure

    @property
    def web_ui(self) -> str | None:
        """The address of Spark's web UI, if it is enabled."""
        return self._spark.sparkContext.uiWebUrl

    @property
    def resumes_from(self) -> int | None:
        """The checkpoint that the next run of the program resumes from, or None if it starts from scratch."""
        return self.driver.last.id if self.spec.traits.resumable and self.driver.last is not None else None

    @property
    def checkpoints(self) -> str:
        """The location of the checkpoints if they outlive the driver, otherwise empty."""
        root = self.spec.checkpoint_root
        return root.where if root is not None and self.spec.checkpointing else ""

    @property
    def savepoint_at_end(self) -> str | None:
        """Path of the savepoint that the job was stopped with."""
        return self._execution.requests.savepoint_at_end

    def snapshot(self) -> JobSnapshot:
        """Return the job as the REST interface shows it. Does not wait for the epoch in progress."""
        return self._execution.observer.snapshot(self._execution, self._execution.requests.savepoint_at_end)

    def environment(self) -> Environment:
        """Return the versions, options and paths of this process and of its JVM. Queries the JVM."""
        return spark_environment(self._spark)

    def status(self) -> JobStatus:
        return self._execution.life.status

    @property
    def ended(self) -> bool:
        return self._execution.done.is_set()

    def start(self) -> None:
        self._execution.start()

    def wait(self, timeout: float | None = None) -> JobExecutionResult:
        """Wait until the job ends and raise its error, if any. Ctrl-C interrupts the wait."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._execution.done.wait(_INTERRUPTIBLE_S):
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"Job '{self.name}' is still running after {timeout} s.")
        if self._execution.error is not None:
            raise self._execution.error
        took = int((time.monotonic() - self._started) * 1000)
        return JobExecutionResult(self.id, took, list(self.driver.statistics), self.driver.metrics.read())

    # -- requests, from any thread ---------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Stop immediately and abandon the epoch in progress; none of its output becomes visible."""
        self._execution.stop_query(self._execution.life.cancel_requested())
        self._execution.done.wait()

    def suspend(self) -> None:
        """Stop after the epoch in progress and keep everything, so that the next run of the program resumes from there.

        Returns when the job has stopped. A job that cannot be resumed ends as if it was cancelled, also after the
        epoch in progress.
        """
        stop = self._execution.life.suspend_requested()
        if stop is not None and stop.now:
            self._give_up_epoch_of_any_jvm(stop)
        else:
            self._execution.wake()
            # The epoch in progress completes, and no other begins. A second Ctrl-C interrupts both waits.
            while not self._execution.epoch_lock.acquire(timeout=_INTERRUPTIBLE_S):
                pass
            self._execution.epoch_lock.release()
            # The job's thread notices a dead JVM too.
            with suppress(Exception):
                self._execution.stop_query(stop)
        while not self._execution.done.wait(_INTERRUPTIBLE_S):
            pass

    def abandon(self) -> None:
        """Suspend, but abandon the epoch in progress; none of its output becomes visible. Does not wait."""
        self._give_up_epoch_of_any_jvm(self._execution.life.suspend_requested(now=True))

    def _give_up_epoch_of_any_jvm(self, stop: StopQuery | None) -> None:
        """Stop the query of a JVM that might be gone, or about to go."""
        with suppress(Exception):
            self._execution.stop_query(stop)

    def savepoint(self, directory: SharedStorage) -> str:
        """See `Requests`, also for the next three."""
        return self._execution.requests.savepoint(directory)

    def stop_with_savepoint(self, directory: SharedStorage, drain: bool, cancel: bool = False) -> str:
        return self._execution.requests.stop_with_savepoint(directory, drain, cancel)

    def checkpoint(self) -> int:
        return self._execution.requests.checkpoint()

    def rescale(self, parallelism: int | Mapping[str, int]) -> None:
        self._execution.requests.rescale(parallelism)
