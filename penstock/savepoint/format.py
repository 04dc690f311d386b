"""The savepoint format: a job's state and positions in one self-contained directory that can be moved and copied.

    _metadata            the contents; published last, so a directory without it is not a savepoint
    state/<hash>.arrow   a block of an operator's keyed state, in the format of checkpoint bases

All names are relative. A driver that dies while it makes or removes a savepoint leaves either a complete savepoint or
leftovers without `_metadata`, which are listed as incomplete and can be disposed of.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa

from penstock.checkpoint.bases import SAVED_STATE
from penstock.checkpoint.lineages import SharedStorage
from penstock.checkpoint.manifest import OperatorSnapshot, StateAddress, digest_of
from penstock.errors import PenstockError
from penstock.runtime.event_time import OperatorTime
from penstock.savepoint.positions import Positions
from penstock.savepoint.validation import contradiction
from penstock.state.blocks import Blocks
from penstock.state.files import content_name
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage
from penstock.state.storage import MissingObject, StorageError

FORMAT = 3
"""Version 2 added versioned state types, version 3 the number of blocks. All versions can be read."""
METADATA = "_metadata"
PREFIX = "savepoint-"
_MAGIC = b"PENSTOCK SAVEPOINT\n"
_DIGEST_BYTES = 16
_LARGEST_METADATA = 1 << 30
"""The metadata contains all operator state, as every checkpoint does. A gigabyte of it would stall any job."""

_log = logging.getLogger(__name__)


class SavepointError(PenstockError):
    """A savepoint cannot be used. Nothing was changed.

    Operator action: restore from another savepoint or checkpoint.
    """

    retryable = False


class NotASavepoint(SavepointError):
    """The path does not contain a savepoint. Operator action: pass the directory that contains `_metadata`."""


class IncompleteSavepoint(SavepointError):
    """Part of a savepoint is missing: it was never finished, is being removed, or was copied only in part.

    Operator action: copy it again or use another one. `penstock savepoint -d` removes leftovers.
    """


class DamagedSavepoint(SavepointError):
    """A file of a savepoint is damaged. Operator action: restore the file from a copy, or use another savepoint."""


class NewerSavepoint(SavepointError):
    """A newer version of Penstock made the savepoint. Operator action: run that version or a later one."""


class SavedBlock(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    name: str
    """Relative name, which contains the hash of the content."""
    size: int

    @property
    def checksum(self) -> str:
        return self.name.rsplit("/", 1)[1].partition(".")[0]

    def check(self, data: pa.Buffer, where: str) -> None:
        """Raise DamagedSavepoint if `data` differs from the block as written. `where` locates the savepoint."""
        if len(data) != self.size or content_name(memoryview(data)) != self.checksum:
            raise DamagedSavepoint(
                f"The savepoint in {where} is damaged: '{self.name}' does not have the size and hash it was written "
                f"with.",
                fix="Restore it from a copy, or use another savepoint. Nothing was changed.",
            )

    def missing(self, where: str) -> IncompleteSavepoint:
        """Return the error to raise if the file is missing."""
        return IncompleteSavepoint(
            f"The savepoint in {where} is not complete: '{self.name}' is missing.",
            fix="Copy the complete directory, or use another savepoint. Nothing was changed.",
        )


class SavedOperator(msgspec.Struct, frozen=True, kw_only=True):
    snapshot: OperatorSnapshot
    """The checkpoint's snapshot, without the epoch's deltas."""
    derived_uid: bool
    """Whether the uid is derived. A derived uid changes with the program."""
    blocks: dict[int, SavedBlock] = {}
    """The blocks that hold state."""
    block_count: int = 0
    """The number of blocks; zero for the blocks of version 2 and earlier (`Blocks.before_format_4`)."""

    @property
    def all_blocks(self) -> Blocks:
        """All blocks of the operator, which must be keyed."""
        groups = self.snapshot.max_parallelism
        counted = Blocks(max_parallelism=groups, count=self.block_count)
        return counted if self.block_count else Blocks.before_format_4(groups)

    @property
    def size(self) -> int:
        """Size of the keyed state in bytes."""
        return sum(block.size for block in self.blocks.values())

    @property
    def keyed(self) -> bool:
        return bool(self.blocks) or self.snapshot.in_key_groups

    @property
    def has_state(self) -> bool:
        return self.keyed or bool(self.operator_state())

    def state_names(self) -> list[str]:
        """Return the names of all its state, for display."""
        snapshot = self.snapshot
        timers = ["timers"] if any(snapshot.timers.values()) else []
        return [*sorted(snapshot.states), *timers, *sorted(self.operator_state())]

    def operator_state(self) -> dict[str, int]:
        """Return the number of elements over all subtasks, by name of the operator state. Empty states are left out."""
        counts = {name: sum(map(len, shares.by_subtask)) for name, shares in self.snapshot.operator_state.items()}
        return {name: count for name, count in counts.items() if count}


class SavedSource(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    derived_uid: bool
    records: int
    """Records read so far."""
    reader: str = ""
    """How records are read; see `graph.logical.SourceSpec`."""
    copied: bool = False
    """Whether Spark streamed a copy that belongs to the lineage. In that case, `records` is the only position."""


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    penstock: str
    """The Penstock version that made it."""
    id: str
    job: str
    created: int
    """Creation time, in milliseconds."""
    clock: int
    """Processing time of its checkpoint, in milliseconds. It never goes back."""
    lineage: str
    checkpoint: int
    """Checkpoint number within the lineage. The restored job continues counting, because lists are stored by
    checkpoint."""
    batch: int | None
    """Spark's last batch."""
    operators: dict[str, SavedOperator]
    sources: dict[str, SavedSource]
    positions: Positions
    times: dict[str, OperatorTime]
    """Event time by operator uid."""
    queryable: dict[str, StateAddress] = {}
    """The queryable states by name. Empty in savepoints of early versions."""

    @property
    def size(self) -> int:
        """Size of all keyed state in bytes."""
        return sum(operator.size for operator in self.operators.values())

    def blocks(self) -> list[SavedBlock]:
        return [block for operator in self.operators.values() for block in operator.blocks.values()]

    def files(self) -> set[str]:
        return {block.name for block in self.blocks()}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Metadata).decode


