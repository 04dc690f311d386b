"""Sources that generate their records: a number sequence, and a function applied to one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.common.type_parameters import T_co
from penstock.connectors.source import Positions, Source
from penstock.errors import PenstockError

_LARGEST = 2**63 - 1


class _NumberedSource(Source[T_co]):
    """Base of sources that derive records from the integers `start` to `end`.

    A position is the range of the integers that are still to be read.
    """

    why = "it generates records from integers, and the checkpoint stores the next one of every split"

    def __init__(self, start: int, end: int) -> None:
        for name, number in (("start", start), ("end", end)):
            if type(number) is not int or not -_LARGEST - 1 <= number <= _LARGEST:
                raise PenstockError(f"NumberSequenceSource: {name} must be a 64-bit int, not {number!r}.")
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
        """Return the next positions, with the limit split evenly."""
        ahead = {}
        left = {split: range(*position) for split, position in positions.items()}
        # Shortest split first: the unused rest of its share goes to the others.
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
    """The integers from ``start`` to ``end``, both inclusive, in as many splits as the job's parallelism.

    Each split is a contiguous range in ascending order, so at parallelism 1 the whole stream is in order.
    """


class DataGeneratorSource(_NumberedSource[T_co]):
    """Generate records by calling ``function(n)`` for n = 0, 1, 2, …

    Args:
        function: Maps an integer to a record. It must be deterministic: after a failure it is called again.
        count: Number of records; unbounded if None.
        records_per_epoch: Records that an unbounded source generates in each epoch.
    """

    def __init__(
        self, function: Callable[[int], T_co], count: int | None = None, *, records_per_epoch: int = 1000
    ) -> None:
        if not callable(function):
            raise PenstockError(f"DataGeneratorSource needs a function of one int, not {type(function).__name__}.")
        for name, number in (("count", 1 if count is None else count), ("records_per_epoch", records_per_epoch)):
            if type(number) is not int or number < 1:
                raise PenstockError(f"DataGeneratorSource: {name} must be an int of at least 1, not {number!r}.")
        super().__init__(0, _LARGEST if count is None else count - 1)
        self._function = function
        self._records_per_epoch = records_per_epoch
        self.bounded = count is not None

    def start(self, parallelism: int) -> Positions:
        """Assign every p-th integer, starting at i, to split i of p, so an unbounded source starts with 0, 1, 2, …"""
        return {str(split): _position(range(split, self._last + 1, parallelism)) for split in range(parallelism)}

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        if not self.bounded:
            limit = self._records_per_epoch if limit is None else min(limit, self._records_per_epoch)
        return super().advance(positions, limit)

    def backlog(self, positions: Positions) -> int | None:
        """Return the records left, or None if unbounded: records are generated on demand, so none are waiting."""
        return super().backlog(positions) if self.bounded else None

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        return map(self._function, super().read(split, start, end))


def _position(numbers: range) -> list[int]:
    return [numbers.start, numbers.stop, numbers.step]


def _length(numbers: range) -> int:
    """Return the length of a range; len() fails on ranges longer than sys.maxsize."""
    return max(0, -((numbers.start - numbers.stop) // numbers.step))


__all__ = ["DataGeneratorSource", "NumberSequenceSource"]
