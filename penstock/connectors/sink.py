"""The contract of a sink: writers in the tasks, one committer in the driver, the manifest as the decision between them.

Two phases. In the tasks a writer writes the records of an epoch so that nobody can see them, and hands over what is
needed to show them: its committable. The driver puts all committables into the manifest and publishes it. That is the
decision: from then on the epoch's records belong to the output, whatever fails. Then it calls `commit`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.driver.committing import Commit, CommitContext
from penstock.runtime.context import RuntimeContext
from penstock.runtime.operators import EpochInfo

EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE = "exactly-once", "at-least-once", "at-most-once"


class SinkWriter(ABC):
    """Writes the records of one subtask. One per worker process, used for many epochs.

    Order of calls in each epoch: `restore` (only if the sink is stateful), `begin_epoch`, `write` for every record,
    `end_input` if this epoch ends bounded input, `prepare_commit`, `snapshot_state`. After a failure the writer is
    closed and another is made.

    Several attempts at one epoch may run, on several hosts, even at the same time; one is chosen by the manifest. So
    nothing that one of them writes may stand in the way of another.
    """

    def restore(self, states: list[bytes]) -> None:
        """This subtask's share of the state that the last checkpoint holds: see `snapshot_state`."""

    def begin_epoch(self, epoch: EpochInfo) -> None:
        """Prepare for the records of an epoch."""

    @abstractmethod
    def write(self, value: Any) -> None:
        """Write a record, or keep it for `prepare_commit`."""

    def end_input(self) -> None:
        """No record will follow, in this epoch or another."""

    @abstractmethod
    def prepare_commit(self) -> bytes | None:
        """Make the epoch's records durable but not visible. Returns what `commit` needs; None for nothing.

        It must be the same for the same records: no time, no random name, no process id may be in it.
        """

    def snapshot_state(self) -> list[bytes]:
        """What the writer of the next epoch must know. After a rescale any subtask may be given any element."""
        return []

    def close(self) -> None:
        """Release what the writer holds: it is not used again."""


class Sink(ABC):
    """Pickled into the job: a copy of it is in every task, the object itself stays in the driver and commits.

    One object can end several streams. Each call in the driver is for one of these operators, and its `context` says
    for which (`uid`), with the write-ahead log of the job (`wal`): a sink that remembers what it has committed must
    remember it by uid.
    """

    guarantee = EXACTLY_ONCE
    """What `penstock info` says of it: EXACTLY_ONCE, AT_LEAST_ONCE or, where records may be missing, AT_MOST_ONCE."""
    why = "what it prepared is in the checkpoint, and is shown once when that is complete"
    """The reason: a sentence."""
    durable = True
    """Whether committables belong in the manifest. If not, they are lost with the driver, as its console is."""
    commit_before_checkpoint = False
    """Whether `commit` may come before the checkpoint is complete where the user asks for no more than at least once.

    If that checkpoint then fails, the same records come again, in a commit of the same name or in several others. So a
    sink that leaves out what it was given before, or whose commit changes what its writers were restored from, cannot.
    """
    concurrent_commit = False
    """Whether `commit` may run in a thread of the driver while the tasks of the next epoch run: it touches nothing that
    writers use. It is over before anything else of the sink is called in the driver, and before the next epoch counts.
    """
    reads_only = False
    """Whether its writers are done with a record when `write` returns, and do not change it. Then they are given the
    record itself, where the function that emitted it may keep it; else a copy."""
    stateful = False
    """Whether its writers have state. Then each is a subtask of its own, behind an exchange if need be."""

    def for_type(self, value_type: Any) -> Sink:
        """The sink for records of this declared type, None where none is declared. Called when a stream ends in it."""
        return self

    def start(self, context: CommitContext) -> None:
        """In the driver, before the first epoch and at each recovery: raise what `commit` would fail with."""

    @abstractmethod
    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        """Return a writer for the subtask that the context describes. Called in the tasks."""

    @abstractmethod
    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        """Show the records of one epoch: its manifest is published. Called again after a recovery (`Commit.again`).

        Must have the effect of once. If it raises, the job fails and calls it again when it is restarted.
        """

    def abort(self, commits: list[Commit], context: CommitContext) -> None:
        """Forget what was prepared in an attempt that failed, as far as it is known. May not be called at all."""

    def abort_uncommitted(self, epoch: int, token: str | None, context: CommitContext) -> None:
        """Give up what attempts at epochs after this one prepared: it will never be committed.

        Called in the driver when the job ends, for whatever reason, and before it is restarted. A `token` names the
        driver whose attempts are meant (`EpochInfo.token`): another one may run the job. None: of all drivers. If it
        raises, the checkpoints are kept, with what the sink wrote there.
        """

    def clean_up(self, lineage: str, epoch: int, states: list[bytes], context: CommitContext) -> None:
        """Remove what attempts up to `epoch` left behind; `states` is all that the writers still need.

        Called when a driver has published its first checkpoint, or the first after a failed attempt: no other driver
        can publish this epoch, and no other attempt will. What writers of a later epoch wrote may be there already.
        """

    def settle(self, context: CommitContext) -> None:
        """No epoch of this lineage follows, though one of another may: raise if records are owed, for they go now."""

    def close(self, context: CommitContext) -> None:
        """In the driver: the job is over here. Another job can use the sink again."""

    def finish(self, lineage: str, states: list[bytes], context: CommitContext) -> None:
        """The job was cancelled for good: show what its last checkpoint holds, for there will be no next epoch."""
