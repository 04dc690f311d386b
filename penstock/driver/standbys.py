"""Decides which executors follow the state of each subtask, so that one of them can take over without a rebuild."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Followed(NamedTuple):
    """A subtask whose state standbys follow."""

    level: int
    executor: str
    """The executor that runs it."""
    before: Sequence[str]
    """The executors that have replicas of its state, the best one first."""


def assign_standbys(
    subtasks: Sequence[Followed],
    load: Mapping[tuple[int, str], int],
    executors: Mapping[str, int],
    roots: Mapping[str, str],
    count: int,
) -> list[list[str]]:
    """Return the executors that follow each subtask, at most `count`, the best one first.

    A standby keeps its replicas in another root than the subtask and its other standbys. If an executor dies, each of
    its subtasks can move to a standby, and the others have their share of each level. An executor that followed a
    subtask goes on unless that breaks these rules, or it would follow more than its share.

    Args:
        subtasks: The subtasks to follow.
        load: The number of targets that each executor has in each level.
        executors: The number of cores by executor.
        roots: Where the replicas of each executor are.
        count: The number of standbys per subtask.
    """
    cores = sum(executors.values())
    most = {each: -(-len(subtasks) * count * own // cores) for each, own in executors.items()}
    targets: Counter[int] = Counter()
    for (level, _), number in load.items():
        targets[level] += number
    followed: Counter[str] = Counter()
    taken_over: Counter[tuple[int, str, str]] = Counter()
    """By level, executor and standby, how many subtasks the standby takes over if the executor dies."""
    found: list[list[str]] = [[] for _ in subtasks]

    def can_follow(subtask: int, executor: str) -> bool:
        taken = {roots[each] for each in (subtasks[subtask].executor, *found[subtask])}
        return len(found[subtask]) < count and executor in executors and roots[executor] not in taken

    def after_a_death(subtask: int, executor: str) -> int:
        """Return how many targets of the level `executor` has if it takes over this one, too."""
        level, dying, _ = subtasks[subtask]
        return load.get((level, executor), 0) + taken_over[level, dying, executor] + 1

    def goes_on(subtask: int, executor: str) -> bool:
        level, dying, _ = subtasks[subtask]
        share = -(-targets[level] * executors[executor] // (cores - executors[dying]))
        return followed[executor] < most[executor] and after_a_death(subtask, executor) <= share

    def follow(subtask: int, executor: str) -> None:
        found[subtask].append(executor)
        followed[executor] += 1
        taken_over[subtasks[subtask].level, subtasks[subtask].executor, executor] += 1

    # A subtask that has just moved has one candidate more, and chooses first: its former executor is up to date.
    for subtask in sorted(range(len(subtasks)), key=lambda each: -len(subtasks[each].before)):
        for executor in subtasks[subtask].before:
            if can_follow(subtask, executor) and goes_on(subtask, executor):
                follow(subtask, executor)
    for subtask in range(len(subtasks)):
        while others := [each for each in executors if can_follow(subtask, each)]:
            follow(
                subtask,
                min(
                    others,
                    key=lambda each: (
                        after_a_death(subtask, each) / executors[each],
                        (followed[each] + 1) / executors[each],
                        each,
                    ),
                ),
            )
    return found
