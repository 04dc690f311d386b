"""Key groups, the atoms of redistribution, and the blocks their state is kept in.

A key belongs to a key group for ever, a key group to a subtask for as long as the parallelism stays, and a
block is a fixed run of key groups whatever the parallelism. Every range here is half open, as in Python.
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

# Enough for a rescale to move state in parts and for bases to be merged a few at a time, few enough that an
# epoch opens a handful of replicas per task.
BLOCKS = 16


class ParallelismError(PenstockError):
    """A parallelism and a number of key groups that do not go together."""


def key_group_of(key: bytes, max_parallelism: int) -> int:
    """The key group of a key, given its canonical bytes (see `penstock.state.keys`)."""
    return xxh64_intdigest(key) % max_parallelism


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Refuse what could not be run. Called once for each operator, when the graph is built."""
    if not 1 <= max_parallelism <= MOST_KEY_GROUPS:
        raise ParallelismError(
            f"The max parallelism is {max_parallelism} and must be from 1 to {MOST_KEY_GROUPS}. "
            "Give set_max_parallelism() a number in that range."
        )
    if not 1 <= parallelism <= max_parallelism:
        raise ParallelismError(
            f"The parallelism is {parallelism} and must be from 1 to the max parallelism, {max_parallelism}: "
            "a subtask without a key group would never see a record. Lower the parallelism, or raise the max "
            "parallelism (possible only for a job that starts without state)."
        )


def default_max_parallelism(parallelism: int) -> int:
    """Half as many again as the parallelism, up to a power of two, from 128 to MOST_KEY_GROUPS."""
    if not 1 <= parallelism <= MOST_KEY_GROUPS:
        raise ParallelismError(f"The parallelism is {parallelism} and must be from 1 to {MOST_KEY_GROUPS}.")
    wanted = parallelism + parallelism // 2
    power = 1 << (wanted - 1).bit_length()
    return min(max(power, 128), MOST_KEY_GROUPS)


def range_of_subtask(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """The key groups of a subtask: from ceil(i·m/p) up to, and without, ceil((i+1)·m/p)."""
    start = -(-subtask * max_parallelism // parallelism)
    end = -(-(subtask + 1) * max_parallelism // parallelism)
    return range(start, end)


def owner_of(group: int, parallelism: int, max_parallelism: int) -> int:
    """The subtask that owns a key group."""
    return group * parallelism // max_parallelism


def _block_size(max_parallelism: int) -> int:
    return -(-max_parallelism // BLOCKS)


def block_count(max_parallelism: int) -> int:
    """How many blocks there are: `BLOCKS`, or fewer when the key groups do not fill them."""
    return -(-max_parallelism // _block_size(max_parallelism))


def block_of(group: int, max_parallelism: int) -> int:
    """The block a key group's state is kept in."""
    return group // _block_size(max_parallelism)


def block_range(block: int, max_parallelism: int) -> range:
    """The key groups of a block."""
    size = _block_size(max_parallelism)
    return range(block * size, min((block + 1) * size, max_parallelism))


def blocks_of_range(start: int, end: int, max_parallelism: int) -> range:
    """The blocks that hold any of the key groups from `start` up to, and without, `end`."""
    if start >= end:
        return range(0)
    return range(block_of(start, max_parallelism), block_of(end - 1, max_parallelism) + 1)