class Found(NamedTuple):
    """An entry of `list_savepoints`."""

    name: str
    where: str
    metadata: Metadata | None
    """None if it cannot be used as a savepoint; `problem` has the reason."""
    problem: str = ""


def check_savepoint_directory(directory: SharedStorage) -> None:
    """Raise SavepointError if savepoints cannot be written to this directory."""
    try:
        if isinstance(directory, LocalStorage):
            directory.check()
        else:
            probe = f"probe-{uuid.uuid4().hex}"
            directory.write(probe, b"")
            directory.delete(probe)
    except StorageError as error:
        raise SavepointError(
            f"Cannot make a savepoint. {error.problem}",
            fix="Choose a directory that you can write to, on a disk that is not full.",
        ) from None


def savepoint_storage(path: str, options: Mapping[str, Any] | None = None) -> SharedStorage:
    """Return the storage of a savepoint, or of a directory of savepoints, at a path or URI.

    `options` configure the store at that URI.
    """
    path = path.rstrip("/").removesuffix(f"/{METADATA}") or "/"
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return LocalStorage(os.path.abspath(unquote(parts.path) if parts.scheme else path))
    return ObjectStorage(path, options)


def publish_metadata(storage: SharedStorage, metadata: Metadata) -> None:
    body = _encode(metadata)
    if len(body) > _LARGEST_METADATA - 1024:
        raise SavepointError(
            f"The metadata of the savepoint would take {len(body):,} bytes, but at most {_LARGEST_METADATA:,} can be "
            f"read back. It includes all operator state.",
            fix="Store less operator state, or move it to keyed state.",
        )
    storage.publish(METADATA, _MAGIC + digest_of(body) + body)


