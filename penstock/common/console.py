"""The console: a job's log lines if the application configures no logging, and the progress line.

Everything goes to standard error. Standard output belongs to the program.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.common.masking import SecretFilter

NOT_ON_CONSOLE = {"console": False}
"""Pass as `extra=` for records that belong in log files but not on the console."""

_ERASE = "\r\x1b[2K"
_logger = logging.getLogger("penstock")


class Console(logging.Handler):
    """Writes log records as plain lines above a status line that stays at the bottom of the terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._status = ""
        self.painted = False
        self._line_begun = False
        """Whether the program has printed an unfinished line, which is now the terminal's last one."""
        self._output: _Output | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record above the status line."""
        if not getattr(record, "console", True):
            return
        try:
            text = self.format(record)
            with self.above():
                sys.stderr.write(f"{text}\n")
                sys.stderr.flush()
        except Exception:
            self.handleError(record)

    @property
    def takes_status(self) -> bool:
        """Whether a status line can be shown: standard error is a terminal, and Python is not interactive."""
        try:
            terminal = sys.stderr.isatty()
        except (AttributeError, ValueError):
            return False
        return terminal and not hasattr(sys, "ps1") and not sys.flags.interactive

    def show_status(self, text: str) -> None:
        """Show this line at the bottom of the terminal until the next call; an empty string removes it."""
        with self._locked():
            self._status = text
            if text and self._output is None and sys.stdout.isatty():
                self._output = sys.stdout = _Output(sys.stdout, self)
            elif not text and self._output is not None:
                if sys.stdout is self._output:
                    sys.stdout = self._output.stream
                self._output = None
            self._erase()
            self._paint()

    @contextmanager
    def above(self) -> Iterator[None]:
        """Within this context, output goes above the status line."""
        with self._locked():
            self._erase()
            yield
            self._paint()

    def begun(self, line_begun: bool) -> None:
        """Record whether the program has left a line on standard output unfinished."""
        self._line_begun = line_begun

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def _erase(self) -> None:
        if self.painted:
            self.painted = False
            sys.stderr.write(_ERASE)
            sys.stderr.flush()

    def _paint(self) -> None:
        if self._status and not self._line_begun:
            self.painted = True
            # One cell less than the width: some terminals wrap in the last cell, and a wrapped line cannot be erased.
            sys.stderr.write(self._status[: shutil.get_terminal_size().columns - 1])
            sys.stderr.flush()


class _Output:
    """Replaces `sys.stdout` while a status line is shown on the same terminal."""

    def __init__(self, stream: Any, console: Console) -> None:
        self.stream = stream
        self._console = console

    def write(self, text: str) -> int:
        with self._console.above():
            written: int = self.stream.write(text)
            self.stream.flush()
            if text:
                self._console.begun(not text.endswith("\n"))
            return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


SECRETS = SecretFilter()
"""Masks secrets on the console."""
_console = Console()
_console.addFilter(SECRETS)


def console(quiet: bool = False) -> Console | None:
    """Install the console and return it, or return None if the application has configured its own logging.

    Call it at any time: an application might set up logging after its first job. `quiet` shows only warnings.
    """
    others = [
        handler
        for logger in (_logger, logging.getLogger())
        for handler in logger.handlers
        if handler is not _console and not isinstance(handler, logging.NullHandler)
    ]
    installed = _console in _logger.handlers
    if others:
        if installed:
            _logger.removeHandler(_console)
            _logger.setLevel(logging.NOTSET)
            _logger.propagate = True
        return None
    if not installed:
        if _logger.level != logging.NOTSET:
            # The application set the level, and reads the log through Python's default handler.
            return None
        _logger.addHandler(_console)
        # A library that logs to the root logger installs a handler there, which would print every line twice.
        _logger.propagate = False
    _logger.setLevel(logging.WARNING if quiet else logging.INFO)
    return _console


@contextmanager
def above_status() -> Iterator[None]:
    """Within this context, terminal output goes above the status line, if one is shown."""
    if _console.painted:
        with _console.above():
            yield
    else:
        yield
