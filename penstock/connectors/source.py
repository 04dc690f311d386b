"""The contract of a Python source: splits, each read from one position to the next.

A split is a part of the source that is read in order, such as a topic partition or a range of numbers. Its name
identifies it permanently, because event time is tracked per split. The positions of an epoch are determined and logged
before it runs, so that it can be replayed.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeAlias

from penstock.common.type_parameters import T_co
from penstock.connectors.dead_letters import DeadLetter, LetterBox
from penstock.runtime.moment import OfSplit

Positions: TypeAlias = dict[str, Any]
"""Position by split. A position is any JSON value: a number, a string, a list or a dict."""


class Source(ABC, Generic[T_co]):
    """Base class of sources with records of one type, such as ``class Numbers(Source[int])``. Pickled into the job.

    The planner, a process separate from the driver, calls ``start`` if the job has no checkpoint, then ``advance`` and
    possibly ``backlog`` before every epoch, and ``commit`` after a complete epoch. Tasks call ``read`` for every split
    whose position has changed, in any process, and again after a failure. Both call ``close`` at the end.
    """

    bounded = True
    """Whether the source ends: once ``advance`` returns its input positions unchanged, no record follows."""
    may_end = False
    """Whether an unbounded source can end nevertheless, once ``ends`` is true for all of its splits."""
    replayable = True
    """Whether ``read`` can replay an epoch's records after a failure, in another process. If not, they are lost."""
    why = "every checkpoint stores its positions, and it reads again from there"
    """Why the source is or is not replayable, as a sentence for ``penstock info``."""
    not_throttled = ""
    """Why ``advance`` cannot obey its limit, for ``penstock info``; empty if it does."""
    gives_time = False
    """Whether ``read`` yields ``Timestamped`` records, with ``Watermark`` elements between them."""
    produced_type: Any = None
    """The type of the records, for a source that knows it."""
    letters: LetterBox | None = None
    """The letter box of the task that reads; sources call ``unreadable`` instead."""

    def start(self, parallelism: int) -> Positions:
        """Return the initial positions; missing splits start at None. ``parallelism``: the useful number of splits."""
        return {}

    @abstractmethod
    def advance(self, positions: Positions, limit: int | None) -> Positions:
        """Return how far the next epoch reads: the positions of all splits, including new ones.

        Must not wait for records.

        Args:
            positions: The positions reached so far. Return them unchanged if there is nothing new.
            limit: Maximum number of records of the epoch, to obey if possible; None for no limit.
        """

    @abstractmethod
    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        """Yield the records of a split after ``start``, up to ``end``: always the same records in the same order.

        For a record that cannot be decoded, yield the result of ``unreadable`` instead.
        """

    def unreadable(self, split: str, position: str, raw: bytes | str, reason: str | Exception) -> DeadLetter:
        """Return the element that ``read`` must yield in place of a record that it cannot decode.

        Args:
            split: The split.
            position: Where in the split the record is, in words.
            raw: The undecoded record.
            reason: Why the record cannot be decoded.

        Raises:
            UnreadableRecord: The program does not collect dead letters. The message contains all arguments.

        Example:
            ``yield self.unreadable(split, "offset 17", data, error)``
        """
        return self.letter_box().letter(split, position, raw, reason)

    def use_letter_box(self, letters: LetterBox) -> None:
        """Set the letter box that ``unreadable`` uses. The reading task calls this before the first ``read``."""
        self.letters = letters

    def letter_box(self) -> LetterBox:
        """Return the letter box; if unset, create one that raises, named after the class."""
        if self.letters is None:
            self.letters = LetterBox(type(self).__name__)
        return self.letters

    def without_time(self) -> Source[T_co]:
        """Return the source for a job that does not derive watermarks from timestamps; it can omit them.

        Timestamps are expensive: records are processed one by one, and exchanges write the time of each record.
        """
        return self

    def backlog(self, positions: Positions) -> int | None:
        """Return the number of records waiting after ``positions``; None if unknown or expensive to find out.

        Called in the planner after each ``advance`` that found records, in jobs with flow control: the source with the
        larger backlog receives more credits.
        """
        return None

    def ends(self, split: str, position: Any) -> bool:
        """Return whether the split is exhausted at ``position``; event time then no longer waits for it."""
        return False

    def commit(self, positions: Positions) -> None:
        """Release data before ``positions``: a checkpoint holds them. Calls can come late or not at all."""

    def close(self) -> None:
        """Release the resources of the source in this process."""


def at_end(source: Source, positions: Positions) -> bool:
    """Return whether an unbounded source has ended."""
    return source.may_end and bool(positions) and all(source.ends(split, at) for split, at in positions.items())


class SplitRange(NamedTuple):
    """The range of one split that an epoch reads. Positions are JSON text, for transfer and logging."""

    split: str
    start: str
    end: str


def ranges(start: Positions, end: Positions) -> list[SplitRange]:
    """Return the ranges of all splits whose position changes."""
    return [
        SplitRange(split, json.dumps(start.get(split)), json.dumps(position))
        for split, position in end.items()
        if start.get(split) != position
    ]


def read_split(source: Source, split: str, start: str, end: str) -> Iterator[OfSplit]:
    """Yield the records of a range in chunks, then an end marker if the split ends there."""
    position = json.loads(end)
    yield from source.letter_box().chunks(split, iter(source.read(split, json.loads(start), position)))
    if source.ends(split, position):
        yield OfSplit(split, [], ended=True)
