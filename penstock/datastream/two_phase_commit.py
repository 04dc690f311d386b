"""Flink's TwoPhaseCommitSinkFunction, for `add_sink`. `connectors/two_phase.py` runs it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from penstock.datastream.functions import Function
from penstock.runtime.context import FunctionContext


class TwoPhaseCommitSinkFunction(Function):
    """The end of a stream that goes into transactions of a system which can prepare them and commit them later.

    In a task, for each epoch with records: `begin_transaction`, `invoke` for every record, `pre_commit`; `abort` if the
    epoch fails before that. What `begin_transaction` gives is the transaction's *handle*: strings, numbers, lists,
    dicts, or the dataclass that the method is annotated to return. It is the only thing that goes to the driver, which
    calls the rest on an object of its own that was not opened: connections belong in attributes and are made when
    needed. No two attempts may have the same handle, so it has something random in it.

    In the driver: `commit` when the epoch's checkpoint is complete, `recover_and_commit` when a new driver finds it
    complete and cannot know whether `commit` was called, `abort` for an attempt that failed, `recover_and_abort` for
    one that nobody has heard of since (known only where checkpoints are in files). Any of them may be called again for
    the same handle, and must then have no further effect.
    """

    @abstractmethod
    def begin_transaction(self) -> Any:
        """Begin a transaction and return its handle."""

    @abstractmethod
    def invoke(self, transaction: Any, value: Any, context: FunctionContext) -> None:
        """Write a record into the transaction."""

    @abstractmethod
    def pre_commit(self, transaction: Any) -> None:
        """Make all of it durable, so that a commit cannot fail for lack of anything in this process."""

    @abstractmethod
    def commit(self, transaction: Any) -> None:
        """Commit a transaction whose epoch is complete."""

    @abstractmethod
    def abort(self, transaction: Any) -> None:
        """Abort a transaction whose attempt failed."""

    def recover_and_commit(self, transaction: Any) -> None:
        """Commit a transaction that a new driver found; it may be committed already."""
        self.commit(transaction)

    def recover_and_abort(self, transaction: Any) -> None:
        """Abort a transaction that a lost attempt left; it may be aborted already."""
        self.abort(transaction)
