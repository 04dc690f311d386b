"""Inputs and instructions of a job's life cycle; see `driver/life_cycle.py`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum

from penstock.common.job import JobStatus
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.driver.error_identity import error_identity
from penstock.errors import PenstockError


@dataclass(frozen=True)
class JobTraits:
    """Properties of a job that its life cycle depends on."""

    checkpointing: bool = True
    resumable: bool = True
    """Whether the next run of the program can resume from the job's checkpoints."""
    retain: bool = False
    """Whether checkpoints are retained when the job is cancelled."""
    single_epoch: bool = False
    """Whether one epoch is the entire job (a batch)."""
    bounded: bool = True
    """Whether the input ends."""
    has_sources: bool = True


@dataclass(frozen=True)
class JobFailure:
    """A failure, with the facts that determine the reaction to it."""

    at: int
    """Milliseconds on a monotonic clock."""
    from_user: bool = False
    identity: str = ""
    """Identifies the error across occurrences; empty if unknown."""
    restartable: bool = True
    """Whether the restart strategy applies. If not, the job fails."""

    @staticmethod
    def of(error: BaseException, at: int, restartable: bool = True) -> JobFailure:
        """Describe `error`. `restartable` is False if the engine is lost, which makes a restart impossible."""
        retryable = error.retryable if isinstance(error, PenstockError) else isinstance(error, Exception)
        # A digest, because the message can contain anything, and this is recorded.
        identity = hashlib.sha256(error_identity(error).encode()).hexdigest()
        return JobFailure(at, isinstance(error, UserFunctionFailed), identity, retryable and restartable)


@dataclass(frozen=True)
class Recover:
    """Restore the initial savepoint if there is one, start the sinks and resume from the last checkpoint.

    Report `recovered`.
    """


@dataclass(frozen=True)
class StartQuery:
    """Read the sources. Report `query_started`, then `batch_ready` for every batch, and finally `query_ended`."""

    generation: int


@dataclass(frozen=True)
class RunEpoch:
    """Report `epoch_done`. After the epoch that ends the input, also report `query_ended`."""

    ends_input: bool = False


@dataclass(frozen=True)
class StopQuery:
    """Let the query end."""

    now: bool = False
    """Whether to abandon the epoch in progress; none of its output becomes visible."""


@dataclass(frozen=True)
class AwaitRestart:
    """Wait for the delay, then report `delay_over`."""

    number: int
    """Restart count, from 1."""
    delay_ms: int
    new_lineage: bool
    """Whether the job starts from scratch, because it has no checkpoints."""


@dataclass(frozen=True)
class End:
    """Close the job's open resources. Report `ended`."""

    status: JobStatus
    close: bool = False
    """Whether to publish that no driver resumes the lineage, although its input has not ended."""
    finish_sinks: bool = False
    """Whether sinks publish all output of the last checkpoint, because no epoch follows."""
    end_lineage: bool = False
    """Whether the lineage is never resumed: its checkpoints are removed, or kept if `retain` is set."""
    retain: bool = False
    reason: str = ""
    """Why the restart strategy gave up."""


@dataclass(frozen=True)
class AwaitRecovery:
    """The request must wait until the job has recovered. Retry it then."""


@dataclass(frozen=True)
class Save:
    """Make a savepoint from the last checkpoint. If the job is to stop, report `stopped` afterwards."""

    first_epoch: bool
    """Whether to run an epoch first, because the job has no checkpoint."""
    drain: bool = False
    """Whether to run the epoch that ends the input first. Report `epoch_done` with `ended`."""


@dataclass(frozen=True)
class ChangeParallelism:
    """Run an epoch with the new parallelism. The change is complete with its checkpoint."""


class Refusal(Enum):
    """Why a request is refused."""

    BATCH = "batch"
    """A batch has no checkpoints."""
    OVER = "over"
    """The job has ended or is about to end."""
