"""Which operator runs a windowed operation."""

from __future__ import annotations

from typing import Any

from penstock.runtime.windows.operator import WindowDescription, WindowOperator


def window_operator(description: WindowDescription, function: Any) -> WindowOperator:
    return WindowOperator(description, function)
