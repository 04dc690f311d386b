"""Sources that are read one after the other: for example files, and then the topic that continues them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.connectors.dead_letters import LetterBox
from penstock.connectors.source import Positions, Source
from penstock.errors import PenstockError

_SEPARATOR = "/"


class HybridSource(Source):
    """Read several sources, each from the end of the previous one. All but the last are bounded.

    Create one with ``HybridSource.builder(first)``. A split has the number of its source in front of its name; the
    source that is being read is the last one that has splits.

    Example:
        >>> source = HybridSource.builder(files).add_source(topic).build()
    """

    def __init__(self, sources: list[Source[Any]]) -> None:
        self._sources = sources
        self.bounded = sources[-1].bounded
        self.may_end = sources[-1].may_end
        self.replayable = all(source.replayable for source in sources)
        weakest = next((source for source in sources if not source.replayable), sources[-1])
        self.why = weakest.why
        self.gives_time = any(source.gives_time for source in sources)
        self._parallelism = 1

    @staticmethod
    def builder(first_source: Source[Any]) -> HybridSourceBuilder:
        """Return a builder.

        Args:
            first_source: The source to read first. It must be bounded unless it is the only one.
        """
        return HybridSourceBuilder().add_source(first_source)

    def start(self, parallelism: int) -> Positions:
        """Return the initial positions of the first source."""
        self._parallelism = parallelism
        return self._begun(0)

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        """Return how far the next epoch reads. The epoch in which a source begins reads nothing."""
        number = self._current(positions)
        own = _own(positions, number)
        ahead = self._sources[number].advance(own, limit)
        if ahead == own and number + 1 < len(self._sources):
            # The positions of the source that has ended stay.
            return positions | self._begun(number + 1)
        changed = {split: position for split, position in ahead.items() if split not in own or own[split] != position}
        return positions | _named(number, _AT, changed)

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        """Yield the records of a split of one of the sources."""
        number, _, name = split.partition(_SEPARATOR)
        step, position = end
        if step == _BEGUN:
            return ()
        return self._sources[int(number)].read(name, None if start is None else start[1], position)

    def ends(self, split: str, position: Any) -> bool:
        """Return whether the split is exhausted."""
        number, _, name = split.partition(_SEPARATOR)
        return name == _FIRST or self._sources[int(number)].ends(name, position[1])

    def use_letter_box(self, letters: LetterBox) -> None:
        """Set the letter box of all sources."""
        super().use_letter_box(letters)
        for source in self._sources:
            source.use_letter_box(letters)

    def without_time(self) -> HybridSource:
        """Return the source for a job that does not derive watermarks from timestamps."""
        return HybridSource([source.without_time() for source in self._sources])

    def backlog(self, positions: Positions) -> int | None:
        """Return the number of records that wait in the current source."""
        number = self._current(positions)
        return self._sources[number].backlog(_own(positions, number))

    def commit(self, positions: Positions) -> None:
        """Release data of the current source."""
        number = self._current(positions)
        self._sources[number].commit(_own(positions, number))

    def close(self) -> None:
        """Release the resources of all sources."""
        for source in self._sources:
            source.close()

    def _begun(self, number: int) -> Positions:
        # A source can begin without splits, so it has one more, without records.
        begun = {_FIRST: None} | self._sources[number].start(self._parallelism)
        return _named(number, _BEGUN, begun)

    def _current(self, positions: Positions) -> int:
        return max((int(split.partition(_SEPARATOR)[0]) for split in positions), default=0)


_FIRST = ""
"""The name of the split that shows that a source has begun."""
_BEGUN, _AT = "begun", "at"
"""A position is a pair: whether it is where the source began or how far it was read, and the source's own position."""


def _named(number: int, step: str, positions: Positions) -> Positions:
    return {f"{number}{_SEPARATOR}{split}": [step, position] for split, position in positions.items()}


def _own(positions: Positions, number: int) -> Positions:
    """Return the positions of one source."""
    prefix = f"{number}{_SEPARATOR}"
    return {
        split.removeprefix(prefix): position[1]
        for split, position in positions.items()
        if split.startswith(prefix) and split != f"{prefix}{_FIRST}"
    }


class HybridSourceBuilder:
    """Builds a ``HybridSource``."""

    def __init__(self) -> None:
        self._sources: list[Source[Any]] = []

    def add_source(self, source: Source[Any]) -> HybridSourceBuilder:
        """Add the source that follows.

        Raises:
            PenstockError: If it is not a source, or the one before it is unbounded.
        """
        if not isinstance(source, Source):
            raise PenstockError(f"A HybridSource needs sources, not {type(source).__name__}.")
        if self._sources and not self._sources[-1].bounded:
            raise PenstockError(
                f"A HybridSource cannot read {type(source).__name__} after {type(self._sources[-1]).__name__}, which "
                f"is unbounded.",
                fix="Make the first one bounded, or merge both streams with ds.union(other).",
            )
        self._sources.append(source)
        return self

    def build(self) -> HybridSource:
        """Return the source."""
        return HybridSource(list(self._sources))
