"""numpy's scalars stand for Python's, in keys and in values alike."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["python_scalar"]


def python_scalar(value: Any) -> Any:
    """The bool, int, float, str or bytes that a numpy scalar stands for; anything else as it is.

    Not for numpy's dates and long doubles: `item()` gives an int for a datetime64 in nanoseconds, which
    would then pass for a number.
    """
    # Who holds a numpy scalar has imported numpy; nobody else should pay for importing it.
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic):
        return value
    kind, size = value.dtype.kind, value.dtype.itemsize
    if kind in "biuUS" or (kind == "f" and size <= 8):
        return value.item()
    return value
