"""Combines operator state from the reports of subtasks, and redistributes it for any parallelism."""

from __future__ import annotations

from typing import TypeVar

from penstock.state.key_groups import owner_of
from penstock.state.shares import BROADCAST, GROUPED, UNION, Share, Shares, group_of

T = TypeVar("T")


def redistribute(shares: list[list[T]], parallelism: int) -> list[list[T]]:
    """Return the shares unchanged if the parallelism is the same; otherwise split all elements into even runs.

    Elements keep their order, and longer runs come first: [[1, 2, 3], [4, 5]] over three is [1, 2], [3, 4], [5].
    """
    if len(shares) == parallelism:
        return shares
    elements = [element for share in shares for element in share]
    size, longer = divmod(len(elements), parallelism)
    runs, start = [], 0
    for number in range(parallelism):
        end = start + size + (number < longer)
        runs.append(elements[start:end])
        start = end
    return runs


def share_of(shares: Shares, subtask: int, parallelism: int, max_parallelism: int) -> Share:
    """Return the share of a stored state for one of `parallelism` subtasks."""
    elements = _elements(shares, subtask, parallelism, max_parallelism)
    return Share(mode=shares.mode, schema=shares.schema, elements=elements, migrations=shares.migrations)


def _elements(shares: Shares, subtask: int, parallelism: int, max_parallelism: int) -> list[bytes]:
    stored = shares.by_subtask
    if shares.mode == BROADCAST:
        return stored[subtask % len(stored)] if stored else []
    if shares.mode == UNION:
        return [element for share in stored for element in share]
    if shares.mode == GROUPED:
        return [
            element
            for share in stored
            for element in share
            if owner_of(group_of(element), parallelism, max_parallelism) == subtask
        ]
    return redistribute(stored, parallelism)[subtask]


def reported_by(shares: Shares, subtask: int, parallelism: int) -> list[bytes] | None:
    """Return the elements that a subtask reported for a stored state; None if the parallelism was different."""
    stored = shares.by_subtask
    if shares.mode == BROADCAST and len(stored) == 1:
        return stored[0]
    return stored[subtask] if len(stored) == parallelism else None


def to_be_shared(shares: Shares) -> bool:
    """Return whether all subtasks must receive the state, even those that reported it.

    This holds for a union list, because it contains elements of other subtasks. All subtasks need it, not only those
    that moved to another worker: each one selects its part of the union by the function's own rule, and must pick up
    the elements that others leave.
    """
    return shares.mode == UNION and len(shares.by_subtask) > 1 and any(shares.by_subtask)


def add_report(states: dict[str, Shares], reported: dict[str, Share], subtask: int, parallelism: int) -> None:
    """Add a subtask's report of an operator's states to those of the others."""
    for name, share in reported.items():
        known = states.get(name)
        if known is None:
            known = states[name] = Shares(
                mode=share.mode,
                schema=share.schema,
                by_subtask=[[] for _ in range(parallelism)],
                migrations=share.migrations,
            )
        known.by_subtask[subtask] = share.elements


def stored_once(states: dict[str, Shares]) -> dict[str, Shares]:
    """Return the states with a single copy of each broadcast state that all subtasks agree on."""
    return {
        name: Shares(
            mode=shares.mode, schema=shares.schema, by_subtask=shares.by_subtask[:1], migrations=shares.migrations
        )
        if shares.mode == BROADCAST and all(each == shares.by_subtask[0] for each in shares.by_subtask)
        else shares
        for name, shares in states.items()
    }


def sizes(states: dict[str, Shares]) -> dict[str, int]:
    """Return the bytes of all elements, by state."""
    return {
        name: sum(len(element) for share in shares.by_subtask for element in share) for name, shares in states.items()
    }
