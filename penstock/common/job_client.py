"""The client of a job: what a program that started it can ask of it. `penstock.datastream.job_client` implements it.

PyFlink's programs import `JobClient` from `common`, which cannot import the job that the implementation asks: so the
interface is here, apart from its only implementation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from penstock.common.completable_future import CompletableFuture
from penstock.common.job import JobCancelled, JobExecutionResult, JobID, JobStatus


class JobClient(ABC):
    """A handle on a running job, returned by `execute_async`.

    In a `with` block the job is cancelled at the end, if it still runs. If Ctrl-C or SIGTERM ends the block, the job is
    stopped after the current epoch, and the next start resumes it.
    """

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Return the id of the job."""

    @abstractmethod
    def get_job_status(self) -> CompletableFuture:
        """Return a future of the job's status."""

    @abstractmethod
    def cancel(self) -> CompletableFuture:
        """Stop the job at once; the future is done when it has stopped."""

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture:
        """Make a savepoint of the job, which goes on; the result is its path.

        It goes below `savepoint_directory`, or below `state.savepoints.dir`.
        """

    @abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool = False, savepoint_directory: str | None = None
    ) -> CompletableFuture:
        """Make a savepoint and end the job with it: nothing is done after it. The result is its path.

        With `advance_to_end_of_event_time` the input is ended first: all timers and windows fire. Use it for a job
        that will not go on.
        """

    @abstractmethod
    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture:
        """As `stop_with_savepoint`, and the job counts as cancelled."""

    @abstractmethod
    def rescale(self, parallelism: int | Mapping[str, int]) -> None:
        """Give operators other numbers of subtasks from the next epoch on; the job runs on meanwhile.

        A number is for all operators without a parallelism of their own; by uid or name it is for that operator and
        those that are chained to it. It holds until another rescale, over failures and restarts of the program too,
        unless the program itself comes with another parallelism.
        """

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture:
        """Return a future of the job's result; it raises the error of a job that failed."""

    @abstractmethod
    def restarts(self) -> int:
        """How often the job was restarted after a failure."""

    @abstractmethod
    def last_failure(self) -> BaseException | None:
        """What the job failed with last, whether it was restarted then or not; None if it has not failed."""

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture:
        """The totals of counters, by `operator uid.group.name`."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> JobExecutionResult:
        """Wait for the end of the job; raises what it failed with."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether the job has ended."""

    @abstractmethod
    def status(self) -> JobStatus:
        """Return the job's status."""

    @abstractmethod
    def __enter__(self) -> JobClient: ...

    @abstractmethod
    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...


__all__ = ["JobCancelled", "JobClient"]
