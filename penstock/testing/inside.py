"""Transfers results out of tasks, whose classes are copies of the program's classes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from penstock.common.pickling import to_pickle
from penstock.common.program import Program


def from_inside(program: Program, work: Callable[[], Any]) -> Any:
    """Run ``work`` as a task does and return its result as the driver would receive it."""
    with program.entered():
        result = work()
        if program.empty:
            return result
        data = to_pickle(result)
    return pickle.loads(data)
