"""The errors that an epoch can fail with, as the program sees them."""

from __future__ import annotations

from penstock.driver.coordinator import Abort
from penstock.errors import PenstockError
from penstock.runtime.metrics import NOWHERE
from penstock.runtime.rows import Failure


class EngineLost(PenstockError):
    """The engine could not complete the epoch: it lost a worker or executor, or rows changed on a retry.

    Operator action: none while the job restarts. If it recurs, look for killed processes in the system log, such as the
    out-of-memory killer's.
    """


class TookTooLong(EngineLost):
    """The engine was stopped because the checkpoint timeout had passed.

    Operator action: raise execution.checkpointing.timeout, or make epochs smaller with flow control.
    """


class EpochFailed(PenstockError):
    """An epoch could not be completed. None of its output is visible.

    Operator action: follow the cause that the message gives; the restart strategy decides whether the job continues.
    """

    def __init__(self, message: str, failures: tuple[Failure, ...] = (), fix: str = "") -> None:
        super().__init__(message, fix=fix, locations=failures[0].locations if failures else ())
        self.failures = failures
        self.place = NOWHERE
        """Where the task of the first failure ran."""
        self.retryable = all(failure.retryable for failure in failures)


class UserFunctionFailed(EpochFailed):
    """A user function raised. The message contains the user's traceback and the operator.

    Operator action: fix the function, or drop the record that the message shows.
    """

    def __init__(self, failures: tuple[Failure, ...], epoch: int) -> None:
        failure = failures[0]
        kind = "Source" if failure.is_source else "Operator"
        self.operator = (
            f"{kind} '{failure.operator}' (uid '{failure.uid}') failed in subtask {failure.subtask} of epoch {epoch}"
        )
        trace = f"\n{failure.traceback}" if failure.traceback else ""
        super().__init__(f"{self.operator}:{trace}\n{failure.error}", failures)
        self.args = (failures, epoch)
        self.fix, self.locations = failure.fix, failure.locations

    def headline(self) -> str:
        return self.failures[0].headline

    def context(self) -> str:
        record = self.failures[0].record
        return f"{self.operator}, on the record {record}" if record else f"{self.operator}."

    def __str__(self) -> str:
        return self.problem


def failed(abort: Abort) -> EpochFailed:
    if not abort.failures:
        return EpochFailed(f"Epoch {abort.epoch} was {abort.status.value.lower()}: {abort.reason}.")
    failure = abort.failures[0]
    if not failure.from_user:
        whose = f"Operator '{failure.operator}' (uid '{failure.uid}'): " if failure.uid else ""
        wrong = failure.error.removesuffix(failure.fix).rstrip()
        message = f"Epoch {abort.epoch} was {abort.status.value.lower()}: {whose}{wrong}"
        return EpochFailed(message, abort.failures, failure.fix)
    return UserFunctionFailed(abort.failures, abort.epoch)
