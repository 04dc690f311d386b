"""How operator state is dealt out when the parallelism changes."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def redistribute(shares: list[list[T]], parallelism: int) -> list[list[T]]:
    """The same shares if there are as many subtasks as before; else all elements in order, in even runs.

    Of runs that cannot be even the first are longer by one: [[1, 2, 3], [4, 5]] over three is [1, 2], [3, 4], [5].
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
