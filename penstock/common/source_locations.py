"""Finding the user's own lines among the frames of a stack or a traceback."""

from __future__ import annotations

import logging
import os
import sys
import sysconfig
import warnings
from types import TracebackType

from penstock.errors import SourceLocation

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INSTALLED = tuple(
    os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")
)

_CALLERS_OF_THREADS = ("threading", "concurrent", "py4j", "pyspark")


def is_ours(file: str) -> bool:
    """Whether a file is Penstock's own."""
    return file.startswith(_OURS)


def calling_location() -> SourceLocation | None:
    """The line outside Penstock that called into it. For the building of programs, never for records."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_ours(code.co_filename):
            # Where Penstock itself is the program, what is above it is the interpreter's.
            frozen = code.co_filename.startswith("<frozen ")
            return None if frozen else SourceLocation(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def warn(message: str) -> None:
    """Warn at the line outside Penstock that called into it; in a thread of Penstock, in the log."""
    frame, level = sys._getframe(1), 2
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1  # type: ignore[assignment]
    if frame is None or str(frame.f_globals.get("__name__")).partition(".")[0] in _CALLERS_OF_THREADS:
        logging.getLogger("penstock").warning("%s", message)
    else:
        warnings.warn(message, stacklevel=level)


def user_locations(trace: TracebackType | None) -> tuple[SourceLocation, ...]:
    """The user's lines of a traceback, innermost first.

    Lines of installed libraries are left out, unless nothing else is there.
    """
    places = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_ours(code.co_filename):
            places.append(SourceLocation(code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    places.reverse()
    own = [place for place in places if not place.file.startswith((*_INSTALLED, "<frozen "))]
    return tuple(own or places)
