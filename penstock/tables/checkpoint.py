"""A retained checkpoint, read as a savepoint is."""

from __future__ import annotations

import builtins
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from penstock.checkpoint.lineages import Lineages, SharedStorage
from penstock.checkpoint.manifest import BadManifest, Manifest, OperatorSnapshot, Version, load
from penstock.checkpoint.retention import Retention
from penstock.errors import PenstockError
from penstock.savepoint.format import METADATA, savepoint_storage
from penstock.state.storage import MissingObject, Storage, StorageError
from penstock.tables.savepoint import Savepoint
from penstock.tables.snapshot import Snapshot
from penstock.tables.sources import CheckpointBlocks

_MANIFESTS = "manifests/"
_MANIFEST = re.compile(r"(.*?)/?manifests/(\d{12})")
_LINEAGE = re.compile(r"([^/]+)/manifests/\d{12}")

_log = logging.getLogger(__name__)


class NotACheckpoint(PenstockError):
    """There is no checkpoint at a path.

    Operator action: give the job's folder below `state.checkpoints.dir`, the folder of one of its runs, or the file of
    one checkpoint below `manifests`.
    """


class Checkpoint(Snapshot):
    """Loaded with `Checkpoint.load(path)`. A running job may remove it, when it has completed later ones."""

    def __init__(self, storage: Storage, manifest: Manifest, version: Version) -> None:
        self._storage = storage
        self.manifest = manifest
        self.version = version

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        number: int | None = None,
        store_options: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        """Return the last checkpoint of a job, or the one with a number.

        Args:
            path: The job's folder below `state.checkpoints.dir`, that of one of its runs, or the file of a checkpoint.
            number: Of the checkpoint; the last one if it is left out, unless `path` names a file.
            store_options: Options of the object store, as fsspec takes them.
        """
        text = os.fspath(path).rstrip("/")
        named = _MANIFEST.fullmatch(text)
        if named is not None:
            text, number = named[1] or ".", int(named[2])
        storage = _newest_run(savepoint_storage(text, store_options))
        numbers = _numbers(storage)
        if number is None:
            number = numbers[-1]
        elif number not in numbers:
            raise NotACheckpoint(
                f"There is no checkpoint {number} in {storage.where}; there are {numbers[0]} to {numbers[-1]}."
            )
        return cls(storage, *load(storage, number))

    @classmethod
    def list(
        cls, path: str | os.PathLike[str], store_options: Mapping[str, Any] | None = None
    ) -> builtins.list[Checkpoint]:
        """Those that can be read, oldest first: of all runs of a job, or of one. Damaged ones are not among them."""
        root = savepoint_storage(os.fspath(path).rstrip("/"), store_options)
        return sorted(
            (each for storage in _runs(root) for each in cls.of(storage)),
            key=lambda each: (each.manifest.timestamp, each.manifest.id),
        )

    @classmethod
    def of(cls, storage: Storage) -> Iterator[Checkpoint]:
        """Those of one run that can be read."""
        retention = Retention(storage, 0)
        there = set(storage.list(""))
        for number in _numbers(storage):
            # A manifest may be there only for later ones to be read, and what it stands on be gone.
            with suppress(MissingObject, BadManifest):
                try:
                    manifest, version = load(storage, number)
                    readable = retention.needed(manifest) - {""} <= there
                except MissingObject:
                    raise
                except StorageError as error:
                    _log.warning("Checkpoint %d in %s is left out: %s", number, storage.where, error.statement())
                    continue
                if readable:
                    yield cls(storage, manifest, version)

    @property
    def path(self) -> str:
        """The number and the place of the checkpoint, for people."""
        return f"checkpoint {self.manifest.id} in {self._storage.where}"

    def snapshots(self) -> dict[str, OperatorSnapshot]:
        """The operators' snapshots by uid."""
        return self.manifest.operators

    def keyed_source(self, uid: str) -> CheckpointBlocks:
        """Return the stored blocks of an operator's keyed state."""
        return CheckpointBlocks(self._storage, self.version, self.manifest, uid)


def open_snapshot(path: str | os.PathLike[str], store_options: Mapping[str, Any] | None = None) -> Snapshot:
    """A savepoint, or else the last checkpoint of a job, whichever is at a path."""
    text = os.fspath(path)
    storage = savepoint_storage(text, store_options)
    if storage.exists(METADATA) or not (_MANIFEST.fullmatch(text.rstrip("/")) or _runs(storage)):
        return Savepoint.load(text, store_options)
    return Checkpoint.load(text, store_options=store_options)


def _numbers(storage: Storage) -> builtins.list[int]:
    return [int(name.rsplit("/", 1)[1]) for name in storage.list(_MANIFESTS) if _MANIFEST.fullmatch(name)]


def _runs(root: SharedStorage) -> builtins.list[SharedStorage]:
    """The folders with manifests: this one, or those of the runs of a job."""
    if _numbers(root):
        return [root]
    found = {match[1] for name in root.list("") if (match := _LINEAGE.fullmatch(name)) is not None}
    return [root.below(name) for name in sorted(found)]


def _newest_run(root: SharedStorage) -> SharedStorage:
    runs = _runs(root)
    if not runs:
        raise NotACheckpoint(
            f"There are no checkpoints in {root.where}.",
            fix="Give the job's folder below state.checkpoints.dir, or that of one of its runs.",
        )
    if len(runs) > 1:
        newest = Lineages(root).newest()
        for run in runs:
            if newest is not None and run.where == root.below(newest).where:
                return run
    return runs[-1]
