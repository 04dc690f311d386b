"""Format the error that ends a program: the user's file and line first, the fix last, no Penstock frames."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from penstock.common.job import JobCancelled
from penstock.common.source_locations import local_location, user_locations
from penstock.errors import PenstockError, SourceLocation

FULL_VARIABLE = "PENSTOCK_TRACEBACK"
"""Set this environment variable to `full` to get Python's complete traceback instead."""

_PLACES_SHOWN = 3
_LINES_SHOWN = 5
"""Longer messages are truncated to this many lines."""


def short_form(error: PenstockError) -> str:
    """Format an error in at most fifteen lines, regardless of message length and call depth."""
    if isinstance(error, JobCancelled):
        return str(error)
    message = error.headline().rstrip().splitlines() or [""]
    if len(message) > _LINES_SHOWN:
        message[_LINES_SHOWN - 1 :] = [f"… and {len(message) - _LINES_SHOWN + 1} more lines"]
    locations = tuple(map(local_location, error.locations or user_locations(error.__traceback__)))
    if not locations:
        lines = message
    else:
        first = locations[0]
        lines = [f"{_shown(first)}: {message[0]}", *_source(first)]
        for location in locations[1:_PLACES_SHOWN]:
            lines += [f"  see also {_shown(location)}, in {location.function}", *_source(location)]
        lines += message[1:]
    lines += filter(None, [error.context()])
    if error.fix:
        lines.append(f"Fix: {' '.join(error.fix.split())}")
    return "\n".join(lines)


def _shown(location: SourceLocation) -> str:
    """Return `file:line`, as a relative path if the file is below the working directory; the cell in a notebook."""
    file = location.file
    if cell := _cell(file):
        return f"{cell}, line {location.line}"
    if os.path.isabs(file):
        near = os.path.relpath(file)
        file = file if near.startswith(os.pardir) else near
    return f"{file}:{location.line}"


def _shell() -> Any:
    """Return the IPython that runs this program, or None."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def _cell(file: str) -> str:
    """Return a cell as IPython names it, such as `Cell In[3]`, given the file that it has in a traceback."""
    name_of = getattr(getattr(_shell(), "compile", None), "format_code_name", None)
    return " ".join((name_of and name_of(file)) or ())


def _source(location: SourceLocation) -> list[str]:
    text = linecache.getline(location.file, location.line).strip()
    return [f"    {text}"] if text else []


class ShortExceptHook:
    """Replaces `sys.excepthook`: prints Penstock errors in the short form and passes all others on."""

    def __init__(self, before: Callable[[type[BaseException], Any, TracebackType | None], Any]) -> None:
        self._before = before

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Print a PenstockError in the short form, and pass any other error to the previous hook."""
        if isinstance(error, PenstockError) and os.environ.get(FULL_VARIABLE) != "full":
            print(short_form(error.with_traceback(trace)), file=sys.stderr)
        else:
            self._before(kind, error, trace)

    @classmethod
    def install(cls) -> None:
        """Install the hook once per process, in IPython too. Has no effect in environments that bypass it (pytest)."""
        if not isinstance(sys.excepthook, cls):
            sys.excepthook = cls(sys.excepthook)
        shell = _shell()
        if shell is not None and not getattr(shell, "custom_exceptions", ()):
            shell.set_custom_exc((PenstockError,), _show_in_notebook)


def _show_in_notebook(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
    tb_offset: int | None = None,
) -> list[str] | None:
    """Print an error that ends a cell: in the short form, whose last line is the fix, or with the whole traceback."""
    if os.environ.get(FULL_VARIABLE) == "full" or not isinstance(error, PenstockError):
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset, running_compiled_code=True)
        return None
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] == "IPython":
        trace = trace.tb_next
    lines = short_form(error.with_traceback(trace)).splitlines()
    # The kernel of a notebook sends them to its page, and the IPython of a terminal prints them.
    shell._showtraceback(kind, error, lines)
    return lines
