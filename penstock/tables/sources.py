"""Where the keyed state of a savepoint or checkpoint is read from, block by block, in any process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from penstock.checkpoint.bases import block_groups
from penstock.checkpoint.history import ManifestHistory
from penstock.checkpoint.manifest import Manifest, Version
from penstock.checkpoint.savepoints import DamagedSavepoint, IncompleteSavepoint, SavedBlock
from penstock.state.files import GroupChanges, content_name, read_changes
from penstock.state.key_groups import block_count
from penstock.state.storage import MissingObject, Storage, open_storage


class KeyedSource(Protocol):
    """The keyed state of one operator. It can be pickled, and then reads the same in another process."""

    def blocks(self) -> list[int]:
        """Those that may hold anything."""

    def groups(self, block: int, wanted: range | None = None) -> Iterator[GroupChanges]:
        """The key groups of a block, or those of them that are wanted, with all their entries."""

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

    def blocks(self) -> list[int]:
        return sorted(self._blocks)

    def groups(self, block: int, wanted: range | None = None) -> Iterator[GroupChanges]:
        return read_changes(self.checked(block), wanted, name=self.named(block))

    def named(self, block: int) -> str:
        return f"'{self._blocks[block].name}' in {self._opened.storage.where}"

    def checked(self, number: int) -> pa.Buffer:
        """The file of a block, which is what was written."""
        block, storage = self._blocks[number], self._opened.storage
        try:
            data = storage.view(block.name)
        except MissingObject:
            raise IncompleteSavepoint(
                f"The savepoint in {storage.where} is not complete: '{block.name}' is missing.",
                fix="Copy the whole directory, or use another savepoint. Nothing was changed.",
            ) from None
        check_block(data, block, storage.where)
        return data


def check_block(data: pa.Buffer, block: SavedBlock, where: str) -> None:
    """Raise DamagedSavepoint unless a file of a savepoint is what was written."""
    if len(data) != block.size or content_name(memoryview(data)) != block.checksum:
        raise DamagedSavepoint(
            f"The savepoint in {where} is damaged: '{block.name}' does not have the size and hash it was written with.",
            fix="Restore it from a copy, or use another savepoint. Nothing was changed.",
        )


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
        return self._blocks

    def groups(self, block: int, wanted: range | None = None) -> Iterator[GroupChanges]:
        history = ManifestHistory(self._opened.storage, self._version)
        for change in block_groups(history, self._uid, block, self._max_parallelism):
            if wanted is None or change.group in wanted:
                yield change

    def named(self, block: int) -> str:
        return f"block {block} of checkpoint {self._version.id} in {self._opened.storage.where}"
