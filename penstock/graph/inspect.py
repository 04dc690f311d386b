"""Static inspection of user functions before they run."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from itertools import pairwise
from types import FunctionType
from typing import Any

KEYED_STATE = frozenset({"get_state", "get_list_state", "get_map_state", "get_reducing_state", "get_aggregating_state"})
SUBTASK_IDENTITY = frozenset(
    {"get_index_of_this_subtask", "get_number_of_parallel_subtasks", "get_task_name_with_subtasks"}
)


def asks_context_for(function: Any, names: frozenset[str]) -> str | None:
    """Return the first of `names` that the function's `open` calls on its runtime context, or None.

    Only calls on the parameter of `open` count, so methods of the same name elsewhere cause no false alarm. Calls
    hidden in a helper function are detected when the function is opened.
    """
    opener = getattr(type(function), "open", None)
    code = getattr(opener, "__code__", None)
    if code is None or code.co_argcount < 2:
        return None
    parameter = code.co_varnames[1]
    instructions = list(dis.get_instructions(code))
    if any(each.opname in ("STORE_FAST", "STORE_DEREF") and each.argval == parameter for each in instructions):
        return None
    for first, second in pairwise(instructions):
        if (
            first.opname in ("LOAD_FAST", "LOAD_DEREF", "LOAD_FAST_BORROW")
            and first.argval == parameter
            and second.opname in ("LOAD_METHOD", "LOAD_ATTR")
            and second.argval in names
        ):
            return str(second.argval)
    return None


def always_called(function: Any, method: str, name: str) -> bool:
    """Return whether a method of the user's function calls an attribute of this name on every path.

    Looks into the functions of the program that the method calls, and into its own methods, but not further.
    """
    called = getattr(type(function), method, None)
    if not isinstance(called, FunctionType) or not _straight(called):
        return False
    own = [getattr(type(function), each, None) for each in called.__code__.co_names]
    helpers = [each for each in [*_referenced(called), *own] if isinstance(each, FunctionType)]
    return any(name in each.__code__.co_names and _straight(each) for each in [called, *helpers])


def _straight(function: FunctionType) -> bool:
    """Return whether all of a function runs: a loop or a condition decides at runtime."""
    return not any(
        each.opcode in dis.hasjrel or each.opcode in dis.hasjabs for each in dis.get_instructions(function.__code__)
    )


def reachable_values(function: Any) -> Iterator[Any]:
    """Yield the values that a user's function has or names: its attributes, and what its methods refer to.

    Values in lists, tuples and dicts are yielded as well.
    """
    methods = [each for each in vars(type(function)).values() if isinstance(each, FunctionType)]
    if isinstance(function, FunctionType):
        methods.append(function)
    for value in [
        *getattr(function, "__dict__", {}).values(),
        *vars(type(function)).values(),
        *(each for method in methods for each in _referenced(method)),
    ]:
        yield value
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list | tuple):
            yield from value


def _referenced(function: FunctionType) -> Iterator[Any]:
    """Yield the values of the global variables and of the enclosing functions that a function refers to."""
    for each in dis.get_instructions(function.__code__):
        if each.opname == "LOAD_GLOBAL" and each.argval in function.__globals__:
            yield function.__globals__[each.argval]
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            # Not assigned yet.
            continue
