"""Key groups, the unit of redistribution, and the blocks in which their state is kept.

A key always belongs to the same key group. A key group belongs to one subtask until the parallelism changes. A block is
a fixed run of key groups, independent of the parallelism. All ranges here are half-open, as in Python.
"""

from __future__ import annotations

from xxhash import xxh64_intdigest

from penstock.common.options.program import MOST_KEY_GROUPS
from penstock.errors import PenstockError

__all__ = [
    "BLOCKS",
    "ParallelismError",
    "block_count",
    "block_of",
    "block_range",
    "blocks_of_range",
    "check_parallelism",
    "default_max_parallelism",
    "key_group_of",
    "owner_of",
    "range_of_subtask",
]

# Enough blocks that a rescale moves state in parts and that bases are merged a few at a time; few enough that an epoch
# opens only a handful of replicas per task.
BLOCKS = 16


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


def _block_size(max_parallelism: int) -> int:
    return -(-max_parallelism // BLOCKS)


def block_count(max_parallelism: int) -> int:
    """Return the number of blocks: `BLOCKS`, or fewer if there are not enough key groups to fill them."""
    return -(-max_parallelism // _block_size(max_parallelism))


def block_of(group: int, max_parallelism: int) -> int:
    """Return the block that contains a key group."""
    return group // _block_size(max_parallelism)


def block_range(block: int, max_parallelism: int) -> range:
    """Return the key groups of a block."""
    size = _block_size(max_parallelism)
    return range(block * size, min((block + 1) * size, max_parallelism))


def blocks_of_range(start: int, end: int, max_parallelism: int) -> range:
    """Return the blocks that contain any key group from `start` to `end`, exclusive."""
    if start >= end:
        return range(0)
    return range(block_of(start, max_parallelism), block_of(end - 1, max_parallelism) + 1)
