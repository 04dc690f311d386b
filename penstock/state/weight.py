"""Estimates of how much memory an overlay takes, and when to make them.

Weights are estimated from samples. They depend only on the data read and written, so a retried task spills at the same
points: its files are named by content, and the names are in rows that Spark compares.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain, islice
from sys import getsizeof
from typing import Any

_SAMPLE = 128
_DEPTH = 5
_SLOT = 50
"""Approximate bytes per entry of a dict or set, whose tables are one to two thirds full."""
MEMBER_BYTES = 120
"""Approximate bytes of a key in a set."""
_FLAT = frozenset({int, bytes, str, float, bool, type(None)})

_FIRST_LOOK = 64 * 1024
"""Bytes of records after which an overlay is first weighed; later it is weighed less often."""
_RECORD = 64
"""What a record counts in addition to its bytes: it might set a timer or a counter."""


def weigh(held: Any, depth: int = _DEPTH) -> int:
    """Return the approximate size of an object and everything it contains, in bytes."""
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
    """Return the weight of a dict of lists or dicts, a few of which can be far longer than the others."""
    if not held:
        return 0
    inner = sum(map(len, held.values()))
    chosen = [*sample(held.values()), max(held.values(), key=len)]
    elements = chain.from_iterable(each.items() if isinstance(each, dict) else sample(each) for each in chosen)
    empty = _scaled(len(held), (weigh(key) + getsizeof(type(each)()) + _SLOT for key, each in sample(held.items())))
    return empty + _scaled(inner, (weigh(element) + _SLOT for element in islice(elements, 16 * _SAMPLE)))


def sample(held: Collection[Any]) -> Iterable[Any]:
    """Return up to twice `_SAMPLE` elements, evenly spaced. Not for sets: their order is not reproducible."""
    return islice(held, 0, None, max(1, len(held) // _SAMPLE))


def _scaled(count: int, weights: Iterable[int]) -> int:
    found = list(weights)
    return count * sum(found) // len(found) if found else 0


class Gauge:
    """Decides when to check whether an overlay has outgrown its limit.

    Weighing takes 10 ns per entry, so it is done rarely: as often as the growth so far requires, with intervals that at
    most double each time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.reset()

    def reset(self) -> None:
        """Start over with an empty overlay."""
        self._done = 0
        self._weight = 0
        self._step = self._next = max(1, min(_FIRST_LOOK, self._limit // 16))

    def note(self, size: int, records: int) -> bool:
        """Note how many bytes and records were processed, and return whether it is time to weigh."""
        self._done += size + records * _RECORD
        return self._done >= self._next

    def is_full(self, weight: int) -> bool:
        """Return whether an overlay of this weight should spill now."""
        rate = max(1.0, (weight - self._weight) / max(1, self._done))
        left = self._limit - weight
        if left <= self._limit // 16:
            return True
        self._step = max(1, min(2 * self._step, int(left / (2 * rate))))
        self._done, self._next, self._weight = 0, self._step, weight
        return False
