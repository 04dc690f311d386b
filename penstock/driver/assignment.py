"""The assignment of a job to this process by a cluster: which attempt it runs, and the decision how the attempt ended.

A process that was presumed dead can still run. It therefore asks before it removes anything: `decide` succeeds for one
of the process and its supervisor. A program that is run by hand has no assignment and decides alone.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

import msgspec

from penstock.checkpoint.manifest import Fenced
from penstock.common.interrupts import Interrupt
from penstock.driver.job_snapshot import ExceptionSnapshot
from penstock.driver.slots import TooFewSlots
from penstock.errors import PenstockError
from penstock.state.storage import StorageError


class Superseded(PenstockError):
    """The cluster declared this attempt of the job lost, and another attempt continues it.

    Operator action: none. This process stops and removes nothing.
    """

    retryable = False


class Verdict(Enum):
    """How an attempt ended."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELED = "canceled"
    STOPPED = "stopped"
    """Ended with a savepoint, on request."""
    LOST = "lost"
    """The process died, or could not reach what it needs. The job continues with another attempt."""


class RecordedFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A failure of the job in this or an earlier attempt. The restart strategy counts them over all attempts."""

    number: int = 0
    """Counts the failures of the job, from 1."""
    attempt: int
    exception: ExceptionSnapshot
    from_user: bool
    identity: str
    """Identifies the error across occurrences; empty if unknown."""
    progressed: bool
    """Whether a checkpoint was completed since the previous failure."""
    counts: bool
    """Whether the restart strategy decided over it. It does not if Spark or the lineage was lost."""


class Assignment(Protocol):
    """One attempt of a job. Methods can be called from any thread."""

    @property
    def job_id(self) -> str: ...

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        ...

    @property
    def finalize(self) -> bool:
        """Whether to commit the output of the last checkpoint only, because the job is cancelled."""
        ...

    @property
    def resumes(self) -> bool:
        """Whether an earlier attempt has begun to run the job, and bound it to the location of its checkpoints."""
        ...

    def bind(self, lineage: str) -> None:
        """Record where the job keeps its checkpoints; empty if it keeps none that outlive the process.

        Call once the lineage exists. Raises ChangedLineage if the job is bound to another location.
        """
        ...

    def failures(self) -> list[RecordedFailure]:
        """Return the recent failures of the job in earlier attempts, oldest first."""
        ...

    def failed(self, failure: RecordedFailure) -> None:
        """Record a failure. Does not raise, and does not wait long: a failure that is not recorded is not counted."""
        ...

    def confirm(self) -> None:
        """Raise Superseded if the attempt has ended. Call after the lineage is opened, before anything is committed.

        A process that was presumed dead can find no lineage, because its successor finished the job and removed it. It
        would run the job from the start.
        """
        ...

    def decide(
        self, verdict: Verdict, reason: str = "", savepoint: str = "", removes_checkpoints: bool = False
    ) -> None:
        """Decide how this attempt ended. Raises Superseded if that was decided before.

        `removes_checkpoints`: the process removes the checkpoints of the job next, or the cluster if it cannot.
        """
        ...


def verdict_on(error: BaseException, starting: bool = False) -> Verdict:
    """Return the verdict on a job that failed with an error.

    Another attempt can succeed where this process lost its lineage or was asked to exit. `starting`: the program did
    not get as far as in an earlier attempt, so the restart strategy of the job does not apply. Then the next attempt
    can also succeed where this one could not reach the storage, or got no slot. In the first attempt, unreachable
    storage is more likely a wrong address.
    """
    if isinstance(error, (Fenced, Superseded, *Interrupt)):
        return Verdict.LOST
    unreachable = isinstance(error, (OSError, TooFewSlots)) or (isinstance(error, StorageError) and error.retryable)
    return Verdict.LOST if starting and unreachable else Verdict.FAILED
