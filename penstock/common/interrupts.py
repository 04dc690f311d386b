"""Ctrl-C and SIGTERM: a job stops after the epoch under way and keeps what it has, so that the next start resumes it.

Ctrl-C raises KeyboardInterrupt in the main thread, as in any Python program, and SIGTERM and SIGHUP raise `Terminated`.
Wherever one of them ends the program's wait for its job, the job is stopped: in `execute`, at the end of a `with` block
over a JobClient, and at the end of the program. A second one stops the job at once. Neither removes a checkpoint.
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
"""Those that would end the process without a chance to finish the epoch."""


class Terminated(SystemExit):
    """A signal asks the process to end. The exit code is the one that shells show for it: 143 for SIGTERM."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number)

    def __str__(self) -> str:
        return self.signal.name


Interrupt = (KeyboardInterrupt, Terminated)
"""What asks for a stop that the next start resumes from."""


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
    """Stop a job after the epoch under way, at once if another interrupt comes meanwhile. Raises that one then."""
    cause = "The program ends" if why is None else "SIGINT" if isinstance(why, KeyboardInterrupt) else str(why)
    again = " Press Ctrl-C again to stop at once." if isinstance(why, KeyboardInterrupt) else ""
    _logger.warning("%s: job '%s' stops after the epoch under way.%s", cause, job.name, again)
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
        return "It has no checkpoint in a directory: the next start begins from scratch."
    return f"Nothing was removed: start the program again to resume from checkpoint {checkpoint}."


_lock = threading.Lock()
_watched: list[Stoppable] = []
_at_exit_of: int | None = None
"""The process that has the hook for its end."""


def watch(job: Stoppable) -> None:
    """Let SIGTERM, SIGHUP and the end of the program stop this job too. Called when it starts.

    A program's own handlers stay. Python can set handlers in the main thread only: for a job that is started in another
    one SIGTERM is what it was.
    """
    global _at_exit_of
    with _lock:
        _watched[:] = [*(each for each in _watched if not each.ended), job]
        if _at_exit_of != os.getpid():
            _at_exit_of = os.getpid()
            # Before thread pools end: the epoch under way may need them. Python has no public name for this moment.
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
    # No job: the signal does what it does in any program.
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _stop_all() -> None:
    """The program has ended, and jobs still run."""
    try:
        for job in _running():
            stop_to_resume(job, None)
    except Interrupt:
        for job in _running():
            job.abandon()
