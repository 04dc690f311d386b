"""Find the user's own lines in a stack or a traceback."""

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

_shipped: dict[str, str] = {}
"""By name of an archive that workers import from, the folder of the driver that it is a copy of."""

_CALLERS_OF_THREADS = ("threading", "concurrent", "py4j", "pyspark")


def is_ours(file: str) -> bool:
    """Return whether a file belongs to Penstock."""
    return file.startswith(_OURS)


def remember_shipped(archive: str, folder: str) -> None:
    """Remember that workers import from an archive of this name instead of from the folder."""
    _shipped[archive] = folder


def local_location(location: SourceLocation) -> SourceLocation:
    """Return the driver's line for a line in an archive that was shipped to the workers; any other line unchanged."""
    parts = location.file.split("/")
    for place, part in enumerate(parts):
        if part in _shipped:
            return location._replace(file=os.path.join(_shipped[part], *parts[place + 1 :]))
    return location


def calling_location() -> SourceLocation | None:
    """Return the line outside Penstock that called into it. Used while a program is built, never per record."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_ours(code.co_filename):
            # If Penstock itself is the main program, only the interpreter's frames are above it.
            frozen = code.co_filename.startswith("<frozen ")
            return None if frozen else SourceLocation(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def warn(message: str) -> None:
    """Issue a warning at the line outside Penstock that called into it; log it in threads started by Penstock."""
    frame, level = sys._getframe(1), 2
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1  # type: ignore[assignment]
    if frame is None or str(frame.f_globals.get("__name__")).partition(".")[0] in _CALLERS_OF_THREADS:
        logging.getLogger("penstock").warning("%s", message)
    else:
        warnings.warn(message, stacklevel=level)


def user_locations(trace: TracebackType | None) -> tuple[SourceLocation, ...]:
    """Return the user's lines of a traceback, innermost first.

    Lines in installed libraries are only included if none of the lines are the user's own.
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
