"""Long operations on a job, by the id that their clients chose: they run in the background and can be polled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from penstock.driver.control_messages import CANCEL, STOP, Done
from penstock.driver.job_snapshot import Operation
from penstock.errors import PenstockError

_MOST = 1000
"""Operations that are kept. Beyond it the oldest results are forgotten early."""


class UnknownOperation(PenstockError):
    """No operation of the job has this trigger id.

    Operator action: check the id. Results are kept for `rest.async.store-duration`.
    """


class NotCompleted(PenstockError):
    """A job ended before an operation on it was complete.

    Operator action: look up how the job ended. If you still need the savepoint, the checkpoint or the other
    parallelism, run the job again, and repeat the operation while it runs.
    """


class BeingStopped(PenstockError):
    """The job is being stopped, or cancelled, with a savepoint, so it starts no other operation.

    Operator action: wait until the job has ended. To end it without the savepoint, cancel it. If the savepoint fails,
    the job continues, and you can repeat the operation.
    """


class Operations:
    """Thread-safe."""

    def __init__(
        self, kept_s: float, clock: Callable[[], float] = time.monotonic, completed: Callable[[], None] = lambda: None
    ) -> None:
        """`kept_s`: how long a result can be polled. `completed` is called after each result, in any thread."""
        self._kept_s, self._clock, self._completed = kept_s, clock, completed
        self._changed = threading.Condition()
        """Notified of each result."""
        self._known: dict[str, tuple[Operation, float]] = {}
        """Each operation, with the time of its last change."""

    def trigger(self, trigger_id: str, work: Callable[[], Done], kind: str = "") -> Operation:
        """Start `work` in a thread, unless the id is known, and return the operation's state.

        While a job is being stopped, it can only be cancelled: other kinds raise BeingStopped.
        """
        with self._changed:
            self._forget_old()
            if trigger_id in self._known:
                return self._known[trigger_id][0]
            if kind not in ("", CANCEL) and any(stops(each) for each, _ in self._known.values()):
                raise BeingStopped(
                    "The job is being stopped.", fix="Wait until it has ended, or until the stop has failed."
                )
            operation = Operation(trigger_id=trigger_id, kind=kind)
            self._known[trigger_id] = operation, self._clock()
        threading.Thread(target=self._run, args=(operation, work), name="penstock-operation", daemon=True).start()
        return operation

    def poll(self, trigger_id: str) -> Operation:
        """Return the state of an operation. Raises UnknownOperation."""
        with self._changed:
            self._forget_old()
            if trigger_id in self._known:
                return self._known[trigger_id][0]
        raise UnknownOperation(
            f"The job has no operation '{trigger_id}'.",
            fix="Check the id. A result can be polled for rest.async.store-duration after the operation ended.",
        )

    def recent(self) -> list[Operation]:
        """Return the operations that can be polled, oldest first."""
        with self._changed:
            self._forget_old()
            return [operation for operation, _ in self._known.values()]

    def await_results(self, timeout_s: float) -> None:
        """Wait until no operation is in progress, but not longer than this."""
        with self._changed:
            self._changed.wait_for(lambda: all(each.done for each, _ in self._known.values()), timeout_s)

    def _run(self, operation: Operation, work: Callable[[], Done]) -> None:
        try:
            done = work()
            result = msgspec.structs.replace(
                operation,
                done=True,
                savepoint=done.savepoint or "",
                checkpoint=-1 if done.checkpoint is None else done.checkpoint,
            )
        except BaseException as error:  # the client that polls must see it
            text, fix = (error.statement(), error.fix) if isinstance(error, PenstockError) else (str(error), "")
            result = msgspec.structs.replace(
                operation, done=True, failure_kind=type(error).__name__, failure=text, fix=fix or ""
            )
        with self._changed:
            self._known[operation.trigger_id] = result, self._clock()
            self._changed.notify_all()
        self._completed()

    def _forget_old(self) -> None:
        now = self._clock()
        over = [key for key, (each, at) in self._known.items() if each.done and now - at > self._kept_s]
        spare = [key for key, (each, _) in self._known.items() if each.done][: max(0, len(self._known) - _MOST)]
        for key in {*over, *spare}:
            del self._known[key]


def stops(operation: Operation) -> bool:
    """Return whether an operation ends the job: it is in progress, or has succeeded."""
    return operation.kind == STOP and not operation.failure_kind
