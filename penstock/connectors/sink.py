"""The sink contract: writers in the tasks, one committer in the driver, and the manifest that decides between them.

Sinks use two-phase commit. In each task a writer makes the records of an epoch durable but invisible, and returns a
committable: the data needed to make them visible. The driver puts all committables into the manifest and publishes it.
From then on the epoch's records are part of the output, whatever fails. Finally the driver calls `commit`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.driver.committing import Commit, CommitContext
from penstock.runtime.context import RuntimeContext
from penstock.runtime.operators import EpochInfo

EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE = "exactly-once", "at-least-once", "at-most-once"


class SinkWriter(ABC):
    """Write the records of one subtask. One writer per worker process serves many epochs.

    Calls in each epoch: ``restore`` (only if the sink is stateful), ``begin_epoch``, ``write`` for every record,
    ``end_input`` if bounded input ends in this epoch, ``prepare_commit`` and ``snapshot_state``. After a failure the
    writer is closed and replaced.

    Several attempts at one epoch can run, on several hosts, even concurrently; the manifest selects one of them. The
    writes of one attempt must not interfere with those of another.
    """

    def restore(self, states: list[bytes]) -> None:
        """Restore this subtask's share of the state in the last checkpoint. See ``snapshot_state``."""

    def begin_epoch(self, epoch: EpochInfo) -> None:
        """Prepare for the records of an epoch."""

    @abstractmethod
    def write(self, value: Any) -> None:
        """Write a record, or buffer it for ``prepare_commit``."""

    def end_input(self) -> None:
        """Handle the end of bounded input: no record follows, in this epoch or a later one."""

    @abstractmethod
    def prepare_commit(self) -> bytes | None:
        """Make the epoch's records durable but not visible.

        Returns:
            The committable that ``commit`` needs, or None if there is nothing to commit. It must be deterministic: the
            same records yield the same bytes, without timestamps, random names or process ids.
        """

    def snapshot_state(self) -> list[bytes]:
        """Return the state that the next epoch needs. After a rescale, any subtask can receive any element."""
        return []

    def close(self) -> None:
        """Release the writer's resources. It is not used again."""


class Sink(ABC):
    """Base class of sinks. Pickled into the job: tasks use copies, and the original object commits in the driver.

    One object can end several streams. Each call in the driver is for one operator, which ``context`` identifies by
    ``uid``; it also holds the job's write-ahead log (``wal``). A sink that remembers its commits must key them by uid.
    """

    guarantee = EXACTLY_ONCE
    """Guarantee that ``penstock info`` prints: EXACTLY_ONCE, AT_LEAST_ONCE or, if records can be lost, AT_MOST_ONCE."""
    why = "the checkpoint holds its prepared records, and they are committed once it is complete"
    """Reason for the guarantee, as a sentence."""
    durable = True
    """Whether committables belong in the manifest. If not, they are lost with the driver, like its console output."""
    commit_before_checkpoint = False
    """Whether ``commit`` can run before the checkpoint is complete, if the user asks for at-least-once only.

    If that checkpoint fails, the same records are committed again, in a commit with the same id or in different ones.
    Leave this off if the sink skips records it has already seen, or if its commit changes state its writers restore.
    """
    concurrent_commit = False
    """Whether ``commit`` can run in a driver thread while the tasks of the next epoch run: it must not touch anything
    that writers use. It finishes before the driver calls the sink again and before the next epoch is published.
    """
    reads_only = False
    """Whether writers neither change a record nor keep it after ``write`` returns. They then receive the record itself,
    even if the function that emitted it keeps a reference; otherwise they receive a copy."""
    stateful = False
    """Whether writers have state. Each writer then runs as a separate subtask, behind an exchange if necessary."""

    def for_type(self, value_type: Any) -> Sink:
        """Return the sink for records of this declared type (None if undeclared). Called when a stream ends in it."""
        return self

    def start(self, context: CommitContext) -> None:
        """Check in the driver that ``commit`` can work; raise if not. Called before the first epoch and on recovery."""

    @abstractmethod
    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        """Return a writer for the subtask of ``context``. Called in the tasks."""

    @abstractmethod
    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        """Make the records of one epoch visible. Its manifest is published.

        Must be idempotent: it is called again after a recovery (``Commit.again``). If it raises, the job fails, and
        the restarted job calls it again.
        """

    def abort(self, commits: list[Commit], context: CommitContext) -> None:
        """Discard the known committables of a failed attempt. Not guaranteed to be called."""

    def abort_uncommitted(self, epoch: int, token: str | None, context: CommitContext) -> None:
        """Discard what attempts at epochs after ``epoch`` prepared: it will never be committed.

        Called in the driver when the job ends, for any reason, and before a restart. If this raises, the driver keeps
        the checkpoints, including the sink's data in them.

        Args:
            epoch: The last committed epoch.
            token: Driver whose attempts to discard (``EpochInfo.token``), since another driver can be running the job;
                None for all drivers.
            context: The operator.
        """

    def clean_up(self, lineage: str, epoch: int, states: list[bytes], context: CommitContext) -> None:
        """Remove the leftovers of attempts up to ``epoch``.

        Called when a driver has published its first checkpoint, or the first after a failed attempt: from then on no
        driver and no attempt can publish this epoch. Writers of later epochs can already have written files.

        Args:
            lineage: The lineage of the job.
            epoch: The last epoch to clean up.
            states: The complete state that writers still need.
            context: The operator.
        """

    def settle(self, context: CommitContext) -> None:
        """Raise if records are still unsent: no later epoch of this lineage will send them."""

    def close(self, context: CommitContext) -> None:
        """Release the sink's resources in the driver at the end of a job. Another job can use the sink afterwards."""

    def finish(self, lineage: str, states: list[bytes], context: CommitContext) -> None:
        """Commit the state in the last checkpoint: the job was cancelled, and no epoch follows."""
