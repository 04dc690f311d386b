"""A savepoint: a job's state and positions in a directory of their own, in any storage, to be moved and copied.

    _metadata            what is in it; published last: without it there is no savepoint
    state/<hash>.arrow   a block of an operator's keyed state, as in the bases of checkpoints

All names in it are relative. A driver that dies while it makes or removes one leaves a savepoint or none: what is then
left over has no `_metadata`, is listed as incomplete, and can be disposed of.
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
from penstock.checkpoint.manifest import OperatorSnapshot, digest_of
from penstock.errors import PenstockError
from penstock.runtime.event_time import OperatorTime
from penstock.savepoint.positions import Positions
from penstock.savepoint.validation import contradiction
from penstock.state.files import content_name
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage
from penstock.state.storage import MissingObject, StorageError

FORMAT = 2
"""Before 2, no state's type had versions. All are read."""
METADATA = "_metadata"
PREFIX = "savepoint-"
_MAGIC = b"PENSTOCK SAVEPOINT\n"
_DIGEST_BYTES = 16
_LARGEST_METADATA = 1 << 30
"""It holds all operator state, which every checkpoint does as well: a gigabyte of it would stop any job."""

_log = logging.getLogger(__name__)


class SavepointError(PenstockError):
    """A savepoint cannot be used. Nothing was changed."""

    retryable = False


class NotASavepoint(SavepointError):
    """There is no savepoint at a path. Operator action: give the directory that holds `_metadata`."""


class IncompleteSavepoint(SavepointError):
    """Part of a savepoint is missing: it was never finished, is being removed, or was copied in part.

    Operator action: copy it again, or use another; what its maker left behind, `penstock savepoint -d` removes.
    """


class DamagedSavepoint(SavepointError):
    """A file of a savepoint is not what was written. Operator action: restore it from a copy, or use another."""


class NewerSavepoint(SavepointError):
    """A savepoint of a later version of Penstock. Operator action: run that version, or a later one."""


