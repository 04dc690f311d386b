"""The job whose state is read, and its state after any number of records, in plain Python.

numbers ─┬→ totals   the sum of the numbers of a key
         └→ tallies  a map per key: how many of its numbers have each remainder
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.common import Types
from penstock.connectors.source import Positions, Source
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import MapStateDescriptor, ReducingStateDescriptor

NAME = "sums"
SOURCE = "numbers"
SPLITS = 2
KEYS, LETTERS, REMAINDERS = 97, 7, 5
TOTALS, TALLIES = "totals", "tallies"


class Numbers(Source):
    """0, 1, 2 and so on, without end: the first n records are the numbers below n."""

    bounded = False

    def __init__(self, per_epoch: int, pace_ms: int) -> None:
        self._step = per_epoch // SPLITS * SPLITS
        self._pace = pace_ms / 1000

    def start(self, parallelism: int) -> Positions:
        return {str(split): split for split in range(SPLITS)}

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        return {split: position + self._step for split, position in positions.items()}

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        time.sleep(self._pace)
        return range(start, end, SPLITS)


class Tally(KeyedProcessFunction):
    """Counts the numbers of a key by their remainder."""

    def open(self, runtime_context: RuntimeContext) -> None:
        counts = MapStateDescriptor("counts", Types.STRING(), Types.LONG())
        counts.set_queryable(TALLIES)
        self.counts = runtime_context.get_map_state(counts)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        name = remainder(value % REMAINDERS)
        self.counts.put(name, (self.counts.get(name) or 0) + 1)
        yield from ()


def build(env: StreamExecutionEnvironment, per_epoch: int, pace_ms: int) -> None:
    """Declare the program in an environment."""
    numbers = env.from_source(Numbers(per_epoch, pace_ms), type_info=Types.LONG()).uid(SOURCE)
    total = ReducingStateDescriptor("total", add, Types.LONG())
    numbers.key_by(key_of, Types.LONG()).as_queryable_state(TOTALS, total).uid(TOTALS)
    numbers.key_by(letter_of, Types.LONG()).process(Tally()).uid(TALLIES).print()


def add(left: int, right: int) -> int:
    return left + right


def key_of(number: int) -> int:
    return number % KEYS


def letter_of(number: int) -> int:
    return number % LETTERS


def remainder(number: int) -> str:
    return f"r{number}"


def totals(records: int) -> dict[int, int]:
    """Return the sum of each key after this number of records."""
    found = {}
    for key in range(min(KEYS, records)):
        count = _count(records, key, KEYS)
        found[key] = key * count + KEYS * count * (count - 1) // 2
    return found


def tallies(records: int) -> dict[int, dict[str, int]]:
    """Return the map of each key after this number of records."""
    found: dict[int, dict[str, int]] = {}
    for number in range(min(LETTERS * REMAINDERS, records)):
        count = _count(records, number, LETTERS * REMAINDERS)
        found.setdefault(letter_of(number), {})[remainder(number % REMAINDERS)] = count
    return found


def _count(records: int, first: int, step: int) -> int:
    """Return how many numbers below `records` are in first, first + step and so on."""
    return (records - first + step - 1) // step


STATES: dict[str, Callable[[int], dict[Any, Any]]] = {TOTALS: totals, TALLIES: tallies}
"""What each state holds after a number of records."""
