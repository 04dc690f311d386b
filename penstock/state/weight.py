"""How much memory an overlay takes, and when to look.

Weights are estimates from samples. They depend on nothing but what was written and read, so that a retried task spills
at the same places: what it writes is named by content, and the names travel in rows that Spark compares.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain, islice
from sys import getsizeof
from typing import Any

_SAMPLE = 128
_DEPTH = 5
_SLOT = 50
"""Bytes for one more entry of a dict or set, about: tables are a third to two thirds full."""
MEMBER_BYTES = 120
"""About what a key in a set takes."""
_FLAT = frozenset({int, bytes, str, float, bool, type(None)})

_FIRST_LOOK = 64 * 1024
"""Bytes of records after which an overlay is weighed first; later it is weighed less often."""
_RECORD = 64
"""What a record counts beside its bytes: it may well set a timer or a count."""


def weigh(held: Any, depth: int = _DEPTH) -> int:
    """About the bytes that an object takes with all it holds."""
    kind = type(held)
    size = getsizeof(held)
    if kind in _FLAT or depth == 0:
        return size
    if isinstance(held, dict):
        return size + _scaled(len(held), (weigh(k, depth - 1) + weigh(v, depth - 1) for k, v in sample(held.items())))
    if isinstance(held, (list, tuple)):
        return size + _scaled(len(held), (weigh(each, depth - 1) for each in sample(held)))
    parts = [*getattr(held, "__dict__", {}).values()]
    parts += [getattr(held, name, None) for name in getattr(kind, "__slots__", ())]
    return size + sum(weigh(part, depth - 1) for part in parts)


def weigh_nested(held: Mapping[Any, Collection[Any]]) -> int:
    """As `weigh`, of a dict with lists or dicts as values, of which a few may be far longer than all others."""
    if not held:
        return 0
    inner = sum(map(len, held.values()))
    chosen = [*sample(held.values()), max(held.values(), key=len)]
    elements = chain.from_iterable(each.items() if isinstance(each, dict) else sample(each) for each in chosen)
    empty = _scaled(len(held), (weigh(key) + getsizeof(type(each)()) + _SLOT for key, each in sample(held.items())))
    return empty + _scaled(inner, (weigh(element) + _SLOT for element in islice(elements, 16 * _SAMPLE)))


def sample(held: Collection[Any]) -> Iterable[Any]:
    """Up to twice `_SAMPLE` elements, evenly from the first to the last. Not of sets: their order is by chance."""
    return islice(held, 0, None, max(1, len(held) // _SAMPLE))


def _scaled(count: int, weights: Iterable[int]) -> int:
    found = list(weights)
    return count * sum(found) // len(found) if found else 0


class Gauge:
    """Says when an overlay may have outgrown its limit. Weighing takes 10 ns for each entry, so it is done seldom:
    as often as the growth so far asks for, and after a start at most half as often each time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.reset()

    def reset(self) -> None:
        self._done = 0
        self._weight = 0
        self._step = self._next = max(1, min(_FIRST_LOOK, self._limit // 16))

    def note(self, size: int, records: int) -> bool:
        """So many bytes and records were worked on; whether it is time to weigh."""
        self._done += size + records * _RECORD
        return self._done >= self._next

    def is_full(self, weight: int) -> bool:
        """Whether the overlay, which has this weight, is to be spilled now."""
        rate = max(1.0, (weight - self._weight) / max(1, self._done))
        left = self._limit - weight
        if left <= self._limit // 16:
            return True
        self._step = max(1, min(2 * self._step, int(left / (2 * rate))))
        self._done, self._next, self._weight = 0, self._step, weight
        return False
