"""Conversion of NumPy scalars to Python's, in keys and values."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["python_scalar"]


def python_scalar(value: Any) -> Any:
    """Convert a NumPy scalar to a bool, int, float, str or bytes; return any other value unchanged.

    NumPy's dates and long doubles are not converted: `item()` returns an int for a datetime64 in nanoseconds, which
    would then pass for a number.
    """
    # A caller with a NumPy scalar has already imported numpy; all others must not pay for the import.
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic):
        return value
    kind, size = value.dtype.kind, value.dtype.itemsize
    if kind in "biuUS" or (kind == "f" and size <= 8):
        return value.item()
    return value
