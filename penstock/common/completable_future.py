"""The future returned by the asynchronous calls of a JobClient."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any


class CompletableFuture:
    """A pending result, returned by the methods of ``JobClient``. Cancelling the future does not cancel the job."""

    def __init__(self, wait: Callable[[], Any], done: Callable[[], bool]) -> None:
        self._wait = wait
        self._done = done
        self._cancelled = False

    def result(self) -> Any:
        """Wait for the result and return it, or raise the exception the operation failed with."""
        if self._cancelled:
            raise CancelledError("This future was cancelled; the job was not.")
        return self._wait()

    def exception(self) -> BaseException | None:
        """Return the exception the operation failed with, or None if it succeeded or is still pending."""
        if not self.done():
            return None
        try:
            self.result()
        except Exception as error:
            return error
        return None

    def cancel(self) -> bool:
        """Cancel the future. Return False if it is already done."""
        if not self.done():
            self._cancelled = True
        return self._cancelled

    def cancelled(self) -> bool:
        """Return whether the future was cancelled."""
        return self._cancelled

    def done(self) -> bool:
        """Return whether the future has a result, has failed, or was cancelled."""
        return self._cancelled or self._done()


__all__ = ["CompletableFuture"]
