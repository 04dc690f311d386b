"""Decides on which executor each subtask runs, so that a subtask returns to the replicas of its state.

Placement is a preference: Spark runs a task elsewhere if its executor is busy for too long or has died, and the result
is the same. Only the time differs, because another executor first replays what its replicas lack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from penstock.graph.physical import PhysicalGraph
from penstock.runtime.plan import Chain


class Placement:
    """The executor of each subtask, by level. Changes only if the executors or the parallelism change."""

    def __init__(self) -> None:
        self._placed: dict[int, list[str]] = {}
        """By chain, the executors of its subtasks."""

    def place(self, graph: PhysicalGraph, executors: Mapping[str, int]) -> list[list[str]]:
        """Return the executors of the targets of each level after the first.

        A subtask stays where it is unless its executor is gone or has more than its share. After a change of the
        parallelism, a subtask begins where most of its key groups were.

        Args:
            graph: The graph at its current scale.
            executors: The number of cores by executor. There is at least one.
        """
        load: Counter[str] = Counter()
        return [
            self._place_level([graph.chains[each] for each in level], executors, load) for level in graph.levels[1:]
        ]

    def _place_level(self, chains: Sequence[Chain], executors: Mapping[str, int], load: Counter[str]) -> list[str]:
        before = [each for chain in chains for each in _carried_over(self._placed.get(chain.id, ()), chain.parallelism)]
        placed = assign(before, executors, load)
        load.update(placed)
        for chain in chains:
            self._placed[chain.id] = placed[chain.first_target : chain.first_target + chain.parallelism]
        return placed


def _carried_over(before: Sequence[str], parallelism: int) -> list[str | None]:
    """Return the executor that ran the subtask which owned the middle of each subtask's key groups."""
    if not before:
        return [None] * parallelism
    return [before[(2 * subtask + 1) * len(before) // (2 * parallelism)] for subtask in range(parallelism)]


def assign(before: Sequence[str | None], executors: Mapping[str, int], load: Mapping[str, int]) -> list[str]:
    """Return an executor for each target of a level: the one it had, if that lives and has no more than its share.

    Shares are proportional to cores, rounded either way. Only the surplus moves. Targets without an executor follow
    their neighbor, because neighbors share blocks of state.

    Args:
        before: The executor that each target had, if any.
        executors: The number of cores by executor. There is at least one.
        load: The number of targets that other levels have on each executor. It decides between equals.
    """
    count = Counter(each for each in before if each in executors)
    share = len(before) / sum(executors.values())

    def least_loaded() -> str:
        return min(executors, key=lambda each: ((count[each] + 1) / executors[each], load.get(each, 0), each))

    placed: list[str] = []
    for each in before:
        if each is None or each not in executors:
            neighbor = placed[-1] if placed else ""
            has_room = neighbor != "" and count[neighbor] + 1 <= share * executors[neighbor]
            each = neighbor if has_room else least_loaded()
            count[each] += 1
        placed.append(each)
    while True:
        most, least = max(executors, key=lambda each: (count[each] / executors[each], each)), least_loaded()
        if count[most] / executors[most] <= (count[least] + 1) / executors[least]:
            return placed
        placed[len(placed) - 1 - placed[::-1].index(most)] = least
        count[most] -= 1
        count[least] += 1
