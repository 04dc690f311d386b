"""The size of a simulated job, and the parts of its state that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from penstock.runtime.plan import Chain
from penstock.state.key_groups import range_of_subtask

OPERATORS = 4
SLOTS = 4
"""Tasks that run concurrently in one executor."""
_STATE = 4
"""The state has this many times the keys that an epoch changes."""
_FILE, _GROUP, _ENTRY = 900, 430, 60
"""Bytes of a delta file: fixed, per key group (`penstock.state.files`), and per entry with keys of 40 bytes."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """A job with `OPERATORS` keyed operators, one after the other."""

    subtasks: int = 500
    """Of each operator, and partitions of the source."""
    key_groups: int = 32_768
    changed_keys: int = 10_000_000
    """Keys that one epoch changes, over all operators."""

    def changed_in(self, subtask: int) -> int:
        """Return how many keys an epoch changes in one subtask of one operator."""
        each, more = divmod(self.changed_keys, OPERATORS * self.subtasks)
        return each + (subtask < more)

    def base_bytes(self, groups: int) -> int:
        """Return the size of the base of a block of this many key groups."""
        return file_bytes(groups, _STATE * self.changed_keys * groups // (OPERATORS * self.key_groups))


def file_bytes(groups: int, entries: int) -> int:
    """Return the size of a delta or base."""
    return _FILE + _GROUP * groups + _ENTRY * entries


def changed_groups(groups: range, keys: int, dice: Random) -> Sequence[int]:
    """Return the key groups that contain `keys` random keys."""
    # With six keys per group, one group in 400 would be missing.
    return groups if keys > 6 * len(groups) else sorted(set(dice.choices(groups, k=keys)))


def groups_of(chain: Chain, subtask: int) -> range:
    return range_of_subtask(subtask, chain.parallelism, chain.max_parallelism)
