"""Commits that run concurrently with the next epoch, delayed as long as possible: until their result is needed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class Late(Executor):
    """Runs each call when its result is requested or at shutdown. Calls are lost if the driver dies before."""

    def __init__(self) -> None:
        self._promised: list[_Promise] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Accept a call and run it when its result is requested."""
        self._promised = [each for each in self._promised if not each.done()]
        self._promised.append(_Promise(lambda: fn(*args, **kwargs)))
        return self._promised[-1]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Run all remaining calls."""
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
            except Exception as error:  # re-raised by `result`
                self.set_exception(error)
        return super().exception()
