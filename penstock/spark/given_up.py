"""Stops a task in its worker when Spark has given it up: the job was cancelled, or another task failed.

Spark then closes the worker's socket. Python notices that when it next reads or writes there, which may be minutes
later: until then functions go on with records of an epoch that no longer exists. So a thread of the worker watches
the socket and interrupts the task, which closes its functions as after an error.
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
"""How long functions may take to close before the worker ends without them."""

_gone = False
"""Whether Spark has closed a socket of this process."""
_running = 0
"""Tasks that this process runs: one, or none."""
_watched: set[int] = set()
"""Sockets that a thread watches."""


class GivenUp(BaseException):
    """Raised in the task that Spark has given up. Not an Exception: user code must not catch it."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise GivenUp in what runs within when Spark has given it up."""
    global _running
    _watch(_socket_to_spark())
    _running += 1
    try:
        yield
    finally:
        _running -= 1


def _socket_to_spark() -> int | None:
    """The descriptor from which Spark's worker reads, found in the frame that does; None if there is none."""
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
    # A worker without a task ends by itself.
    if _running:
        _gone = True
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(_CLOSING_S)
        os._exit(1)
