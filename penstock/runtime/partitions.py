"""Exchanges that choose a target without a key.

The choice depends only on the records and the producer's index, never on randomness or time: a retried task must send
the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import PenstockError
from penstock.runtime.exchange import Exchange, Outlet
from penstock.runtime.failures import Blamed, Party


class RoundRobinExchange(Exchange):
    """Sends to one target after the other, over all targets (rebalance) or over this producer's share (rescale).

    Starts at the producer's own index, to spread small epochs too.
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
    """Return the targets that a producer feeds in a rescale: adjacent ones, each fed by few producers."""
    if targets >= producers:
        return range(producer * targets // producers, (producer + 1) * targets // producers)
    first = producer * targets // producers
    return range(first, first + 1)


class SingleExchange(Exchange):
    """Sends to one target: the subtask with the same index (forward), or the first (global)."""

    def __init__(self, outlet: Outlet, index: int) -> None:
        super().__init__(outlet)
        self._index = index

    def process(self, value: Any) -> None:
        self._add(self._index, self._held(value))


class BroadcastExchange(Exchange):
    """Sends to every target."""

    def process(self, value: Any) -> None:
        held = self._held(value)
        for index in range(len(self._hops)):
            self._add(index, held)


class ShuffleExchange(Exchange):
    """Distributes records evenly, in a pseudo-random order that is the same in each attempt."""

    def __init__(self, outlet: Outlet, producer: int) -> None:
        super().__init__(outlet)
        self._state = producer + 1

    def process(self, value: Any) -> None:
        # A linear congruential generator (Knuth's MMIX constants); the high bits are the most random ones.
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
        self._add((self._state >> 33) % len(self._hops), self._held(value))


class BadPartition(PenstockError):
    """A partitioner returned something that is not the index of a target.

    Operator action: return an int from 0 to the number of targets minus 1.
    """


class CustomExchange(Exchange):
    """Sends to the target chosen by the user's partitioner: `partition(key, number of targets)`."""

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
                    f"The partitioner returned {index!r} for {count} partitions; it must return an int from 0 to "
                    f"{count - 1}."
                )
        except Exception as error:  # user code can raise anything
            raise Blamed(self._user) from error
        self._add(index, self._held(value))
