"""Chooses the operator for a windowed operation."""

from __future__ import annotations

from typing import Any

from penstock.runtime.windows.operator import WindowDescription, WindowOperator
from penstock.runtime.windows.panes import PaneOperator


def window_operator(description: WindowDescription, function: Any) -> WindowOperator:
    if PaneOperator.runs(description):
        return PaneOperator(description, function)
    return WindowOperator(description, function)
