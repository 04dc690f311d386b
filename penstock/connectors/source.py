"""The contract of a source in Python: splits, each read from position to position.

A split is a part of the source that is read in order, such as a partition of a topic or a range of numbers. Its name
identifies it for good: event time is tracked per split. The positions of an epoch are fixed, and logged, before it
runs, so that it can be run again.
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
"""By split: how far it has been read. A position is anything JSON can hold: a number, a string, a list or dict."""


class Source(ABC, Generic[T_co]):
    """A source of records of one type, `class Numbers(Source[int])`. Pickled into the job.

    Order of calls: in the planner, a process apart from the driver, `start` when the job has no checkpoint, then
    `advance` and perhaps `backlog` before every epoch, and `commit` when an epoch is complete. In the tasks `read`, for
    every split whose position has changed, in any process, again after a failure. `close` where either ends.
    """

    bounded = True
    """Whether it comes to an end: when `advance` gives back what it was given, no record will follow."""
    may_end = False
    """Of one that is not bounded: whether it may come to an end after all, when `ends` is true of all its splits."""
    replayable = True
    """Whether `read` can give an epoch's records again after a failure, in another process. If not, they are lost."""
    why = "its positions are in every checkpoint, and it reads again from there"
    """Why it is replayable or not: a sentence for `penstock info`."""
    not_throttled = ""
    """Why `advance` cannot obey its limit, for `penstock info`; empty where it does."""
    gives_time = False
    """Whether `read` gives `Timestamped` records, and `Watermark`s between them."""
    letters: LetterBox | None = None
    """Given to `use_letter_box` where it is read; `unreadable` is what a source uses of it."""

    def start(self, parallelism: int) -> Positions:
        """Where reading begins; a split that is not in it begins at None. `parallelism`: how many splits are of use."""
        return {}

    @abstractmethod
    def advance(self, positions: Positions, limit: int | None) -> Positions:
        """How far the next epoch reads: the positions of all splits, new ones too; the same for nothing new.

        Where it can, an epoch should have at most `limit` records. Must not wait for records to come.
        """

    @abstractmethod
    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        """The records of a split after `start`, up to `end`: the same, in the same order, whenever it is called.

        In the place of one that cannot be decoded it gives what `unreadable` returns.
        """

    def unreadable(self, split: str, position: str, raw: bytes | str, reason: str | Exception) -> DeadLetter:
        """For `read`, which must give what this returns: `yield self.unreadable(split, "offset 17", data, error)`.

        `raw` is the record as it came, `position` says where in the split it is, `reason` what is wrong with it. Where
        the program did not ask for dead letters, this raises UnreadableRecord, which names them all.
        """
        return self.letter_box().letter(split, position, raw, reason)

    def use_letter_box(self, letters: LetterBox) -> None:
        """Called before the first `read`, by the task that reads: where `unreadable` puts records."""
        self.letters = letters

    def letter_box(self) -> LetterBox:
        """The box that it was given; without one, a box that names its class and takes no letters."""
        if self.letters is None:
            self.letters = LetterBox(type(self).__name__)
        return self.letters

    def without_time(self) -> Source[T_co]:
        """The source for a job in which nobody makes watermarks of timestamps: it may then leave them out.

        Each costs: records go on one by one, and exchanges write their times beside them.
        """
        return self

    def backlog(self, positions: Positions) -> int | None:
        """How many records wait behind these positions, as far as can be told at little cost; None if it cannot.

        Called in the planner after each `advance` that found something, in jobs with flow control: the fuller of two
        sources is given more credits.
        """
        return None

    def ends(self, split: str, position: Any) -> bool:
        """Whether nothing will follow in this split: then event time does not wait for it any more."""
        return False

    def commit(self, positions: Positions) -> None:
        """A checkpoint holds these positions: nothing before them will be read again. May be called late or never."""

    def close(self) -> None:
        """Release what the source holds in this process."""


def at_end(source: Source, positions: Positions) -> bool:
    """Whether a source that is not bounded has come to an end."""
    return source.may_end and bool(positions) and all(source.ends(split, at) for split, at in positions.items())


class SplitRange(NamedTuple):
    """What of one split an epoch reads. Positions are JSON text: so they travel, and so they are logged."""

    split: str
    start: str
    end: str


def ranges(start: Positions, end: Positions) -> list[SplitRange]:
    """Every split whose position changes."""
    return [
        SplitRange(split, json.dumps(start.get(split)), json.dumps(position))
        for split, position in end.items()
        if start.get(split) != position
    ]


def read_split(source: Source, split: str, start: str, end: str) -> Iterator[OfSplit]:
    """The records of a range, in chunks, and whether the split ends with them."""
    position = json.loads(end)
    yield from source.letter_box().chunks(split, iter(source.read(split, json.loads(start), position)))
    if source.ends(split, position):
        yield OfSplit(split, [], ended=True)
