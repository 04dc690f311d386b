"""Suggested fixes for errors whose message alone does not suggest one."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import FunctionType
from typing import Any


def hint(error: BaseException, function: str) -> str:
    """Return a fix for an error in user code, or an empty string if the only advice is to change it."""
    if isinstance(error, SystemExit):
        return (
            f"Remove the call to sys.exit() from {function}: it runs in a task, not in the program. To fail the job, "
            f"raise an exception."
        )
    if isinstance(error, KeyboardInterrupt):
        return f"Do not raise KeyboardInterrupt in {function}. To fail the job, raise an exception of another class."
    if isinstance(error, ModuleNotFoundError) and error.name:
        return (
            f"Ship '{error.name.split('.')[0]}' to the workers with env.add_python_file(...), or install it on every "
            f"host. docs/run/dependencies.md shows both."
        )
    if isinstance(error, AttributeError) and error.obj is not None and error.name:
        return _unset_attribute(error.obj, error.name)
    return ""


def _unset_attribute(thing: Any, name: str) -> str:
    """Return a fix for a function object whose attribute was read before any method set it."""
    cls = type(thing)
    if _is_penstock(cls) or not hasattr(cls, "open"):
        return ""
    own = [base for base in cls.__mro__ if not _is_penstock(base) and "open" in vars(base)]
    for base, method in _methods_that_set(cls, name):
        if method == "open" and own[0] is not base:
            return f"Call super().open(runtime_context) in {own[0].__name__}.open: {base.__name__}.open sets '{name}'."
        if method == "__init__" and vars(cls).get("__init__") is not vars(base)["__init__"]:
            return f"Call super().__init__() in {cls.__name__}.__init__: {base.__name__}.__init__ sets '{name}'."
        if not own and method not in ("open", "__init__"):
            return (
                f"Rename {base.__name__}.{method}, which sets '{name}', to open(self, runtime_context), which runs "
                f"before the first record."
            )
    if own:
        return ""
    return (
        f"Set self.{name} in a method open(self, runtime_context) of {cls.__name__}: it runs before the first record."
    )


def _methods_that_set(cls: type, name: str) -> Iterator[tuple[type, str]]:
    for base in cls.__mro__:
        for method, value in vars(base).items():
            if isinstance(value, FunctionType) and any(
                step.opname == "STORE_ATTR" and step.argval == name for step in dis.get_instructions(value)
            ):
                yield base, method


def _is_penstock(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "penstock"
