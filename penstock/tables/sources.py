"""Read the keyed state of a savepoint or checkpoint block by block, in any process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from penstock.checkpoint.base_runs import BaseRuns
from penstock.checkpoint.bases import block_groups
from penstock.checkpoint.manifest import Manifest, Version
from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.savepoint.format import SavedBlock, SavedOperator
from penstock.state.blocks import Blocks
from penstock.state.files import GroupChanges, read_changes
from penstock.state.storage import MissingObject, Storage
from penstock.state.storage_uri import open_storage

_FAR_SAMPLE = 2
"""Number of blocks to sample from remote storage."""


class KeyedSource(Protocol):
    """The keyed state of one operator. Can be pickled and read in another process."""

    def blocks(self) -> list[int]:
        """Return the blocks that can contain state."""

    def block_of(self, group: int) -> int:
        """Return the block that contains a key group."""

    def groups(self, block: int, wanted: range | None = None) -> Iterator[GroupChanges]:
        """Yield the key groups of a block, or only the wanted ones, with all their entries."""

    def sample(self) -> Iterator[tuple[int, Iterator[GroupChanges]]]:
        """Yield blocks and their key groups for sampling keys: all blocks on local storage, a few on remote storage."""

    def named(self, block: int) -> str:
        """Return the location of a block for error messages."""


class _Opened:
    """A storage that is pickled as its URI."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def __getstate__(self) -> str:
        return self.storage.uri

    def __setstate__(self, uri: str) -> None:
        self.storage = open_storage(uri)


class SavedBlocks:
    """The blocks of a savepoint. Each file's hash is verified before its contents are used."""

    def __init__(self, storage: Storage, operator: SavedOperator) -> None:
        self._opened = _Opened(storage)
        self._blocks: dict[int, SavedBlock] = operator.blocks
        self._all = operator.all_blocks
        self._sound: set[int] = set()
        """The blocks whose hashes have been verified."""

    def blocks(self) -> list[int]:
        """Return the numbers of the blocks that contain state."""
        return sorted(self._blocks)

    def block_of(self, group: int) -> int:
        """Return the block that contains a key group."""
        return self._all.of(group)

    def sample(self) -> Iterator[tuple[int, Iterator[GroupChanges]]]:
        """Yield some blocks with their key groups, for sampling keys."""
        for block in self.blocks()[: _FAR_SAMPLE if self._opened.storage.far else None]:
            # Each key group has a checksum. Verifying the file's hash would read all of it for a sample.
            yield block, read_changes(self._view(self._blocks[block]), name=self.named(block))

    def groups(self, block: int, wanted: range | None = None) -> Iterator[GroupChanges]:
        """Yield the key groups of a block."""
        return read_changes(self.checked(block), wanted, name=self.named(block))

    def named(self, block: int) -> str:
        """Return the location of a block for error messages."""
        return f"'{self._blocks[block].name}' in {self._opened.storage.where}"

    def checked(self, number: int) -> pa.Buffer:
        """Return a block's file, with its hash verified."""
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
    """The blocks of a checkpoint: bases and subsequent deltas."""

    def __init__(self, storage: Storage, version: Version, manifest: Manifest, uid: str) -> None:
        self._opened = _Opened(storage)
        self._version = version
        self._uid = uid
        self._all = manifest.blocks.get(uid, Blocks(max_parallelism=1, count=1))
        runs = BaseRuns(manifest.bases.get(uid, {}))
        since = manifest.since_base.get(uid, {})
        self._blocks = [
            number
            for number in self._all.numbers
            if number in since
            or any(base is not None and base.name for _, base in runs.parts(self._all.groups(number)))
        ]

    def blocks(self) -> list[int]:
        """Return the numbers of the blocks that contain state."""
        return self._blocks

    def block_of(self, group: int) -> int:
        """Return the block that contains a key group."""
        return self._all.of(group)

    def sample(self) -> Iterator[tuple[int, Iterator[GroupChanges]]]:
        """Yield some blocks with their key groups, for sampling keys."""
        for block in self._blocks[: _FAR_SAMPLE if self._opened.storage.far else None]:
            yield block, self.groups(block)

    def groups(self, block: int, wanted: range | None = None) -> Iterator[GroupChanges]:
        """Yield the key groups of a block."""
        chain = ManifestChain(self._opened.storage, self._version)
        for change in block_groups(chain, self._uid, self._all.groups(block)):
            if wanted is None or change.group in wanted:
                yield change

    def named(self, block: int) -> str:
        """Return the location of a block for error messages."""
        return f"block {block} of checkpoint {self._version.id} in {self._opened.storage.where}"
