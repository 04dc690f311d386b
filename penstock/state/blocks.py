"""Blocks: the runs of key groups in which an operator's state is replicated and merged.

How many blocks an operator has depends on its parallelism, and is recorded in each manifest (`Manifest.blocks`). All
ranges are ranges of key groups, and half-open.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.state.key_groups import range_of_subtask

FEWEST = 16
"""Enough blocks that bases are merged a few at a time; few enough that a single task can open all of them."""
PER_SUBTASK = 4
"""For a parallelism that is not a power of two: a subtask shares a block with each neighbour and replays the changes of
both, half a block too many at each end on average. With 4 to 8 blocks per subtask, it replays 12 to 25 % more than the
changes of its key groups. Otherwise one block is enough, because the key groups of a subtask are exactly its blocks."""
MOST_PER_SUBTASK = 8
"""A task opens the replicas of all its blocks. To open one and apply a small change takes 0.07 ms with LMDB, and 5 ms
with RocksDB."""
LOW = 4
"""Up to this parallelism, an operator has `FEWEST` blocks."""


class Blocks(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The blocks of one operator.

    Blocks divide the key groups as subtasks do: a block has the key groups that the subtask of this number would have
    at a parallelism of `count`. Of two powers of two, the larger one therefore divides the blocks of the smaller one.
    """

    max_parallelism: int
    count: int
    """Zero for the blocks of manifests before format 4 if they differ: up to 16 runs of equal length, except the
    last."""

    @classmethod
    def before_format_4(cls, max_parallelism: int) -> Blocks:
        """Return the blocks of an operator in manifests and savepoints that do not record them."""
        count = min(FEWEST, max_parallelism) or 1
        return cls(max_parallelism=max_parallelism, count=0 if max_parallelism % count else count)

    @property
    def numbers(self) -> range:
        """The numbers of the blocks."""
        return range(self.count or -(-self.max_parallelism // self._run))

    def of(self, group: int) -> int:
        """Return the block that contains a key group."""
        return group * self.count // self.max_parallelism if self.count else group // self._run

    def groups(self, block: int) -> range:
        """Return the key groups of a block."""
        if self.count:
            return range_of_subtask(block, self.count, self.max_parallelism)
        return range(block * self._run, min((block + 1) * self._run, self.max_parallelism))

    def touching(self, groups: range) -> range:
        """Return the blocks that contain any of these key groups."""
        return range(self.of(groups.start), self.of(groups.stop - 1) + 1) if groups else range(0)

    @property
    def _run(self) -> int:
        return -(-self.max_parallelism // FEWEST)


def blocks_for(parallelism: int, max_parallelism: int, current: Blocks | None = None) -> Blocks:
    """Return the blocks of an operator at a parallelism. `current` are its blocks so far, if it has any.

    They do not change as long as they suit the parallelism, because replicas of new blocks are built from scratch.
    """
    if current is not None and current.max_parallelism == max_parallelism and _suits(current, parallelism):
        return current
    aligned = parallelism & (parallelism - 1) == 0
    power = parallelism if aligned else 1 << (PER_SUBTASK * parallelism - 1).bit_length()
    return Blocks(max_parallelism=max_parallelism, count=min(max(power, FEWEST), max_parallelism))


def _suits(blocks: Blocks, parallelism: int) -> bool:
    """Return whether an operator can keep its blocks at this parallelism."""
    count = blocks.count
    if not count or count > (FEWEST if parallelism <= LOW else MOST_PER_SUBTASK * parallelism):
        return False
    return count == blocks.max_parallelism or count % parallelism == 0 or count >= 2 * parallelism


def first_times(least: Mapping[int, int], old: Blocks, new: Blocks) -> dict[int, int]:
    """Return the times of the earliest timers by new block, given those by old block.

    Of a block that was split, each part gets its time. It might be too early, which costs one read, but never too late.
    """
    if old == new:
        return dict(least)
    times: dict[int, int] = {}
    for block, time in least.items():
        for number in new.touching(old.groups(block)):
            times[number] = min(time, times.get(number, time))
    return times


def bytes_by_block(sizes: Mapping[int, int], old: Blocks, new: Blocks) -> dict[int, int]:
    """Distribute bytes by old block over the new blocks, by their numbers of key groups.

    A new block that shares a key group with an old block of at least one byte gets at least one byte.
    """
    if old == new:
        return dict(sizes)
    spread: dict[int, int] = {}
    for block, size in sizes.items():
        groups = old.groups(block)
        for number in new.touching(groups):
            common = len(intersection(groups, new.groups(number)))
            spread[number] = spread.get(number, 0) + -(-size * common // len(groups))
    return spread


def intersection(one: range, other: range) -> range:
    """Return the key groups in both ranges."""
    return range(max(one.start, other.start), max(one.start, other.start, min(one.stop, other.stop)))