def load_savepoint(storage: SharedStorage) -> Metadata:
    """Return the savepoint's metadata without executing any code in it. Raises SavepointError."""
    where = storage.where
    try:
        data = storage.read(METADATA, _LARGEST_METADATA)
    except MissingObject:
        if storage.list(f"{SAVED_STATE}/"):
            raise IncompleteSavepoint(
                f"The savepoint in {where} is not complete: it has state, but no {METADATA}. It is still being made or "
                f"removed, or that was interrupted.",
                fix=f"Use another savepoint. If no process is using this one, remove it: penstock savepoint -d {where}",
            ) from None
        raise NotASavepoint(
            f"No savepoint found in {where}: it has no {METADATA}.",
            fix="Pass the directory that was printed when the savepoint was made, or its new location.",
        ) from None
    if not data.startswith(_MAGIC):
        raise NotASavepoint(
            f"{METADATA} in {where} does not belong to a Penstock savepoint: its header differs.",
            fix="Pass the directory of a Penstock savepoint. Flink savepoints cannot be read.",
        )
    found, body = data[len(_MAGIC) :][:_DIGEST_BYTES], data[len(_MAGIC) + _DIGEST_BYTES :]
    if digest_of(body) != found:
        raise DamagedSavepoint(
            f"The savepoint in {where} is damaged: {METADATA} does not have the hash it was written with.",
            fix="Restore it from a copy, or use another savepoint. Nothing was changed.",
        )
    try:
        head = msgspec.msgpack.decode(body, type=dict[str, Any])
        if head.get("format", 0) > FORMAT:
            raise NewerSavepoint(
                f"The savepoint in {where} was made by Penstock {head.get('penstock')} and has format "
                f"{head.get('format')}; this version reads up to format {FORMAT}.",
                fix=f"Run Penstock {head.get('penstock')} or later.",
            )
        metadata = _decode(body)
        problem = contradiction(metadata)
        if problem is not None:
            raise DamagedSavepoint(
                f"{METADATA} of the savepoint in {where} was not written by Penstock: {problem}.",
                fix="Use another savepoint. Nothing was changed.",
            )
        return metadata
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise DamagedSavepoint(
            f"{METADATA} of the savepoint in {where} cannot be read: {error}",
            fix="Restore it from a copy, or use another savepoint. Nothing was changed.",
        ) from None


def list_savepoints(directory: SharedStorage) -> list[Found]:
    """Return all savepoints in a directory, including incomplete and unreadable ones."""
    listed = []
    for name in directory.folders(PREFIX):
        storage = directory.below(name)
        try:
            listed.append(Found(name, storage.where, load_savepoint(storage)))
        except (SavepointError, StorageError) as error:
            # An empty directory is not a leftover of a savepoint.
            if not (isinstance(error, NotASavepoint) and _is_empty(storage)):
                listed.append(Found(name, storage.where, None, error.statement()))
    return sorted(listed, key=lambda each: (0 if each.metadata is None else each.metadata.created, each.name))


def _is_empty(storage: SharedStorage) -> bool:
    try:
        return not storage.list("")
    except StorageError:
        return False


def dispose_claimed(storage: SharedStorage, identity: str) -> None:
    """Remove the savepoint with this ID, which a job has claimed. If that fails, the job continues."""
    try:
        with suppress(IncompleteSavepoint):
            if load_savepoint(storage).id != identity:
                return
        dispose_savepoint(storage)
        _log.info("Removed the savepoint in %s: its job claimed it and no longer needs it.", storage.where)
    except NotASavepoint:
        # An earlier driver removed it.
        pass
    except (SavepointError, StorageError) as error:
        _log.warning("Could not remove the unneeded savepoint in %s: %s", storage.where, error)


def dispose_savepoint(storage: SharedStorage) -> None:
    """Remove a savepoint, even if it is damaged, or its leftovers. Other files are not touched.

    `_metadata` is removed first, which invalidates the savepoint.
    """
    try:
        load_savepoint(storage)
    except (DamagedSavepoint, NewerSavepoint, IncompleteSavepoint):
        pass
    link = storage.link_among(METADATA, SAVED_STATE) if isinstance(storage, LocalStorage) else None
    if link is not None:
        raise SavepointError(
            f"'{link}' of the savepoint in {storage.where} is a link. Savepoints never contain links, so its target "
            f"might not belong to the savepoint.",
            fix="Check the link's target, then remove the directory manually. Nothing was changed.",
        )
    storage.delete(METADATA)
    storage.delete_below(SAVED_STATE)
    if isinstance(storage, LocalStorage):
        with suppress(OSError):
            storage.root.rmdir()
