"""The keyed state that each executor holds in replicas: that of the subtasks it ran last, and what it follows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.checkpoint.manifest import Manifest
from penstock.graph.physical import PhysicalGraph
from penstock.state.blocks import intersection
from penstock.state.key_groups import range_of_subtask

Block = tuple[str, int]
"""The uid of an operator, and the number of one of its blocks."""


class Held(NamedTuple):
    """Blocks of keyed state, and their bytes in a checkpoint."""

    blocks: int = 0
    bytes: int = 0


NOTHING = Held()


class HeldState:
    """The keyed state at one checkpoint."""

    def __init__(self, graph: PhysicalGraph, manifest: Manifest) -> None:
        self._graph, self._manifest = graph, manifest
        self._sizes: dict[str, dict[int, int]] = {}

    def of_subtasks(self, executors: Mapping[int, Sequence[str]]) -> dict[str, Held]:
        """Return the state of the subtasks of each executor. `executors`: those of the subtasks, by chain.

        Two subtasks can share a block. An executor that runs both has one replica of it.
        """
        found: dict[str, set[Block]] = {}
        for chain in self._graph.chains:
            uids = [each.uid for each in chain.operators if each.uid in self._manifest.blocks]
            for subtask, executor in enumerate(executors.get(chain.id, ()) if uids else ()):
                groups = range_of_subtask(subtask, chain.parallelism, chain.max_parallelism)
                for uid in uids:
                    numbers = self._manifest.blocks[uid].touching(groups)
                    found.setdefault(executor, set()).update((uid, number) for number in numbers)
        return {executor: self.held(blocks) for executor, blocks in found.items()}

    def held(self, blocks: Collection[Block]) -> Held:
        """Return the number and size of these blocks. Blocks that the job no longer has do not count."""
        known = [(uid, number) for uid, number in blocks if uid in self._manifest.blocks]
        return Held(len(known), sum(self._sizes_of(uid).get(number, 0) for uid, number in known))

    def _sizes_of(self, uid: str) -> Mapping[int, int]:
        sizes = self._sizes.get(uid)
        if sizes is None:
            sizes = self._sizes[uid] = dict(self._manifest.since_base.get(uid, {}))
            for number, size in self._parts_of_bases(uid):
                sizes[number] = sizes.get(number, 0) + size
        return sizes

    def _parts_of_bases(self, uid: str) -> Iterable[tuple[int, int]]:
        """Yield the bytes of each base by block. After a rescale, a base can belong to several."""
        blocks = self._manifest.blocks[uid]
        for first, base in self._manifest.bases.get(uid, {}).items():
            groups = range(first, base.end)
            if base.size and groups:
                for number in blocks.touching(groups):
                    yield number, base.size * len(intersection(groups, blocks.groups(number))) // len(groups)
