"""Checks that watermarks never move backwards: within tasks, in their reports, and between checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.graph.physical import PhysicalGraph
from penstock.runtime.chain import ChainRun
from penstock.runtime.operators import Operator
from penstock.runtime.plan import Chain


class WatermarkMovedBackwards(AssertionError):
    """A watermark decreased. This is a bug in Penstock, not in the program under test."""

    def __init__(self, moves: Iterable[str]) -> None:
        super().__init__(f"A watermark moved backwards: {'; '.join(moves)}.")


class WatchedRun(ChainRun):
    """A chain run that checks each operator whenever a watermark reaches it."""

    def __init__(self, graph: PhysicalGraph, chain: Chain, subtask: int | None, moves: list[str]) -> None:
        super().__init__(graph, chain, subtask)
        self._moves = moves
        """Collects backward moves. An exception inside a task would look like an error of the user's code."""

    def advance_of(self, operator: Operator) -> Callable[..., None]:
        """Return a function that passes watermarks to an operator and checks the operator's own watermark."""
        advance = super().advance_of(operator)

        def watched(watermark: int | None, channel: str = "") -> None:
            before = operator.watermark
            advance(watermark, channel)
            if operator.watermark < before:
                subtask = "" if self.subtask is None else f"subtask {self.subtask} of "
                self._moves.append(f"{subtask}'{operator.uid}' went from {before} back to {operator.watermark}")

        return watched
