"""An asyncio event loop in a dedicated thread, for asynchronous code inside a synchronous chain."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from penstock.errors import PenstockError

_ASYNCIO = os.path.join(os.path.dirname(asyncio.__file__), "")

GRACE_S = 5.0
"""How long to wait for tasks that do not end when cancelled. After that they are left behind, in a daemon thread."""


class EventLoop:
    """An event loop that runs from its construction until `close`, or until it is garbage-collected.

    Created in the task that uses it: a thread survives neither a fork nor pickling.
    """

    def __init__(self, name: str, on_death: Callable[[BaseException], None]) -> None:
        """`on_death` is called in the loop's thread with the error that ended the loop, unless `close` ended it."""
        made: SimpleQueue[asyncio.AbstractEventLoop] = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(made, on_death), name=name, daemon=True)
        self._thread.start()
        self.loop = made.get()
        self._stop = weakref.finalize(self, _stop, self.loop)
        # A daemon thread ends with the process; stopping the loop during interpreter shutdown only causes noise.
        self._stop.atexit = False

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call `function` inside the loop, await its result if possible, and re-raise its exception here."""
        outcome: Future[Any] = Future()

        async def inside() -> None:
            try:
                result = function(*arguments)
                outcome.set_result(await result if inspect.isawaitable(result) else result)
            except BaseException as error:  # re-raised for the waiting caller
                outcome.set_exception(error)

        # Keep a reference: the loop itself holds its tasks only weakly.
        coroutine = inside()
        self._called = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        while not wait([outcome], 1).done:
            if not self.alive:
                # It never started, and Python would warn about that.
                coroutine.close()
                raise PenstockError("The event loop of an async function ended unexpectedly.")
        error = outcome.exception()
        if error is not None:
            # Raise the object itself: the future would add its own frames between the user's and ours.
            raise error
        return outcome.result()

    def close(self) -> None:
        """Cancel every remaining task and end the thread."""
        self._stop()
        self._thread.join(GRACE_S)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    with suppress(RuntimeError):  # the loop has already ended and is closed
        loop.call_soon_threadsafe(loop.stop)


def _serve(made: SimpleQueue[asyncio.AbstractEventLoop], on_death: Callable[[BaseException], None]) -> None:
    # Not a method: the thread must not keep an EventLoop from being collected.
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        made.put(loop)
        del made
        try:
            loop.run_forever()
        except BaseException as error:  # asyncio lets SystemExit and KeyboardInterrupt of any task end the loop
            on_death(error.with_traceback(_beyond_the_loop(error.__traceback__)))


def _beyond_the_loop(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the leading frames of this file and of asyncio."""
    kept = trace
    while kept is not None and kept.tb_frame.f_code.co_filename.startswith((__file__, _ASYNCIO)):
        kept = kept.tb_next
    return kept or trace
