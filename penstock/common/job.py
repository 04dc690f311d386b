"""Job status, id and result, as a program sees them."""

from __future__ import annotations

from enum import Enum
from typing import Any

from penstock.errors import PenstockError


class JobStatus(Enum):
    """The stages of a job's lifecycle."""

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9

    def is_globally_terminal_state(self) -> bool:
        """Return whether the job has ended for good."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """Return whether the job has ended here: for good, or suspended to go on elsewhere."""
        return self is JobStatus.SUSPENDED or self.is_globally_terminal_state()


class JobCancelled(PenstockError):
    """The job was cancelled before it finished.

    Operator action: none, if you cancelled it. Catch the error if the program has more to do.
    """


class JobSuspended(PenstockError):
    """The job was stopped after an epoch and kept its checkpoints; the next start of the program resumes it.

    Operator action: start the program again to resume it, or use `penstock cancel` to end a job for good.
    """


class JobID:
    """A job's id, as a hex string."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __str__(self) -> str:
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobID) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class JobExecutionResult:
    """Statistics of a finished job.

    ``epochs`` has one entry per epoch: number, records, duration_ms, delta_bytes and more. ``metrics`` is a
    ``penstock.metrics.JobMetrics``; docs/run/monitoring.md lists its contents.
    """

    def __init__(self, job_id: str, net_runtime: int, epochs: list[Any], metrics: Any) -> None:
        self._job_id = JobID(job_id)
        self._net_runtime = net_runtime
        self.epochs = epochs
        self.metrics = metrics

    def get_job_id(self) -> JobID:
        """Return the id of the job."""
        return self._job_id

    def get_net_runtime(self) -> int:
        """Return the job's run time in milliseconds."""
        return self._net_runtime

    def is_job_execution_result(self) -> bool:
        """Return True."""
        return True

    def get_accumulator_result(self, accumulator_name: str) -> int | None:
        """Return the total of the counter ``operator uid.group.name``, or None if that counter does not exist."""
        return self.get_all_accumulator_results().get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, int]:
        """Return the values of all counters by name."""
        return self.metrics.counters()  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        records = sum(epoch.records for epoch in self.epochs)
        return f"<job {self._job_id}: {records:,} records in {len(self.epochs)} epochs, {self._net_runtime} ms>"
