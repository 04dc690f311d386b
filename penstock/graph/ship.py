"""Pickling of user functions for the tasks, with errors that say what cannot travel and why."""

from __future__ import annotations

from typing import Any

import cloudpickle

from penstock.graph.logical import GraphError
from penstock.runtime.operators import describe


class NotShippable(GraphError):
    """A user function holds something that cannot travel to a task.

    Operator action: create connections, locks, clients and sessions in `open()`, which runs where the records are.
    """


def dump_named(thing: Any, function: Any, name: str, uid: str) -> bytes:
    """`thing` as bytes; an error names `function`, the part of it that the user wrote, and the operator."""
    try:
        return cloudpickle.dumps(thing, protocol=5)  # type: ignore[no-any-return]
    except Exception as error:  # pickling runs arbitrary __reduce__ code and may raise anything
        culprit = _culprit(function)
        where = f" because of {culprit}" if culprit else f" ({type(error).__name__}: {error})"
        raise NotShippable(
            f"Operator '{name}' (uid '{uid}'): {describe(function)} cannot be sent to the tasks{where}. "
            f"Create it in open() instead of holding it: open() runs where the records are."
        ) from None


def _culprit(function: Any) -> str | None:
    """The attribute or captured variable that does not pickle, in words."""
    for name, value in getattr(function, "__dict__", {}).items():
        if not _pickles(value):
            return f"attribute '{name}' of class {type(function).__name__}, a {_type_name(value)}"
    code = getattr(function, "__code__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), getattr(function, "__closure__", None) or (), strict=False):
        if not _pickles(cell.cell_contents):
            return f"the captured variable '{name}', a {_type_name(cell.cell_contents)}"
    if code is not None:
        for name in code.co_names:
            value = function.__globals__.get(name)
            if value is not None and function.__module__ == "__main__" and not _pickles(value):
                return f"the global variable '{name}', a {_type_name(value)}"
    return None


def _pickles(value: Any) -> bool:
    try:
        cloudpickle.dumps(value, protocol=5)
    except Exception:  # any failure means the same here: it does not pickle
        return False
    return True


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
