"""Static inspection of user functions before they run."""

from __future__ import annotations

import dis
from itertools import pairwise
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
    """Return whether a method of the user's function calls an attribute of this name on every path."""
    code = getattr(getattr(type(function), method, None), "__code__", None)
    if code is None or name not in code.co_names:
        return False
    # A loop or condition decides at runtime.
    return not any(each.opcode in dis.hasjrel or each.opcode in dis.hasjabs for each in dis.get_instructions(code))
