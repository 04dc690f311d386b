"""Background work of the driver: merging bases, and removing files that no retained checkpoint needs.

It runs in a dedicated thread, concurrently with epochs, unless snapshots are synchronous or checkpoints are in memory.
The next manifest announces the new bases; until then nothing uses them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

from penstock.checkpoint.bases import (
    LONGEST_WALK,
    Block,
    all_blocks,
    carried_on,
    due,
    expires,
    merge_block,
    oldest_walk,
)
from penstock.checkpoint.manifest import BaseHandle, Manifest, Version
from penstock.checkpoint.pins import PinLimits, ServerPins
from penstock.checkpoint.retention import Retention
from penstock.state.blocks import FEWEST, Blocks
from penstock.state.storage import Storage


class Merge(Protocol):
    """Merges bases of blocks, in this process or elsewhere; `into` is the savepoint that they are for, if any."""

    def __call__(
        self, storage: Storage, version: Version, blocks: list[Block], into: Storage | None = None
    ) -> list[BaseHandle]: ...


_PARTS = 2
"""A merge covers an operator's blocks in this many parts: once the next manifest announces the bases of one part, its
deltas can be removed."""
_SWEEP_EVERY = 16
"""Epochs between two sweeps if no base was announced."""
_LIST_EVERY = 256
"""Epochs between two sweeps that list the storage. The files of a failed attempt stay for that long at most."""

_log = logging.getLogger(__name__)


def merge_here(
    storage: Storage, version: Version, blocks: list[Block], into: Storage | None = None
) -> list[BaseHandle]:
    """Merge in this process."""
    return [merge_block(storage, version, block, into) for block in blocks]


class Housekeeping:
    """Maintains bases and removes old files.

    Order of calls for each epoch: `bases` and `since_base` while its manifest is built, then `published`.
    """

    def __init__(
        self,
        storage: Storage,
        keyed: Collection[str],
        merge: Merge,
        retained: int,
        asynchronous: bool,
        merge_bytes: int,
        base_bytes: int,
        memory_limit: int,
        pins: PinLimits | None = None,
    ) -> None:
        """`keyed`: the uids of the operators with keyed state. `pins`: None if no state server reads the lineage."""
        self.bases_written = 0
        """Bytes of bases written so far."""
        self._storage = storage
        self._keyed = keyed
        self._blocks: list[Block] = []
        """All blocks of these operators in the last manifest."""
        self._blocks_by_uid: dict[str, Blocks] = {}
        self._merge = merge
        self._merge_bytes = merge_bytes
        self._base_bytes = base_bytes
        self._memory_limit = memory_limit
        self._retention = Retention(storage, retained, None if pins is None else ServerPins(storage, pins))
        self._merged: dict[Block, BaseHandle] = {}
        self._before: dict[Block, int] = {}
        """Bytes of deltas that went into the base, for blocks that are being or have been merged."""
        self._reading: int | None = None
        """The checkpoint that a merge reads or has read, until its bases are announced."""
        self._pinned: list[int] = []
        """Checkpoints from which savepoints are being made."""
        self._swept = 0
        self._listed = 0
        """The checkpoint of the last sweep that listed the storage."""
        self._closed = False
        self._work: Future[dict[Block, BaseHandle]] | None = None
        self._outdated = False
        """Whether blocks were split or joined since the work began."""
        self._thread = (
            ThreadPoolExecutor(1, "penstock-housekeeping") if asynchronous and not storage.in_memory else None
        )

    def bases(self, last: Manifest) -> dict[str, dict[int, BaseHandle]]:
        """Return the bases for the next manifest."""
        self._collect()
        self._forget_announced(last)
        self._follow(last)
        # In memory, the manifests since the oldest base make up most of the driver's memory.
        longest_walk = 0 if self._storage.in_memory and self._merged else LONGEST_WALK // 2
        return carried_on(last, self._blocks, self._merged, longest_walk)

    def since_base(self, last: Manifest) -> dict[str, dict[int, int]]:
        """Return the bytes of deltas up to `last` not covered by the next manifest's bases. Call it after `bases`."""
        since = {uid: dict(blocks) for uid, blocks in last.since_base.items()}
        for block in self._merged:
            blocks = since.setdefault(block.uid, {})
            rest = blocks.pop(block.number, 0) - self._before[block]
            if rest:
                blocks[block.number] = rest
        return since

    def merged(self, uid: str) -> list[BaseHandle]:
        """Return the bases of an operator that the next manifest announces."""
        return [handle for block, handle in self._merged.items() if block.uid == uid]

    def published(self, manifest: Manifest, version: Version) -> None:
        self._retention.published(manifest)
        self._forget_announced(manifest)
        self._collect()
        self._follow(manifest)
        if self._work is not None or self._closed:
            return
        blocks = [] if self._merged else self._due(manifest)
        sweep = self._storage.in_memory or manifest.id - self._swept >= _SWEEP_EVERY or not self._swept
        if blocks:
            self._reading = manifest.id
            self._before = {block: manifest.since_base.get(block.uid, {}).get(block.number, 0) for block in blocks}
        if not (blocks or sweep):
            return
        listing = self._storage.in_memory or not self._listed or manifest.id - self._listed >= _LIST_EVERY
        if sweep:
            self._swept = manifest.id
            self._listed = manifest.id if listing else self._listed
        if self._thread is None:
            self._take(self._run(manifest, version, blocks, sweep, listing))
        else:
            self._work = self._thread.submit(self._run, manifest, version, blocks, sweep, listing)

    def recovered(self) -> None:
        """Let the next sweep list the storage, because an attempt that failed might have left files."""
        self._listed = 0

    @contextmanager
    def pinned(self, number: int) -> Iterator[None]:
        """Keep the files of a checkpoint while the block runs. It must be the last checkpoint when the block starts."""
        self._pinned.append(number)
        try:
            yield
        finally:
            self._pinned.remove(number)

    def close(self) -> None:
        """Finish pending work and start nothing more."""
        self._closed = True
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def abandon(self) -> None:
        """Start nothing more, because the driver is lost. Running work finishes first, to leave no thread behind."""
        self._closed = True
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _run(
        self, manifest: Manifest, version: Version, blocks: list[Block], sweep: bool, listing: bool
    ) -> dict[Block, BaseHandle]:
        if sweep:
            reading = [*self._pinned, *([] if self._reading is None else [self._reading])]
            self._retention.sweep(manifest, reading, listing)
        return dict(zip(blocks, self._merge(self._storage, version, blocks), strict=True)) if blocks else {}

    def _forget_announced(self, last: Manifest) -> None:
        """Forget the merged bases if the last manifest has them. `published` has not seen it if a sink failed."""
        if self._merged and all(
            last.bases.get(block.uid, {}).get(block.groups.start) == handle for block, handle in self._merged.items()
        ):
            self._merged, self._before, self._reading = {}, {}, None
            self._swept = 0

    def _follow(self, last: Manifest) -> None:
        """Note the blocks of the last manifest. If they have changed, forget the bases merged so far: how many
        bytes of `since_base` they cover is unknown now."""
        if last.blocks == self._blocks_by_uid:
            return
        self._blocks_by_uid = last.blocks
        self._blocks = [
            block for uid, blocks in last.blocks.items() if uid in self._keyed for block in all_blocks(uid, blocks)
        ]
        self._merged, self._before, self._reading = {}, {}, None
        self._outdated = self._work is not None

    def _take(self, merged: dict[Block, BaseHandle]) -> None:
        self._merged |= merged
        self.bases_written += sum(handle.size for handle in merged.values())

    def _collect(self) -> None:
        """Take the thread's result if it is done. Failed work is retried later, because no checkpoint depends on it."""
        work = self._work
        if work is None or not work.done():
            return
        self._work = None
        error = work.exception()
        if error is None:
            if not self._outdated:
                self._take(work.result())
            self._outdated = False
        else:
            self._before, self._reading, self._outdated = {}, None, False
            _log.error(
                "Merging bases or removing old files in %s failed. No checkpoint is lost, and the work will be "
                "retried: %s",
                self._storage.where,
                error,
            )

    def _due(self, last: Manifest) -> list[Block]:
        if not self._storage.in_memory:
            most = max((blocks.count for blocks in self._blocks_by_uid.values()), default=0)
            return due(last, self._blocks, self._base_bytes)[: max(most, FEWEST) // _PARTS]
        # All operators together: one old base would retain every later manifest, with the deltas of all operators.
        deltas = sum(last.delta_bytes(uid) for uid in last.since_base)
        bases = sum(base.size for handles in last.bases.values() for base in handles.values())
        too_large = any(last.state_bytes(uid) > self._memory_limit for uid in last.since_base)
        if deltas > max(2 * bases, self._merge_bytes) or too_large or last.id - oldest_walk(last) > LONGEST_WALK:
            return [
                block
                for block in self._blocks
                if block.number in last.since_base.get(block.uid, {}) or expires(last, block)
            ]
        return []
