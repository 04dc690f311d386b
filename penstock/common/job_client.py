"""A running job, as the program that started it sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

from penstock.common.completable_future import CompletableFuture
from penstock.common.interrupts import Interrupt, stop_to_resume
from penstock.common.job import JobCancelled, JobExecutionResult, JobID, JobStatus

if TYPE_CHECKING:
    from penstock.checkpoint.lineages import SharedStorage
    from penstock.driver.metrics import JobMetrics
    from penstock.driver.statistics import CheckpointLog
    from penstock.spark.job import Job


class JobClient:
    """A handle on a running job, returned by `execute_async`.

    In a `with` block the job is cancelled at the end, if it still runs. If Ctrl-C or SIGTERM ends the block, the job is
    stopped after the current epoch, and the next start resumes it.
    """

    def __init__(self, job: Job, savepoint_directory: Callable[[str | None], SharedStorage]) -> None:
        """`savepoint_directory` gives the place for savepoints that is meant by a directory or by none."""
        self._job = job
        self._savepoint_directory = savepoint_directory

    def get_job_id(self) -> JobID:
        """Return the id of the job."""
        return JobID(self._job.id)

    def get_job_status(self) -> CompletableFuture:
        """Return a future of the job's status."""
        return CompletableFuture(self._job.status, lambda: True)

    def cancel(self) -> CompletableFuture:
        """Stop the job at once; the future is done when it has stopped."""
        self._job.cancel()
        return CompletableFuture(lambda: None, lambda: True)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture:
        """Make a savepoint of the job, which goes on; the result is its path.

        It goes below `savepoint_directory`, or below `state.savepoints.dir`.
        """
        directory = self._savepoint_directory(savepoint_directory)
        return _in_background(lambda: self._job.savepoint(directory))

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool = False, savepoint_directory: str | None = None
    ) -> CompletableFuture:
        """Make a savepoint and end the job with it: nothing is done after it. The result is its path.

        With `advance_to_end_of_event_time` the input is ended first: all timers and windows fire. Use it for a job
        that will not go on.
        """
        directory = self._savepoint_directory(savepoint_directory)
        return _in_background(lambda: self._job.stop_with_savepoint(directory, advance_to_end_of_event_time))

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture:
        """As `stop_with_savepoint`, and the job counts as cancelled."""
        directory = self._savepoint_directory(savepoint_directory)
        return _in_background(lambda: self._job.stop_with_savepoint(directory, drain=False, cancel=True))

    def rescale(self, parallelism: int | Mapping[str, int]) -> None:
        """Give operators other numbers of subtasks from the next epoch on; the job runs on meanwhile.

        A number is for all operators without a parallelism of their own; by uid or name it is for that operator and
        those that are chained to it. It holds until another rescale, over failures and restarts of the program too,
        unless the program itself comes with another parallelism.
        """
        self._job.rescale(parallelism)

    def get_job_execution_result(self) -> CompletableFuture:
        """Return a future of the job's result; it raises the error of a job that failed."""
        return CompletableFuture(self.result, lambda: self._job.ended)

    def get_metrics(self) -> JobMetrics:
        """Of the completed epochs of this driver, while the job runs or after it."""
        return self._job.driver.metrics.read()

    def get_checkpoints(self) -> CheckpointLog:
        """What is known of this driver's checkpoints: durations, sizes, acknowledgements, failures."""
        return self._job.driver.checkpoints

    def restarts(self) -> int:
        """How often the job was restarted after a failure."""
        return self._job.restarts

    def last_failure(self) -> BaseException | None:
        """What the job failed with last, whether it was restarted then or not; None if it has not failed."""
        return self._job.last_failure

    def get_accumulators(self) -> CompletableFuture:
        """The totals of counters, by `operator uid.group.name`."""
        return CompletableFuture(lambda: self.get_metrics().counters(), lambda: True)

    def result(self, timeout: float | None = None) -> JobExecutionResult:
        """Wait for the end of the job; raises what it failed with."""
        try:
            return self._job.wait(timeout)
        except TimeoutError:
            raise
        except Exception as error:
            # The frames of the job's own thread say nothing to the user.
            raise error.with_traceback(None) from None

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self._job.ended

    def status(self) -> JobStatus:
        """Return the job's status."""
        return self._job.status()

    def __enter__(self) -> JobClient:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.ended:
            return
        if isinstance(error, Interrupt):
            stop_to_resume(self._job, error)
        else:
            self.cancel()


def _in_background(work: Callable[[], str]) -> CompletableFuture:
    future: Future[str] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # whoever waits for the result must see it
            future.set_exception(error)

    threading.Thread(target=run, name="penstock-savepoint", daemon=True).start()
    return CompletableFuture(future.result, future.done)


__all__ = ["JobCancelled", "JobClient"]
