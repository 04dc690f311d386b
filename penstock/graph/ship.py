"""Pickling of user functions for the tasks, with errors that name the object that cannot be pickled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from penstock.common.class_collector import ClassCollector
from penstock.errors import SourceLocation
from penstock.graph.logical import GraphError
from penstock.graph.ship_advice import advice
from penstock.runtime.operators import describe


class NotShippable(GraphError):
    """A user function holds something that cannot be sent to a task.

    Operator action: create connections, locks and clients in `open()`, which runs in the task.
    """


def dump_named(
    classes: ClassCollector, thing: Any, function: Any, name: str, uid: str, location: SourceLocation | None = None
) -> bytes:
    """Pickle `thing`. An error names the operator and `function`, the part that the user wrote."""
    try:
        return classes.dumps(thing)
    except Exception as error:  # pickling runs arbitrary __reduce__ code and can raise anything
        culprit, value = _culprit(function, classes.pickles)
        where = f" because of {culprit}" if culprit else f" ({type(error).__name__}: {error})"
        raise NotShippable(
            f"Operator '{name}' (uid '{uid}'): {describe(function)} cannot be sent to the tasks{where}.",
            fix=advice(function, value),
            locations=(location,),
        ) from None


def _culprit(function: Any, pickles: Callable[[Any], bool]) -> tuple[str, Any]:
    """Return the description and value of the attribute or variable that cannot be pickled; empty if not found."""
    owner = getattr(function, "__self__", function)
    for name, value in getattr(owner, "__dict__", {}).items():
        if not pickles(value):
            kind = owner if isinstance(owner, type) else type(owner)
            return f"attribute '{name}' of class {kind.__name__}, a {_type_name(value)}", value
    for each in _functions_by_value(owner, pickles):
        for which, value in _variables(each):
            if not pickles(value):
                return f"the {which}, a {_type_name(value)}", value
    return "", None


def _functions_by_value(thing: Any, pickles: Callable[[Any], bool]) -> Iterator[FunctionType]:
    """Yield the functions pickled by value: the function itself, or the methods of a class that cannot be imported."""
    if isinstance(thing, FunctionType):
        yield thing
        return
    for cls in type(thing).__mro__:
        if not pickles(cls):
            yield from (value for value in vars(cls).values() if isinstance(value, FunctionType))


def _variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the values that a function takes from outside, described by their names in the program."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    by_name = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True)) | (function.__kwdefaults__ or {})
    for name, value in by_name.items():
        yield f"default of parameter '{name}'", value
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"captured variable '{name}'", cell.cell_contents
        except ValueError:  # not assigned yet
            pass
    codes = [function.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                yield f"global variable '{name}'", function.__globals__[name]


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
