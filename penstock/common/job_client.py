"""The interface of a handle on a running job; ``penstock.datastream.job_client`` implements it.

PyFlink programs import ``JobClient`` from ``common``, a layer that cannot import the job. Hence the interface is here,
apart from its only implementation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from penstock.common.completable_future import CompletableFuture
from penstock.common.job import JobCancelled, JobExecutionResult, JobID, JobStatus


class JobClient(ABC):
    """A handle on a running job, returned by ``execute_async``.

    Used as a context manager, it cancels a job that is still running at the end of the ``with`` block. If Ctrl-C or
    SIGTERM ends the block, the job stops after the current epoch, and the next start of the program resumes it.
    """

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Return the id of the job."""

    @abstractmethod
    def get_job_status(self) -> CompletableFuture:
        """Return a future of the job's status."""

    @abstractmethod
    def cancel(self) -> CompletableFuture:
        """Stop the job immediately. The future completes when the job has stopped."""

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture:
        """Take a savepoint while the job keeps running. The future's result is the path of the savepoint.

        Args:
            savepoint_directory: Parent directory of the savepoint; ``state.savepoints.dir`` by default.
        """

    @abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool = False, savepoint_directory: str | None = None
    ) -> CompletableFuture:
        """Take a savepoint and end the job with it. The future's result is the path of the savepoint.

        The job processes no records after the savepoint.

        Args:
            advance_to_end_of_event_time: End the input first, which fires all timers and windows. Use it for a job
                that will not be resumed.
            savepoint_directory: Parent directory of the savepoint; ``state.savepoints.dir`` by default.
        """

    @abstractmethod
    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture:
        """Like ``stop_with_savepoint``, but the job ends as cancelled."""

    @abstractmethod
    def trigger_checkpoint(self) -> CompletableFuture:
        """Complete a checkpoint now, in addition to those of the interval. The future's result is its number."""

    @abstractmethod
    def rescale(self, parallelism: int | Mapping[str, int]) -> None:
        """Change the parallelism of operators without stopping the job.

        Completes the epoch in progress, then runs one with the new parallelism, and returns when its checkpoint is
        complete. The new parallelism lasts until the next ``rescale``, across failures and program restarts, unless the
        program is restarted with a different parallelism in its code. If the epoch fails, the job keeps its former
        parallelism.

        Args:
            parallelism: A number applies to all operators that do not set their own parallelism. A mapping of
                operator uids or names to numbers applies to those operators and the ones chained to them.

        Raises:
            CannotRescale: If an operator cannot have this parallelism.
            TooFewSlotsToRescale: If the job would wait for slots.
            RescaleFailed: If the epoch failed.
        """

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture:
        """Return a future of the job's result. Its ``result()`` raises the error if the job failed."""

    @abstractmethod
    def restarts(self) -> int:
        """Return how many times the job was restarted after a failure."""

    @abstractmethod
    def last_failure(self) -> BaseException | None:
        """Return the job's most recent failure, whether it was restarted or not, or None if it never failed."""

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture:
        """Return a future of the counter totals, by ``operator uid.group.name``."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> JobExecutionResult:
        """Wait for the job to end and return its result, or raise the error it failed with."""

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
