"""Key groups, the unit of redistribution. `penstock.state.blocks` has the blocks in which their state is kept.

A key always belongs to the same key group. A key group belongs to one subtask until the parallelism changes. All ranges
here are half-open, as in Python.
"""

from __future__ import annotations

from xxhash import xxh64_intdigest

from penstock.common.options.program import MOST_KEY_GROUPS
from penstock.errors import PenstockError

__all__ = [
    "ParallelismError",
    "check_parallelism",
    "default_max_parallelism",
    "key_group_of",
    "owner_of",
    "range_of_subtask",
]


class ParallelismError(PenstockError):
    """A parallelism that is incompatible with the number of key groups.

    Operator action: choose a parallelism of at most the max parallelism; the max parallelism is fixed once state
    exists.
    """


def key_group_of(key: bytes, max_parallelism: int) -> int:
    """Return the key group of a key, given its canonical bytes (see `penstock.state.keys`)."""
    return xxh64_intdigest(key) % max_parallelism


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Raise ParallelismError for values that cannot run. Called once per operator when the graph is built."""
    if not 1 <= max_parallelism <= MOST_KEY_GROUPS:
        raise ParallelismError(
            f"The max parallelism is {max_parallelism}, but must be from 1 to {MOST_KEY_GROUPS}. "
            "Pass a number in that range to set_max_parallelism()."
        )
    if not 1 <= parallelism <= max_parallelism:
        raise ParallelismError(
            f"The parallelism is {parallelism}, but must be from 1 to the max parallelism, {max_parallelism}: "
            "a subtask without a key group would never receive a record. Lower the parallelism, or raise the max "
            "parallelism (possible only for a job that starts without state)."
        )


def default_max_parallelism(parallelism: int) -> int:
    """Return 1.5 times the parallelism, rounded up to a power of two, between 128 and MOST_KEY_GROUPS."""
    if not 1 <= parallelism <= MOST_KEY_GROUPS:
        raise ParallelismError(f"The parallelism is {parallelism}, but must be from 1 to {MOST_KEY_GROUPS}.")
    wanted = parallelism + parallelism // 2
    power = 1 << (wanted - 1).bit_length()
    return min(max(power, 128), MOST_KEY_GROUPS)


def range_of_subtask(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """Return the key groups of subtask i: from ceil(i·m/p) to ceil((i+1)·m/p), exclusive."""
    start = -(-subtask * max_parallelism // parallelism)
    end = -(-(subtask + 1) * max_parallelism // parallelism)
    return range(start, end)


def owner_of(group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the subtask that owns a key group."""
    return group * parallelism // max_parallelism
