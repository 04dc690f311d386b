"""Exchanges that do not go by key: where the next record goes.

Whatever they choose depends only on the records and the producer's number, never on chance or time: a retried task
must send the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import PenstockError
from penstock.runtime.exchange import Exchange, Outlet
from penstock.runtime.failures import Blamed, Party


class RoundRobinExchange(Exchange):
    """One target after the other, over all of them (rebalance) or over this producer's share (rescale).

    Starts at the producer's own number, so that small epochs spread too.
    """

    def __init__(self, outlet: Outlet, targets: range, start: int) -> None:
        super().__init__(outlet)
        self._targets = targets
        self._next = start % len(targets)

    def process(self, value: Any) -> None:
        index = self._targets[self._next]
        self._next = (self._next + 1) % len(self._targets)
        self._add(index, self._held(value))


def share_of(producer: int, producers: int, targets: int) -> range:
    """The targets that one of several producers feeds in a rescale: neighbours, each fed by as few as possible."""
    if targets >= producers:
        return range(producer * targets // producers, (producer + 1) * targets // producers)
    first = producer * targets // producers
    return range(first, first + 1)


class SingleExchange(Exchange):
    """To one target: the subtask of the same number (forward), or the first (global)."""

    def __init__(self, outlet: Outlet, index: int) -> None:
        super().__init__(outlet)
        self._index = index

    def process(self, value: Any) -> None:
        self._add(self._index, self._held(value))


class BroadcastExchange(Exchange):
    """To every target."""

    def process(self, value: Any) -> None:
        held = self._held(value)
        for index in range(len(self._hops)):
            self._add(index, held)


class ShuffleExchange(Exchange):
    """Evenly, in no order anyone could rely on: a sequence that looks random and is the same at each attempt."""

    def __init__(self, outlet: Outlet, producer: int) -> None:
        super().__init__(outlet)
        self._state = producer + 1

    def process(self, value: Any) -> None:
        # A linear congruential generator (Knuth's MMIX constants); its high bits are the good ones.
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
        self._add((self._state >> 33) % len(self._hops), self._held(value))


class BadPartition(PenstockError):
    """A partitioner returned something that is no target."""


class CustomExchange(Exchange):
    """Where the user's partitioner says: `partition(key, number of targets)`."""

    def __init__(
        self, outlet: Outlet, select: Callable[[Any], Any], partition: Callable[[Any, int], int], user: Party
    ) -> None:
        super().__init__(outlet)
        self._select = select
        self._partition = partition
        self._user = user

    def process(self, value: Any) -> None:
        count = len(self._hops)
        try:
            index = self._partition(self._select(value), count)
            if type(index) is not int or not 0 <= index < count:
                raise BadPartition(
                    f"The partitioner gave {index!r} for {count} partitions; it must give an int from 0 to {count - 1}."
                )
        except Exception as error:  # user code may raise anything
            raise Blamed(self._user) from error
        self._add(index, self._held(value))
