"""Commits that a job makes beside its next epoch, as late as they may be: when whoever waits for them asks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class Late(Executor):
    """Does what it was given when its result is asked for, or when it is shut down; never if the driver dies before."""

    def __init__(self) -> None:
        self._promised: list[_Promise] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Take a call, and make it when its result is asked for."""
        self._promised = [each for each in self._promised if not each.done()]
        self._promised.append(_Promise(lambda: fn(*args, **kwargs)))
        return self._promised[-1]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Make all calls that are left."""
        for each in self._promised:
            each.exception()


class _Promise(Future[Any]):
    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work

    def result(self, timeout: float | None = None) -> Any:
        self.exception()
        return super().result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.done():
            try:
                self.set_result(self._work())
            except Exception as error:  # whoever asks for the result hears of it
                self.set_exception(error)
        return super().exception()