class SavedBlock(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    name: str
    """Relative, with the hash of the content in it."""
    size: int

    @property
    def checksum(self) -> str:
        return self.name.rsplit("/", 1)[1].partition(".")[0]

    def check(self, data: pa.Buffer, where: str) -> None:
        """Raise DamagedSavepoint unless its file, of the savepoint in `where`, is what was written."""
        if len(data) != self.size or content_name(memoryview(data)) != self.checksum:
            raise DamagedSavepoint(
                f"The savepoint in {where} is damaged: '{self.name}' does not have the size and hash it was written "
                f"with.",
                fix="Restore it from a copy, or use another savepoint. Nothing was changed.",
            )

    def missing(self, where: str) -> IncompleteSavepoint:
        """What is raised where its file is not there."""
        return IncompleteSavepoint(
            f"The savepoint in {where} is not complete: '{self.name}' is missing.",
            fix="Copy the whole directory, or use another savepoint. Nothing was changed.",
        )


class SavedOperator(msgspec.Struct, frozen=True, kw_only=True):
    snapshot: OperatorSnapshot
    """As the checkpoint has it, without the epoch's deltas."""
    derived_uid: bool
    """Whether nobody gave it a uid: then it has another one when the program changes."""
    blocks: dict[int, SavedBlock] = {}

    @property
    def size(self) -> int:
        """Bytes of its keyed state."""
        return sum(block.size for block in self.blocks.values())

    @property
    def keyed(self) -> bool:
        return bool(self.blocks) or self.snapshot.in_key_groups

    @property
    def has_state(self) -> bool:
        return self.keyed or bool(self.operator_state())

    def state_names(self) -> list[str]:
        """Of all its state, for people."""
        snapshot = self.snapshot
        timers = ["timers"] if any(snapshot.timers.values()) else []
        return [*sorted(snapshot.states), *timers, *sorted(self.operator_state())]

    def operator_state(self) -> dict[str, int]:
        """By name, the number of elements that all subtasks have of it, where there are any."""
        counts = {name: sum(map(len, shares.by_subtask)) for name, shares in self.snapshot.operator_state.items()}
        return {name: count for name, count in counts.items() if count}


class SavedSource(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    derived_uid: bool
    records: int
    """Read so far."""
    reader: str = ""
    """How its records came, as `graph.logical.Entry` has it."""
    copied: bool = False
    """Whether Spark streamed a copy of it that belongs to the lineage: then only `records` tells the position."""


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    penstock: str
    """The version that made it."""
    id: str
    job: str
    created: int
    """When it was made, in ms."""
    clock: int
    """Processing time of its checkpoint, in ms; it never goes back."""
    lineage: str
    checkpoint: int
    """Of that lineage. The restored job goes on counting from here: lists are stored by checkpoint."""
    batch: int | None
    """Spark's last batch."""
    operators: dict[str, SavedOperator]
    sources: dict[str, SavedSource]
    positions: Positions
    times: dict[str, OperatorTime]
    """Where event time stood, by operator uid."""

    @property
    def size(self) -> int:
        """Bytes of all keyed state."""
        return sum(operator.size for operator in self.operators.values())

    def blocks(self) -> list[SavedBlock]:
        return [block for operator in self.operators.values() for block in operator.blocks.values()]

    def files(self) -> set[str]:
        return {block.name for block in self.blocks()}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Metadata).decode


class Found(NamedTuple):
    """What `list_savepoints` found."""

    name: str
    where: str
    metadata: Metadata | None
    """None for what is no savepoint: `problem` says why."""
    problem: str = ""


def check_savepoint_directory(directory: SharedStorage) -> None:
    """Refuse a directory that no savepoint can be written to, before anything else is done for one."""
    try:
        if isinstance(directory, LocalStorage):
            directory.check()
        else:
            probe = f"probe-{uuid.uuid4().hex}"
            directory.write(probe, b"")
            directory.delete(probe)
    except StorageError as error:
        raise SavepointError(
            f"No savepoint can be made. {error.problem}",
            fix="Give a directory that this user can write, on a disk that is not full.",
        ) from None


def savepoint_storage(path: str, options: Mapping[str, Any] | None = None) -> SharedStorage:
    """A savepoint, or a directory of them, given as a path or URI. `options` are for the store at that URI."""
    path = path.rstrip("/").removesuffix(f"/{METADATA}") or "/"
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return LocalStorage(os.path.abspath(unquote(parts.path) if parts.scheme else path))
    return ObjectStorage(path, options)


def publish_metadata(storage: SharedStorage, metadata: Metadata) -> None:
    body = _encode(metadata)
    if len(body) > _LARGEST_METADATA - 1024:
        raise SavepointError(
            f"The metadata of the savepoint would have {len(body):,} bytes, at most {_LARGEST_METADATA:,} can be read "
            f"again: operator state is part of it.",
            fix="Keep large state in keyed state, or less of it in operator state.",
        )
    storage.publish(METADATA, _MAGIC + digest_of(body) + body)


def load_savepoint(storage: SharedStorage) -> Metadata:
    """What is in the savepoint; runs nothing of it. Raises a SavepointError that says what is wrong."""
    where = storage.where
    try:
        data = storage.read(METADATA, _LARGEST_METADATA)
    except MissingObject:
        if storage.list(f"{SAVED_STATE}/"):
            raise IncompleteSavepoint(
                f"The savepoint in {where} is not complete: it has state, but no {METADATA}. Either it is still being "
                f"made or removed, or that was broken off.",
                fix=f"Use another one. If nobody works on it, remove it: penstock savepoint -d {where}",
            ) from None
        raise NotASavepoint(
            f"There is no savepoint in {where}: it has no {METADATA}.",
            fix="Give the directory that was printed when the savepoint was made, or where it was moved to.",
        ) from None
    if not data.startswith(_MAGIC):
        raise NotASavepoint(
            f"{METADATA} in {where} is not of a savepoint of Penstock: it begins otherwise.",
            fix="Give the directory of one. Those of Flink cannot be read.",
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
                f"{head.get('format')}; this version reads up to {FORMAT}.",
                fix=f"Run Penstock {head.get('penstock')} or later.",
            )
        metadata = _decode(body)
        problem = contradiction(metadata)
        if problem is not None:
            raise DamagedSavepoint(
                f"{METADATA} of the savepoint in {where} was made by hand, or by another program: {problem}.",
                fix="Use another savepoint. Nothing was changed.",
            )
        return metadata
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise DamagedSavepoint(
            f"{METADATA} of the savepoint in {where} cannot be read: {error}",
            fix="Restore it from a copy, or use another savepoint. Nothing was changed.",
        ) from None


def list_savepoints(directory: SharedStorage) -> list[Found]:
    """All that lie in a directory, what was left of others, and those that cannot be read."""
    listed = []
    for name in directory.folders(PREFIX):
        storage = directory.below(name)
        try:
            listed.append(Found(name, storage.where, load_savepoint(storage)))
        except (SavepointError, StorageError) as error:
            # An empty directory is nothing that is left of a savepoint.
            if not (isinstance(error, NotASavepoint) and _is_empty(storage)):
                listed.append(Found(name, storage.where, None, error.statement()))
    return sorted(listed, key=lambda each: (0 if each.metadata is None else each.metadata.created, each.name))


def _is_empty(storage: SharedStorage) -> bool:
    try:
        return not storage.list("")
    except StorageError:
        return False


def dispose_claimed(storage: SharedStorage, identity: str) -> None:
    """Remove the savepoint with this id, which is a job's own by now. If that fails, the job goes on."""
    try:
        with suppress(IncompleteSavepoint):
            if load_savepoint(storage).id != identity:
                return
        dispose_savepoint(storage)
        _log.info("Removed the savepoint in %s, which its job has claimed and needs no longer.", storage.where)
    except NotASavepoint:
        # A driver before this one has removed it.
        pass
    except (SavepointError, StorageError) as error:
        _log.warning("The savepoint in %s is not needed any more, but could not be removed: %s", storage.where, error)


def dispose_savepoint(storage: SharedStorage) -> None:
    """Remove a savepoint, a damaged one too, or what is left of one. Touches no other file.

    `_metadata` goes first: from then on there is no savepoint, whatever happens.
    """
    try:
        load_savepoint(storage)
    except (DamagedSavepoint, NewerSavepoint, IncompleteSavepoint):
        pass
    link = storage.link_among(METADATA, SAVED_STATE) if isinstance(storage, LocalStorage) else None
    if link is not None:
        raise SavepointError(
            f"'{link}' of the savepoint in {storage.where} is a link, and no savepoint is made with one: what it leads "
            f"to may belong to something else.",
            fix="Look where the link leads, and remove the directory by hand. Nothing was changed.",
        )
    storage.delete(METADATA)
    storage.delete_below(SAVED_STATE)
    if isinstance(storage, LocalStorage):
        with suppress(OSError):
            storage.root.rmdir()
