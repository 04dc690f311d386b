"""An error as it is printed when it ends a program: the user's file and line first, the fix last, nothing of ours."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from penstock.common.job import JobCancelled
from penstock.common.source_locations import user_locations
from penstock.errors import PenstockError, SourceLocation

FULL_VARIABLE = "PENSTOCK_TRACEBACK"
"""`full` in this environment variable shows Python's whole traceback instead."""

_PLACES_SHOWN = 3
_LINES_SHOWN = 5
"""Of a message that has many."""


def short_form(error: PenstockError) -> str:
    """At most fifteen lines, however long the message and deep the calls."""
    if isinstance(error, JobCancelled):
        return str(error)
    message = error.headline().rstrip().splitlines() or [""]
    if len(message) > _LINES_SHOWN:
        message[_LINES_SHOWN - 1 :] = [f"… and {len(message) - _LINES_SHOWN + 1} lines more"]
    locations = error.locations or user_locations(error.__traceback__)
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
    """`file:line`, as short as a terminal or an editor can still open it."""
    file = location.file
    if os.path.isabs(file):
        near = os.path.relpath(file)
        file = file if near.startswith(os.pardir) else near
    return f"{file}:{location.line}"


def _source(location: SourceLocation) -> list[str]:
    text = linecache.getline(location.file, location.line).strip()
    return [f"    {text}"] if text else []


class ShortExceptHook:
    """In the place of `sys.excepthook`: prints Penstock's errors in the short form, and leaves others as they were."""

    def __init__(self, before: Callable[[type[BaseException], Any, TracebackType | None], Any]) -> None:
        self._before = before

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Print a PenstockError in the short form, and any other error as before."""
        if isinstance(error, PenstockError) and os.environ.get(FULL_VARIABLE) != "full":
            print(short_form(error.with_traceback(trace)), file=sys.stderr)
        else:
            self._before(kind, error, trace)

    @classmethod
    def install(cls) -> None:
        """Once per process, however often it is called. Where no hook is used (IPython, pytest) it changes nothing."""
        if not isinstance(sys.excepthook, cls):
            sys.excepthook = cls(sys.excepthook)
