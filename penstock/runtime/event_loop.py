"""An asyncio event loop in a thread of its own, for code that is asynchronous in a chain that is not."""

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
"""How long is waited for what does not end when it is cancelled; then it is left behind, in a daemon thread."""


class EventLoop:
    """Runs from when it is made until `close`, or until nobody holds it any more.

    Made where it is used, in a task: a thread does not survive a fork, nor a pickle.
    """

    def __init__(self, name: str, on_death: Callable[[BaseException], None]) -> None:
        """`on_death` is told, in the loop's thread, what ended the loop if it was not `close`."""
        made: SimpleQueue[asyncio.AbstractEventLoop] = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(made, on_death), name=name, daemon=True)
        self._thread.start()
        self.loop = made.get()
        self._stop = weakref.finalize(self, _stop, self.loop)
        # The process takes a daemon thread with it; winding it up while the interpreter does so only makes noise.
        self._stop.atexit = False

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call it inside the loop, awaiting what it gives if that can be awaited. What it raises is raised here."""
        outcome: Future[Any] = Future()

        async def inside() -> None:
            try:
                result = function(*arguments)
                outcome.set_result(await result if inspect.isawaitable(result) else result)
            except BaseException as error:  # whatever it is, it belongs to the caller, who waits for it
                outcome.set_exception(error)

        # Held, for the loop itself holds its tasks only weakly.
        coroutine = inside()
        self._called = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        while not wait([outcome], 1).done:
            if not self.alive:
                # It never began, and would complain of it.
                coroutine.close()
                raise PenstockError("The event loop of an async function has ended before its time.")
        error = outcome.exception()
        if error is not None:
            # The very object, and not through the future, whose frames would stand between the user's and ours.
            raise error
        return outcome.result()

    def close(self) -> None:
        """Cancel every task that is left and end the thread."""
        self._stop()
        self._thread.join(GRACE_S)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    with suppress(RuntimeError):  # it has ended by itself, and is closed
        loop.call_soon_threadsafe(loop.stop)


def _serve(made: SimpleQueue[asyncio.AbstractEventLoop], on_death: Callable[[BaseException], None]) -> None:
    # No method: the thread must not be what keeps an EventLoop from being collected.
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        made.put(loop)
        del made
        try:
            loop.run_forever()
        except BaseException as error:  # asyncio lets SystemExit and KeyboardInterrupt of any task end the loop
            on_death(error.with_traceback(_beyond_the_loop(error.__traceback__)))


def _beyond_the_loop(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames of this file and of asyncio, which stand above the user's."""
    kept = trace
    while kept is not None and kept.tb_frame.f_code.co_filename.startswith((__file__, _ASYNCIO)):
        kept = kept.tb_next
    return kept or trace
