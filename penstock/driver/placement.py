"""Decides on which executor each subtask runs, so that a subtask returns to the replicas of its state.

Placement is a preference: Spark runs a task elsewhere if its executor is busy for too long or has died, and the result
is the same. Only the time differs, because another executor first replays what its replicas lack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple, TypeVar

from penstock.driver.standbys import Followed, assign_standbys
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.plan import Chain

T = TypeVar("T")


class Executor(NamedTuple):
    """An executor as placement sees it."""

    cores: int
    root: str
    """Where its replicas are. Executors with the same root share their replicas."""


class Placement:
    """The executor of each subtask, by level. Changes only if the executors or the parallelism change."""

    def __init__(self, standbys: int = 0) -> None:
        """`standbys`: how many further executors follow the state of each subtask."""
        self._count = standbys
        self._placed: dict[int, list[str]] = {}
        """By chain, the executors of its subtasks."""
        self._standbys: dict[int, list[list[str]]] = {}
        """By chain with keyed state, the executors that follow each subtask."""
        self._level: dict[int, int] = {}

    def place(
        self, graph: PhysicalGraph, executors: Mapping[str, Executor], joining: Container[str] = ()
    ) -> list[list[str]]:
        """Return the executors of the targets of each level after the first.

        A subtask stays where it is unless its executor is gone or has more than its share. If its executor is gone, it
        moves to one that has followed its state. After a change of the parallelism, a subtask begins where most of its
        key groups were.

        Args:
            graph: The graph at its current scale.
            executors: The executors by id. There is at least one.
            joining: Executors that only follow for now, if there are others.
        """
        load: Counter[str] = Counter()
        ready = {name: each for name, each in executors.items() if name not in joining} or executors
        placed = [self._place_level([graph.chains[each] for each in level], ready, load) for level in graph.levels[1:]]
        self._place_standbys(placed, executors)
        return placed

    def standbys(self, chain: int) -> Sequence[Sequence[str]]:
        """Return the executors that follow the state of each subtask of a chain."""
        return self._standbys.get(chain, ())

    def _place_level(self, chains: Sequence[Chain], executors: Mapping[str, Executor], load: Counter[str]) -> list[str]:
        before: list[str | None] = []
        warm: list[Sequence[str]] = []
        for chain in chains:
            before += _carried_over(self._placed.get(chain.id, ()), chain.parallelism, None)
            warm += _carried_over(self._standbys.get(chain.id, ()), chain.parallelism, ())
        placed = assign(before, {name: each.cores for name, each in executors.items()}, load, warm)
        load.update(placed)
        for chain in chains:
            own = slice(chain.first_target, chain.first_target + chain.parallelism)
            self._placed[chain.id] = placed[own]
            self._level[chain.id] = chain.level
            if self._count and _is_keyed(chain):
                # An executor that gave a subtask away has its replicas, so it is the best one to follow the subtask.
                self._standbys[chain.id] = [
                    [*([] if old is None or old == new else [old]), *followed]
                    for old, new, followed in zip(before[own], placed[own], warm[own], strict=True)
                ]
        return placed

    def _place_standbys(self, levels: Sequence[Sequence[str]], executors: Mapping[str, Executor]) -> None:
        """Choose the standbys of all subtasks together, to balance them."""
        found = assign_standbys(
            [
                Followed(self._level[chain], executor, before)
                for chain, standbys in self._standbys.items()
                for executor, before in zip(self._placed[chain], standbys, strict=True)
            ],
            Counter((number, executor) for number, level in enumerate(levels, start=1) for executor in level),
            {name: each.cores for name, each in executors.items()},
            {name: each.root for name, each in executors.items()},
            self._count,
        )
        rest = iter(found)
        for chain, before in self._standbys.items():
            self._standbys[chain] = [next(rest) for _ in before]


def _is_keyed(chain: Chain) -> bool:
    return any(each.keyed for each in chain.operators)


def _carried_over(before: Sequence[T], parallelism: int, none: T) -> list[T]:
    """Return what the subtask had that owned the middle of each subtask's key groups."""
    if not before:
        return [none] * parallelism
    return [before[(2 * subtask + 1) * len(before) // (2 * parallelism)] for subtask in range(parallelism)]


def assign(
    before: Sequence[str | None],
    executors: Mapping[str, int],
    load: Mapping[str, int],
    warm: Sequence[Sequence[str]] = (),
) -> list[str]:
    """Return an executor for each target of a level: the one it had, if that lives and has no more than its share.

    Shares are proportional to cores, rounded either way. Only the surplus moves. A target whose executor is gone moves
    to one that has followed its state, if any. Other targets without an executor follow their neighbor, because
    neighbors share blocks of state.

    Args:
        before: The executor that each target had, if any.
        executors: The number of cores by executor. There is at least one.
        load: The number of targets that other levels have on each executor. It decides between equals.
        warm: For each target, other executors with replicas of its state. Empty without standbys.
    """
    count = Counter(each for each in before if each in executors)
    share = len(before) / sum(executors.values())

    def fill(each: str) -> tuple[float, int, str]:
        return (count[each] + 1) / executors[each], load.get(each, 0), each

    def least_loaded() -> str:
        return min(executors, key=fill)

    def has_replicas(target: int, executor: str) -> bool:
        return bool(warm) and executor in warm[target]

    placed: list[str] = []
    for target, each in enumerate(before):
        if each is None or each not in executors:
            followed = [other for other in warm[target] if other in executors] if warm else []
            neighbor = placed[-1] if placed else ""
            has_room = neighbor != "" and count[neighbor] + 1 <= share * executors[neighbor]
            each = min(followed, key=fill) if followed else neighbor if has_room else least_loaded()
            count[each] += 1
        placed.append(each)
    while True:
        most, least = max(executors, key=lambda each: (count[each] / executors[each], each)), least_loaded()
        if count[most] / executors[most] <= (count[least] + 1) / executors[least]:
            return placed
        surplus = [target for target, each in enumerate(placed) if each == most]
        placed[max(surplus, key=lambda target: (has_replicas(target, least), target))] = least
        count[most] -= 1
        count[least] += 1
