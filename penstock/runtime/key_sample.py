"""A sample of the keys that a task receives, from which its heaviest keys are named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import choices

import msgspec

from penstock.state.key_groups import key_group_of

_OF_BUFFER = 16
"""Keys drawn from each buffer: 4 µs, for buffers that hold hundreds of records or more."""
_MOST = 2048
"""Keys drawn in an epoch."""
_LEAST = 32
"""Fewer keys say nothing about a share."""
_NAMED = 3
_SHARE = 0.25
"""Keys with a smaller share are not named."""
_LONGEST = 256
"""Bytes of a key that is sent to the driver. Of a longer one, only its key group is."""


class HeavyKey(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """A key that many records of a subtask have."""

    group: int
    """Its key group."""
    key: bytes
    """The key as stored; empty if it is long."""
    percent: int
    """About which share of the records has it."""


class KeySample:
    """Draws keys of an epoch. Call `add` for each buffer."""

    def __init__(self) -> None:
        self._counts: Counter[bytes] = Counter()
        self._drawn = 0

    def add(self, keys: Sequence[bytes]) -> None:
        """Draw from the keys of a buffer, one for each record."""
        if keys and self._drawn < _MOST:
            drawn = choices(keys, k=min(_OF_BUFFER, len(keys)))
            self._drawn += len(drawn)
            self._counts.update(drawn)

    def heaviest(self, max_parallelism: int) -> list[HeavyKey]:
        """Return the keys with the most records, if there are any."""
        if self._drawn < _LEAST:
            return []
        return [
            HeavyKey(
                group=key_group_of(key, max_parallelism),
                key=key if len(key) <= _LONGEST else b"",
                percent=round(100 * count / self._drawn),
            )
            for key, count in self._counts.most_common(_NAMED)
            if count >= _SHARE * self._drawn
        ]
