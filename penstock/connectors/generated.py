"""Sources that make their records: a sequence of numbers, and what a function makes of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.connectors.source import Positions, Source
from penstock.errors import PenstockError

_LARGEST = 2**63 - 1


class NumberSequenceSource(Source):
    """The whole numbers from `start` to `end`, both included, in as many splits as the source is asked for.

    Each split is in order; with one split so is the stream.
    """

    def __init__(self, start: int, end: int, splits: int = 1) -> None:
        for name, number in (("start", start), ("end", end)):
            if type(number) is not int or not -_LARGEST - 1 <= number <= _LARGEST:
                raise PenstockError(f"NumberSequenceSource: {name} must be a whole number of 64 bits, not {number!r}.")
        if start > end:
            raise PenstockError(f"NumberSequenceSource: start {start} is after end {end}.")
        if type(splits) is not int or splits < 1:
            raise PenstockError(f"NumberSequenceSource: splits must be a whole number of at least 1, not {splits!r}.")
        self._bounds = list(_cut(start, end + 1, splits))

    def start(self) -> Positions:
        return {str(number): first for number, (first, _) in enumerate(self._bounds)}

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        """A position is the next number. Splits share the limit evenly."""
        if positions.keys() != self.start().keys():
            raise PenstockError(
                f"{type(self).__name__} has {len(self._bounds)} splits, but the checkpoint was made with "
                f"{len(positions)}. Give it splits={len(positions)}, or start afresh under another job name."
            )
        ends = {}
        left = [(str(n), last - positions[str(n)]) for n, (_, last) in enumerate(self._bounds)]
        # The shortest first, so that what they leave of their shares goes to the others.
        for place, (split, remaining) in enumerate(sorted(left, key=lambda each: each[1])):
            share = remaining if limit is None else min(remaining, -(-limit // (len(left) - place)))
            ends[split] = positions[split] + share
            limit = None if limit is None else limit - share
        return {split: ends[split] for split, _ in left}

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        return range(start, end)


class DataGeneratorSource(NumberSequenceSource):
    """`function(n)` for n = 0, 1, 2, …: `count` records, or without end if `count` is None.

    `records_per_epoch` paces an endless one: every epoch has that many.
    """

    def __init__(
        self,
        function: Callable[[int], Any],
        count: int | None = None,
        *,
        records_per_epoch: int = 1000,
        splits: int = 1,
    ) -> None:
        if not callable(function):
            raise PenstockError(f"DataGeneratorSource needs a function of one number, not {type(function).__name__}.")
        if count is not None and (type(count) is not int or count < 1):
            raise PenstockError(f"DataGeneratorSource: count must be a whole number of at least 1, not {count!r}.")
        super().__init__(0, (_LARGEST if count is None else count) - 1, splits)
        self._function = function
        self._records_per_epoch = records_per_epoch
        self.bounded = count is not None

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        if not self.bounded:
            limit = self._records_per_epoch if limit is None else min(limit, self._records_per_epoch)
        return super().advance(positions, limit)

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        return map(self._function, range(start, end))


def _cut(start: int, end: int, parts: int) -> Iterator[tuple[int, int]]:
    """[start, end) in even runs; fewer than `parts` where there are not enough numbers."""
    parts = min(parts, end - start)
    size, longer = divmod(end - start, parts)
    for number in range(parts):
        after = start + size + (number < longer)
        yield start, after
        start = after


__all__ = ["DataGeneratorSource", "NumberSequenceSource"]
