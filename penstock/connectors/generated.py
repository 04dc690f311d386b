"""Sources that make their records: a sequence of numbers, and what a function makes of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.common.type_parameters import T_co
from penstock.connectors.source import Positions, Source
from penstock.errors import PenstockError

_LARGEST = 2**63 - 1


class _NumberedSource(Source[T_co]):
    """Records made of the whole numbers from `start` to `end`. A position is the range of the numbers that are left."""

    why = "its records are made of numbers, and the checkpoint has the next one of every split"

    def __init__(self, start: int, end: int) -> None:
        for name, number in (("start", start), ("end", end)):
            if type(number) is not int or not -_LARGEST - 1 <= number <= _LARGEST:
                raise PenstockError(f"NumberSequenceSource: {name} must be a whole number of 64 bits, not {number!r}.")
        if start > end:
            raise PenstockError(f"NumberSequenceSource: start {start} is after end {end}.")
        self._first, self._last = start, end

    def start(self, parallelism: int) -> Positions:
        numbers = range(self._first, self._last + 1)
        size, longer = divmod(self._last + 1 - self._first, parallelism)
        positions, first = {}, 0
        for split in range(parallelism):
            end = first + size + (split < longer)
            positions[str(split)] = _position(numbers[first:end])
            first = end
        return positions

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        """Splits share the limit evenly."""
        ahead = {}
        left = {split: range(*position) for split, position in positions.items()}
        # The shortest first, so that what they leave of their shares goes to the others.
        for place, (split, numbers) in enumerate(sorted(left.items(), key=lambda each: _length(each[1]))):
            share = _length(numbers)
            if limit is not None:
                share = min(share, -(-limit // (len(left) - place)))
                limit -= share
            ahead[split] = _position(numbers[share:])
        return {split: ahead[split] for split in positions}

    def backlog(self, positions: Positions) -> int | None:
        return sum(_length(range(*position)) for position in positions.values())

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        return range(start[0], end[0], start[2])

    def ends(self, split: str, position: Any) -> bool:
        return _length(range(*position)) == 0


class NumberSequenceSource(_NumberedSource[int]):
    """The whole numbers from `start` to `end`, both included, in as many splits as the job's parallelism.

    Each split is a run of numbers in order; at parallelism 1 so is the stream.
    """


class DataGeneratorSource(_NumberedSource[T_co]):
    """`function(n)` for n = 0, 1, 2, …: `count` records, or without end if `count` is None.

    `records_per_epoch` paces an endless one: every epoch has that many.
    """

    def __init__(
        self, function: Callable[[int], T_co], count: int | None = None, *, records_per_epoch: int = 1000
    ) -> None:
        if not callable(function):
            raise PenstockError(f"DataGeneratorSource needs a function of one number, not {type(function).__name__}.")
        for name, number in (("count", 1 if count is None else count), ("records_per_epoch", records_per_epoch)):
            if type(number) is not int or number < 1:
                raise PenstockError(f"DataGeneratorSource: {name} must be a whole number from 1 on, not {number!r}.")
        super().__init__(0, _LARGEST if count is None else count - 1)
        self._function = function
        self._records_per_epoch = records_per_epoch
        self.bounded = count is not None

    def start(self, parallelism: int) -> Positions:
        """Split i of p has every p-th number from i on, so that an endless source begins with 0, 1, 2, …"""
        return {str(split): _position(range(split, self._last + 1, parallelism)) for split in range(parallelism)}

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        if not self.bounded:
            limit = self._records_per_epoch if limit is None else min(limit, self._records_per_epoch)
        return super().advance(positions, limit)

    def backlog(self, positions: Positions) -> int | None:
        """In one without end nothing waits: it makes what an epoch is to have."""
        return super().backlog(positions) if self.bounded else None

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        return map(self._function, super().read(split, start, end))


def _position(numbers: range) -> list[int]:
    return [numbers.start, numbers.stop, numbers.step]


def _length(numbers: range) -> int:
    """len() of a range of 64-bit numbers does not fit what len() may return."""
    return max(0, -((numbers.start - numbers.stop) // numbers.step))


__all__ = ["DataGeneratorSource", "NumberSequenceSource"]
