"""Runs a user's program as `python program.py` or `python -m module` would.

Errors are printed without the stack frames of Penstock and Spark.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from types import CodeType, ModuleType
from zipimport import ZipImportError, zipimporter

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


class NoSuchModule(PenstockError):
    """The module that should run does not exist. Operator action: pass a module that the program contains."""


def run_program(program: Path, arguments: list[str], module: str = "") -> int:
    """Run a program as `execute_program` does, print its error, and return the exit code of the process.

    It is 1 if the program failed, 0 if it succeeded or its job was cancelled. `sys.exit` in the program ends this
    process.
    """
    try:
        execute_program(program, arguments, module)
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


def execute_program(program: Path, arguments: list[str], module: str = "") -> None:
    """Run a program, and raise what it raises.

    The program runs as the module `__main__` with its own arguments, and its folder comes first on the import path.

    Args:
        program: A Python file; or a folder, zip file or wheel, of which `module` or `__main__` runs.
        arguments: The arguments of the program.
        module: The module that runs. Without one, a folder or zip file needs a file `__main__.py`.
    """
    packed = not program.is_dir() and program.suffix in (".zip", ".whl")
    folder = str(program.resolve() if packed or program.is_dir() else program.resolve().parent)
    # Replaces the directory of the `penstock` script.
    sys.path[0] = folder
    # Workers also import modules next to the program.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    sys.argv = [str(program), *arguments]
    if module:
        _run_module(module, folder)
    elif packed:
        try:
            code = zipimporter(folder).get_code("__main__")
        except ZipImportError as error:
            raise NoSuchModule(
                f"{program} cannot run: {error}.",
                fix="Add a file __main__.py to it, or name a module with -pym MODULE.",
            ) from None
        _run_code(code, f"{folder}/__main__.py")
    else:
        path = program / "__main__.py" if program.is_dir() else program
        _run_code(compile(path.read_bytes(), str(path), "exec"), str(path))


def _run_code(code: CodeType, file: str, spec: ModuleSpec | None = None) -> None:
    main = ModuleType("__main__")
    main.__file__ = file
    if spec is not None:
        main.__spec__, main.__package__, main.__loader__ = spec, spec.parent, spec.loader
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _run_module(name: str, folder: str) -> None:
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        # Python imports the package of a module to find the module.
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            spec = None
        else:
            raise
    # Every loader of modules that can run has this method, but that of zip files has no such base class.
    get_code = getattr(None if spec is None else spec.loader, "get_code", None)
    code = None if spec is None or get_code is None else get_code(spec.name)
    if spec is None or code is None:
        raise NoSuchModule(
            f"The program in {folder} has no module {name} that can run.",
            fix="Pass the name of a module, such as package.main, or of a package with a file __main__.py.",
        )
    sys.argv[0] = spec.origin or name
    _run_code(code, spec.origin or name, spec)


def raised_by_program(error: BaseException) -> bool:
    """Return whether a program that `execute_program` ran, or a library that it called, raised an error.

    Otherwise Penstock or Spark raised it, which the program called.
    """
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    called = list(takewhile(lambda code: code is not _run_code.__code__, reversed(codes)))
    return 0 < len(called) < len(codes) and not any(code.co_filename.startswith(_OURS) for code in called)


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
