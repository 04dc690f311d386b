"""Runs a user's program as `python program.py` would, and prints its errors without Penstock's stack frames."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from penstock.common.error_format import FULL_VARIABLE, short_form
from penstock.common.job import JobCancelled
from penstock.errors import PenstockError

_OURS = tuple(
    os.path.join(place, "")
    for package in ("penstock", "pyspark", "py4j")
    if (spec := find_spec(package)) is not None
    for place in spec.submodule_search_locations or ()
)
"""Packages whose stack frames do not help the user."""

INTERRUPTED = 130
"""The exit code of a program ended by Ctrl-C, as in shells."""


def run_program(program: Path, arguments: list[str]) -> int:
    """Run the program and return its exit code: 1 if it failed, 0 if it succeeded or its job was cancelled.

    The program runs as the module `__main__` with its own arguments, and its directory comes first on the import path.
    `sys.exit` in the program ends this process.
    """
    path = str(program)
    module = ModuleType("__main__")
    module.__file__ = path
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    sys.argv = [path, *arguments]
    folder = str(program.resolve().parent)
    # Replaces the directory of the `penstock` script.
    sys.path[0] = folder
    # Workers also import modules next to the program.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    try:
        exec(compile(program.read_bytes(), path, "exec"), module.__dict__)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return INTERRUPTED
    except JobCancelled as error:
        # The job's last log line already says so, unless the error has more details or the logger drops the line.
        if not str(error).endswith("' was cancelled.") or not logging.getLogger("penstock").isEnabledFor(logging.INFO):
            print(error, file=sys.stderr)
        return 0
    except PenstockError as error:
        if os.environ.get(FULL_VARIABLE) == "full":
            traceback.print_exception(error)
        else:
            print(short_form(error), file=sys.stderr)
        return 1
    except Exception as error:
        print(user_traceback(error), end="", file=sys.stderr)
        return 1
    return 0


def user_traceback(error: BaseException) -> str:
    """Return the traceback as Python prints it, without the frames of Penstock and Spark."""
    summary = traceback.TracebackException.from_exception(error)
    _leave_out_ours(summary)
    return "".join(summary.format())


def _leave_out_ours(summary: traceback.TracebackException) -> None:
    kept = [frame for frame in summary.stack if not frame.filename.startswith(_OURS)]
    summary.stack = traceback.StackSummary.from_list(kept)
    for inner in (summary.__cause__, summary.__context__, *(summary.exceptions or ())):
        if inner is not None:
            _leave_out_ours(inner)
