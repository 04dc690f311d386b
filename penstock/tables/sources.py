"""Where the keyed state of a savepoint or checkpoint is read from, block by block, in any process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from penstock.checkpoint.bases import block_groups
from penstock.checkpoint.manifest import Manifest, Version
from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.savepoint.format import SavedBlock
from penstock.state.files import GroupChanges, read_changes
from penstock.state.key_groups import block_count
from penstock.state.storage import MissingObject, Storage
from penstock.state.storage_uri import open_storage

_FAR_SAMPLE = 2
"""Blocks that are fetched over a network for a look at their keys."""


class KeyedSource(Protocol):
    """The keyed state of one operator. It can be pickled, and then reads the same in another process."""

    def blocks(self) -> list[int]:
        """Those that may hold anything."""

    def groups(self, block: int, wanted: range | None = None) -> Iterator[GroupChanges]:
        """The key groups of a block, or those of them that are wanted, with all their entries."""

    def sample(self) -> Iterator[tuple[int, Iterator[GroupChanges]]]:
        """Of some blocks, the number and the key groups, for a look at the first: all blocks where that is cheap."""

    def named(self, block: int) -> str:
        """Where a block is, for errors."""


class _Opened:
    """A storage that travels as its URI."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def __getstate__(self) -> str:
        return self.storage.uri

    def __setstate__(self, uri: str) -> None:
        self.storage = open_storage(uri)


class SavedBlocks:
    """Of a savepoint. Each file is compared with its hash before anything of it is believed."""

    def __init__(self, storage: Storage, blocks: dict[int, SavedBlock]) -> None:
        self._opened = _Opened(storage)
        self._blocks = blocks
        self._sound: set[int] = set()
        """The blocks whose files have their hashes."""

    def blocks(self) -> list[int]:
        """Return the numbers of the blocks that hold state."""
        return sorted(self._blocks)

    def sample(self) -> Iterator[tuple[int, Iterator[GroupChanges]]]:
        """Yield some blocks with their changes, for a first look."""
        for block in self.blocks()[: _FAR_SAMPLE if self._opened.storage.far else None]:
            # Each key group has its checksum: the file's hash would have all of it read for a look at a part.
            yield block, read_changes(self._view(self._blocks[block]), name=self.named(block))

    def groups(self, block: int, wanted: range | None = None) -> Iterator[GroupChanges]:
        """Yield the changes of a block by key group."""
        return read_changes(self.checked(block), wanted, name=self.named(block))

    def named(self, block: int) -> str:
        """Return the name of a block for errors."""
        return f"'{self._blocks[block].name}' in {self._opened.storage.where}"

    def checked(self, number: int) -> pa.Buffer:
        """The file of a block, which is what was written."""
        block = self._blocks[number]
        data = self._view(block)
        if number not in self._sound:
            block.check(data, self._opened.storage.where)
            self._sound.add(number)
        return data

    def _view(self, block: SavedBlock) -> pa.Buffer:
        storage = self._opened.storage
        try:
            return storage.view(block.name)
        except MissingObject:
            raise block.missing(storage.where) from None


class CheckpointBlocks:
    """Of a checkpoint: bases, and the deltas since."""

    def __init__(self, storage: Storage, version: Version, manifest: Manifest, uid: str) -> None:
        self._opened = _Opened(storage)
        self._version = version
        self._uid = uid
        snapshot = manifest.operators.get(uid)
        self._max_parallelism = 1 if snapshot is None else snapshot.max_parallelism
        bases = manifest.bases.get(uid, {})
        since = manifest.since_base.get(uid, {})
        self._blocks = [
            number
            for number in range(block_count(self._max_parallelism))
            if number in since or (number in bases and bases[number].name)
        ]

    def blocks(self) -> list[int]:
        """Return the numbers of the blocks that hold state."""
        return self._blocks

    def sample(self) -> Iterator[tuple[int, Iterator[GroupChanges]]]:
        """Yield some blocks with their changes, for a first look."""
        for block in self._blocks[: _FAR_SAMPLE if self._opened.storage.far else None]:
            yield block, self.groups(block)

    def groups(self, block: int, wanted: range | None = None) -> Iterator[GroupChanges]:
        """Yield the changes of a block by key group."""
        chain = ManifestChain(self._opened.storage, self._version)
        for change in block_groups(chain, self._uid, block, self._max_parallelism):
            if wanted is None or change.group in wanted:
                yield change

    def named(self, block: int) -> str:
        """Return the name of a block for errors."""
        return f"block {block} of checkpoint {self._version.id} in {self._opened.storage.where}"
