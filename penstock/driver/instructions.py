"""What decides the life of a job, and what its life cycle instructs: see `driver/life_cycle.py`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.common.job import JobStatus
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.driver.error_identity import error_identity
from penstock.errors import PenstockError


@dataclass(frozen=True)
class JobTraits:
    """What about a job decides its life."""

    checkpointing: bool = True
    resumable: bool = True
    """Whether the next start of the program can go on from its checkpoints."""
    retain: bool = False
    """Whether its checkpoints stay when it is cancelled."""
    single_epoch: bool = False
    """Whether one epoch is the whole job: a batch."""
    bounded: bool = True
    """Whether its input ends."""
    has_sources: bool = True


@dataclass(frozen=True)
class JobFailure:
    """A failure, as far as it decides what follows."""

    at: int
    """Milliseconds by a monotonic clock."""
    from_user: bool = False
    identity: str = ""
    """The same text for the same error; empty if unknown."""
    restartable: bool = True
    """Whether the restart strategy decides."""

    @staticmethod
    def of(error: BaseException, at: int, restartable: bool = True) -> JobFailure:
        """`restartable`: False where the engine is lost, so that nothing can be restarted."""
        retryable = error.retryable if isinstance(error, PenstockError) else isinstance(error, Exception)
        return JobFailure(at, isinstance(error, UserFunctionFailed), error_identity(error), retryable and restartable)


@dataclass(frozen=True)
class Recover:
    """Restore the savepoint if the job begins with one, start the sinks, go on from the last checkpoint. Report
    `recovered`."""


@dataclass(frozen=True)
class StartQuery:
    """Read the sources. Report `query_started`, then `batch_ready` for every batch, and at last `query_ended`."""

    generation: int


@dataclass(frozen=True)
class RunEpoch:
    """Report `epoch_done`; after one that ends the input, `query_ended` too."""

    ends_input: bool = False


@dataclass(frozen=True)
class StopQuery:
    """Let the query come to its end."""

    now: bool = False
    """Whether to give up the epoch in progress: nothing of it becomes visible."""


@dataclass(frozen=True)
class AwaitRestart:
    """Wait for the delay, then report `delay_over`."""

    number: int
    """Of the restart, from 1."""
    delay_ms: int
    new_lineage: bool
    """Whether the job starts from scratch, because it has no checkpoints."""


@dataclass(frozen=True)
class End:
    """Close what the job has open. Report `ended`."""

    status: JobStatus
    close: bool = False
    """Whether to publish that no driver goes on with the lineage, although its input has not ended."""
    finish_sinks: bool = False
    """Whether the sinks show what the last checkpoint holds, because no epoch follows."""
    end_lineage: bool = False
    """Whether no start of the program resumes the lineage: its checkpoints are removed, or retained as they are."""
    retain: bool = False
    reason: str = ""
    """Why the restart strategy gave up."""


@dataclass(frozen=True)
class AwaitRecovery:
    """The request can be met once the job has recovered: wait for it, then ask again."""


@dataclass(frozen=True)
class Save:
    """Make a savepoint of the last checkpoint. For a stop, report `stopped` then."""

    first_epoch: bool
    """Whether to run an epoch first, because there is no checkpoint."""
    drain: bool = False
    """Whether to run the epoch that ends the input first. Report `epoch_done` with `ended`."""


@dataclass(frozen=True)
class ChangeParallelism:
    """Change the parallelism before the next epoch."""


class Refusal(Enum):
    """Why a request is not met."""

    BATCH = "batch"
    """A batch has no checkpoints."""
    OVER = "over"
    """The job has ended, or is about to."""
