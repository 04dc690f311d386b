"""Flink's TwoPhaseCommitSinkFunction, for ``add_sink``. ``connectors/two_phase.py`` runs it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from penstock.datastream.functions import Function
from penstock.runtime.context import FunctionContext


class TwoPhaseCommitSinkFunction(Function):
    """A sink for systems that can prepare a transaction and commit it later. Its output is exactly-once.

    A task calls, for each epoch with records, ``begin_transaction``, ``invoke`` for every record, and ``pre_commit``.
    If the epoch fails before ``pre_commit``, the task calls ``abort``.

    ``begin_transaction`` returns the *handle* of the transaction: strings, numbers, lists, dicts, or the dataclass in
    its return annotation. Only the handle reaches the driver. It must contain a random part, because two
    attempts must never share a handle.

    The driver calls the remaining methods on a separate object that was not opened, so create connections lazily:

    - ``commit`` when the checkpoint of the epoch is complete.
    - ``recover_and_commit`` when a new driver finds the checkpoint complete but cannot tell whether it was committed.
    - ``abort`` for a failed attempt.
    - ``recover_and_abort`` for a lost attempt. The driver knows lost attempts only if checkpoints are stored as files.

    All of them must be idempotent, because each can be called again with the same handle.
    """

    @abstractmethod
    def begin_transaction(self) -> Any:
        """Begin a transaction.

        Returns:
            The handle of the transaction.
        """

    @abstractmethod
    def invoke(self, transaction: Any, value: Any, context: FunctionContext) -> None:
        """Write a record into the transaction.

        Args:
            transaction: The handle.
            value: The record.
            context: Provides the record's timestamp and the current watermark.
        """

    @abstractmethod
    def pre_commit(self, transaction: Any) -> None:
        """Make the transaction durable. The commit must not depend on this process.

        Args:
            transaction: The handle.
        """

    @abstractmethod
    def commit(self, transaction: Any) -> None:
        """Commit a transaction whose epoch is complete.

        Args:
            transaction: The handle.
        """

    @abstractmethod
    def abort(self, transaction: Any) -> None:
        """Abort a transaction whose attempt failed.

        Args:
            transaction: The handle.
        """

    def recover_and_commit(self, transaction: Any) -> None:
        """Commit a transaction found by a new driver. It might already be committed.

        Args:
            transaction: The handle.
        """
        self.commit(transaction)

    def recover_and_abort(self, transaction: Any) -> None:
        """Abort a transaction left by a lost attempt. It might already be aborted.

        Args:
            transaction: The handle.
        """
        self.abort(transaction)
