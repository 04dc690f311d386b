"""A result to be waited for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any


class CompletableFuture:
    """Given by `JobClient`. Cancelling it gives up the result, not the job."""

    def __init__(self, wait: Callable[[], Any], done: Callable[[], bool]) -> None:
        self._wait = wait
        self._done = done
        self._cancelled = False

    def result(self) -> Any:
        """Wait for the result; raises what it failed with."""
        if self._cancelled:
            raise CancelledError("This future was cancelled; the job was not.")
        return self._wait()

    def exception(self) -> BaseException | None:
        """What it failed with; None if it did not, or is not done yet."""
        if not self.done():
            return None
        try:
            self.result()
        except Exception as error:
            return error
        return None

    def cancel(self) -> bool:
        """Give up the result; False if it is there already."""
        if not self.done():
            self._cancelled = True
        return self._cancelled

    def cancelled(self) -> bool:
        """Return whether the future was cancelled."""
        return self._cancelled

    def done(self) -> bool:
        """Whether there is a result, a failure, or a cancel."""
        return self._cancelled or self._done()


__all__ = ["CompletableFuture"]
