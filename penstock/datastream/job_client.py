"""The client of a job that runs in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

from penstock.common.completable_future import CompletableFuture
from penstock.common.interrupts import Interrupt, stop_to_resume
from penstock.common.job import JobExecutionResult, JobID, JobStatus
from penstock.common.job_client import JobClient
from penstock.datastream.notebook import html_of_job, show, text_of_job

if TYPE_CHECKING:
    from penstock.checkpoint.lineages import SharedStorage
    from penstock.driver.metrics import JobMetrics
    from penstock.driver.statistics import CheckpointLog
    from penstock.spark.job import Job


class LocalJobClient(JobClient):
    """A ``JobClient`` for a job of this process. It adds access to the driver's metrics and checkpoints."""

    def __init__(self, job: Job, savepoint_directory: Callable[[str | None], SharedStorage]) -> None:
        """Create a client.

        Args:
            job: The job.
            savepoint_directory: Resolves a savepoint directory; None stands for the default one.
        """
        self._job = job
        self._savepoint_directory = savepoint_directory

    def get_job_id(self) -> JobID:
        return JobID(self._job.id)

    def get_job_status(self) -> CompletableFuture:
        return CompletableFuture(self._job.status, lambda: True)

    def cancel(self) -> CompletableFuture:
        self._job.cancel()
        return CompletableFuture(lambda: None, lambda: True)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture:
        directory = self._savepoint_directory(savepoint_directory)
        return _in_background(lambda: self._job.savepoint(directory))

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool = False, savepoint_directory: str | None = None
    ) -> CompletableFuture:
        directory = self._savepoint_directory(savepoint_directory)
        return _in_background(lambda: self._job.stop_with_savepoint(directory, advance_to_end_of_event_time))

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture:
        directory = self._savepoint_directory(savepoint_directory)
        return _in_background(lambda: self._job.stop_with_savepoint(directory, drain=False, cancel=True))

    def trigger_checkpoint(self) -> CompletableFuture:
        return _in_background(self._job.checkpoint)

    def rescale(self, parallelism: int | Mapping[str, int]) -> None:
        if threading.current_thread() is threading.main_thread():
            # Ctrl-C ends the wait, not the epoch.
            _in_background(lambda: self._job.rescale(parallelism)).result()
        else:
            # An epoch listener has to stay in its thread, which runs the epoch.
            self._job.rescale(parallelism)

    def get_job_execution_result(self) -> CompletableFuture:
        return CompletableFuture(self.result, lambda: self._job.ended)

    def get_metrics(self) -> JobMetrics:
        """Return the metrics of this driver's completed epochs. It works during and after the job."""
        return self._job.driver.metrics.read()

    def get_checkpoints(self) -> CheckpointLog:
        """Return the log of this driver's checkpoints: durations, sizes, acknowledgements, failures."""
        return self._job.driver.checkpoints

    def restarts(self) -> int:
        return self._job.restarts

    def last_failure(self) -> BaseException | None:
        return self._job.last_failure

    def get_accumulators(self) -> CompletableFuture:
        return CompletableFuture(lambda: self.get_metrics().counters(), lambda: True)

    def result(self, timeout: float | None = None) -> JobExecutionResult:
        try:
            return self._job.wait(timeout)
        except TimeoutError:
            raise
        except Exception as error:
            # The stack frames of the job's thread do not help the user.
            raise error.with_traceback(None) from None

    @property
    def ended(self) -> bool:
        return self._job.ended

    def status(self) -> JobStatus:
        return self._job.status()

    def show(self) -> None:
        """Display the plan of the job and charts of its last epochs in a notebook. Elsewhere, print one line.

        The display does not change with the job: call it again for newer values.

        Example:
            >>> client = env.execute_async("words")
            >>> client.show()
        """
        snapshot = self._job.snapshot()
        show(html_of_job(snapshot, charts=True), text_of_job(snapshot))

    def __repr__(self) -> str:
        return text_of_job(self._job.snapshot())

    def _repr_html_(self) -> str:
        """Return the state of the job, for notebooks."""
        return html_of_job(self._job.snapshot())

    def __enter__(self) -> LocalJobClient:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.ended:
            return
        if isinstance(error, Interrupt):
            stop_to_resume(self._job, error)
        else:
            self.cancel()


def _in_background(work: Callable[[], object]) -> CompletableFuture:
    future: Future[object] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # re-raised by the future
            future.set_exception(error)

    threading.Thread(target=run, name="penstock-request", daemon=True).start()
    return CompletableFuture(future.result, future.done)
