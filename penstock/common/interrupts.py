"""Ctrl-C and SIGTERM: stop a job after the current epoch and keep its checkpoints for the next start.

Ctrl-C raises KeyboardInterrupt in the main thread, as in any Python program; SIGTERM and SIGHUP raise `Terminated`.
Either one stops the job wherever the program waits for it: in `execute`, at the end of a `with` block over a JobClient,
and at exit. A second one stops the job immediately. No checkpoint is ever removed.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
from types import FrameType
from typing import Any, Protocol

_logger = logging.getLogger("penstock")

_SIGNALS = [signal.SIGTERM, signal.SIGHUP]
"""Signals that by default end the process before it can finish the epoch."""


class Terminated(SystemExit):
    """A signal has asked the process to exit. The exit code follows the shell convention: 143 for SIGTERM."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number)

    def __str__(self) -> str:
        return self.signal.name


Interrupt = (KeyboardInterrupt, Terminated)
"""Exceptions that request a resumable stop."""


class Stoppable(Protocol):
    """A running job."""

    @property
    def name(self) -> str:
        """The job's name."""

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""

    @property
    def resumes_from(self) -> int | None:
        """The checkpoint from which the job would resume, or None if it would start from scratch."""

    def suspend(self) -> None:
        """Stop after the current epoch, and keep the checkpoints."""

    def abandon(self) -> None:
        """Stop at once, and keep the checkpoints."""


def stop_to_resume(job: Stoppable, why: BaseException | None) -> None:
    """Stop a job after the current epoch. A second interrupt stops it immediately and is raised."""
    cause = "The program is exiting" if why is None else "SIGINT" if isinstance(why, KeyboardInterrupt) else str(why)
    again = " Press Ctrl-C again to stop at once." if isinstance(why, KeyboardInterrupt) else ""
    _logger.warning("%s: job '%s' stops after the current epoch.%s", cause, job.name, again)
    try:
        job.suspend()
    except Interrupt:
        job.abandon()
        _logger.warning("Job '%s' stopped at once. %s", job.name, _how_to_resume(job))
        raise
    _logger.warning("Job '%s' stopped. %s", job.name, _how_to_resume(job))


def _how_to_resume(job: Stoppable) -> str:
    checkpoint = job.resumes_from
    if checkpoint is None:
        return "It has no checkpoint in a directory; the next start begins from scratch."
    return f"Its checkpoints are kept: start the program again to resume from checkpoint {checkpoint}."


_lock = threading.Lock()
_watched: list[Stoppable] = []
_at_exit_of: int | None = None
"""The id of the process that has registered the exit hook."""


def watch(job: Stoppable) -> None:
    """Stop this job on SIGTERM, SIGHUP and program exit as well. Called when the job starts.

    Handlers that the program installed stay in place. Python sets signal handlers in the main thread only, so a job
    started in another thread does not change how SIGTERM is handled.
    """
    global _at_exit_of
    with _lock:
        _watched[:] = [*(each for each in _watched if not each.ended), job]
        if _at_exit_of != os.getpid():
            _at_exit_of = os.getpid()
            # Run before thread pools shut down, since the current epoch might need them. Python has no public hook.
            getattr(threading, "_register_atexit", atexit.register)(_stop_all)
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _terminate)


def _running() -> list[Stoppable]:
    return [job for job in _watched if not job.ended] if _at_exit_of == os.getpid() else []


def _terminate(number: int, frame: FrameType | None) -> Any:
    if _running():
        raise Terminated(number)
    # No job is running: apply the default action.
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _stop_all() -> None:
    """Stop the jobs that are still running when the program exits."""
    try:
        for job in _running():
            stop_to_resume(job, None)
    except Interrupt:
        for job in _running():
            job.abandon()
