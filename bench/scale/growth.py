"""How a quantity grows: the exponent of a power of the size, fitted to measurements."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

FITTED = 5
"""An exponent is fitted to this many of the largest sizes: fixed costs would hide the growth of the small ones."""


class Growth:
    """`factor · size ** exponent`, a least-squares fit of the logarithms."""

    def __init__(self, sizes: Sequence[float], values: Sequence[float]) -> None:
        """`sizes` ascend. A quantity that is 0 does not grow."""
        points = [(log(size), log(value)) for size, value in zip(sizes, values, strict=True) if value > 0][-FITTED:]
        self.exponent, self.factor = 0.0, 0.0
        if len(points) < 2:
            return
        x = sum(at for at, _ in points) / len(points)
        y = sum(of for _, of in points) / len(points)
        self.exponent = sum((at - x) * (of - y) for at, of in points) / sum((at - x) ** 2 for at, _ in points)
        self.factor = exp(y - self.exponent * x)

    def at(self, size: float) -> float:
        """Return the fitted value."""
        return float(self.factor * size**self.exponent)
