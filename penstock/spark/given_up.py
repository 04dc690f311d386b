"""Interrupts a task in its worker after Spark gave it up, because the job was cancelled or another task failed.

Spark closes the worker's socket. Python notices that only at the next read or write, possibly minutes later. Until then
functions would keep processing records of an epoch that no longer exists. A thread in the worker therefore watches the
socket and interrupts the task, which closes its functions as after an error.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_HANG_UP = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
_CLOSING_S = 10.0
"""Maximum time for functions to close before the worker exits without them."""

_gone = False
"""Whether Spark has closed a socket of this process."""
_running = 0
"""Number of tasks running in this process: 0 or 1."""
_watched: set[int] = set()
"""Sockets that a thread watches."""


class GivenUp(BaseException):
    """Raised in a task that Spark gave up. Not an Exception, to keep user code from catching it."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise GivenUp in the body if Spark gives up the task."""
    global _running
    _watch(_socket_to_spark())
    _running += 1
    try:
        yield
    finally:
        _running -= 1


def _socket_to_spark() -> int | None:
    """Return the descriptor that Spark's worker reads from, found in the worker's stack frame, or None."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "main" and frame.f_globals.get("__name__") == "pyspark.worker":
            try:
                return int(frame.f_locals["infile"].fileno())
            except (KeyError, AttributeError, OSError):
                return None
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _watch(descriptor: int | None) -> None:
    if descriptor is None or descriptor in _watched or threading.current_thread() is not threading.main_thread():
        return
    _watched.add(descriptor)
    signal.signal(signal.SIGINT, _interrupt)
    threading.Thread(target=_await_end, args=(descriptor,), name="penstock-given-up", daemon=True).start()


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _gone:
        raise GivenUp
    signal.default_int_handler(number, frame)


def _await_end(descriptor: int) -> None:
    global _gone
    poll = select.poll()
    poll.register(descriptor, _HANG_UP)
    poll.poll()
    # A worker without a task exits by itself.
    if _running:
        _gone = True
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(_CLOSING_S)
        os._exit(1)
