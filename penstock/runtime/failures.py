"""Turning an exception in user code into words for the user: which operator, and the user's own frames."""

from __future__ import annotations

import os
import traceback
from types import TracebackType
from typing import Any

from penstock.errors import PenstockError
from penstock.runtime.operators import Operator
from penstock.runtime.rows import Failure

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def describe_failure(error: BaseException, operators: list[Operator], subtask: int) -> Failure:
    """`operators` are those of the chain; the one whose frame is innermost is to blame."""
    operator = _innermost_operator(error.__traceback__, operators) or operators[0]
    return Failure(operator.name, operator.uid, subtask, describe_error(error), user_traceback(error), True)


def describe_error(error: BaseException) -> str:
    # Our own errors speak for themselves; a user's is known by its class too.
    if isinstance(error, PenstockError):
        return str(error)
    return "".join(traceback.format_exception_only(error)).strip()


def user_traceback(error: BaseException) -> str:
    """The frames outside Penstock, as Python prints them; empty where there are none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    return "".join(traceback.format_list(frames)).rstrip()


def _innermost_operator(trace: TracebackType | None, operators: list[Operator]) -> Operator | None:
    found = None
    while trace is not None:
        candidate: Any = trace.tb_frame.f_locals.get("self")
        if any(candidate is operator for operator in operators):
            found = candidate
        trace = trace.tb_next
    return found
