"""Checks that no watermark moves backwards: while tasks run, in what they report, and from checkpoint to checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.graph.physical import PhysicalGraph
from penstock.runtime.chain import ChainRun
from penstock.runtime.operators import Operator
from penstock.runtime.plan import Chain


class WatermarkMovedBackwards(AssertionError):
    """A watermark is smaller than it was. This is an error in Penstock, not in the program under test."""

    def __init__(self, moves: Iterable[str]) -> None:
        super().__init__(f"A watermark moved backwards: {'; '.join(moves)}.")


class WatchedRun(ChainRun):
    """A chain whose operators are looked at whenever a watermark reaches them."""

    def __init__(self, graph: PhysicalGraph, chain: Chain, subtask: int | None, moves: list[str]) -> None:
        super().__init__(graph, chain, subtask)
        self._moves = moves
        """Where moves backwards are noted. Raised within a task they would pass for errors of the user's code."""

    def advance_of(self, operator: Operator) -> Callable[..., None]:
        """Pass watermarks on to an operator, and watch the operator's own."""
        advance = super().advance_of(operator)

        def watched(watermark: int | None, channel: str = "") -> None:
            before = operator.watermark
            advance(watermark, channel)
            if operator.watermark < before:
                subtask = "" if self.subtask is None else f"subtask {self.subtask} of "
                self._moves.append(f"{subtask}'{operator.uid}' went from {before} back to {operator.watermark}")

        return watched
