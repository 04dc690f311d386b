"""What a walk along the chain needs of a manifest: not its bases, timers and event times."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

from penstock.checkpoint.manifest import Manifest
from penstock.runtime.report import DeltaHandle


class WalkedManifest:
    """The deltas of one checkpoint, by operator and key groups."""

    __slots__ = ("_deltas", "_in_order", "blocks", "count", "id", "lineage", "parent")

    def __init__(self, manifest: Manifest) -> None:
        self.id, self.lineage, self.parent = manifest.id, manifest.lineage, manifest.parent
        self.blocks = manifest.blocks
        self._deltas = {uid: each.deltas for uid, each in manifest.operators.items() if each.deltas}
        self._in_order = {uid for uid, deltas in self._deltas.items() if _ascend(deltas)}
        self.count = sum(map(len, self._deltas.values()))
        """Number of deltas."""

    def deltas(self, uid: str, changed: list[range]) -> list[DeltaHandle]:
        """Return the deltas that might change these key groups of an operator, in order."""
        deltas = self._deltas.get(uid)
        if not deltas or not changed:
            return []
        touched = [self.blocks[uid].touching(groups) for groups in changed]
        if uid in self._in_order:
            # There is one for each subtask. To look at all of them for each block would be quadratic in the job.
            first = bisect_left(deltas, min(each.start for each in touched), key=_last_block)
            end = bisect_left(deltas, max(each.stop for each in touched), lo=first, key=_first_block)
            deltas = deltas[first:end]
        return [delta for delta in deltas if any(block in each for block in delta.blocks for each in touched)]


def _first_block(delta: DeltaHandle) -> int:
    return delta.blocks[0]


def _last_block(delta: DeltaHandle) -> int:
    return delta.blocks[-1]


def _ascend(deltas: list[DeltaHandle]) -> bool:
    """Return whether both ends of the deltas ascend, as those of subtasks in order do."""
    return all(delta.blocks and delta.blocks == sorted(delta.blocks) for delta in deltas) and all(
        _first_block(one) <= _first_block(other) and _last_block(one) <= _last_block(other)
        for one, other in pairwise(deltas)
    )
