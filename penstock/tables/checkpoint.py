"""Read retained checkpoints with the same API as savepoints."""

from __future__ import annotations

import builtins
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from penstock.checkpoint.lineages import Lineages, SharedStorage
from penstock.checkpoint.manifest import BadManifest, Manifest, OperatorSnapshot, Version, load
from penstock.checkpoint.needed_files import files_needed
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
    """The path contains no checkpoint.

    Operator action: pass the job's directory below ``state.checkpoints.dir``, the directory of one of its runs, or the
    file of one checkpoint below ``manifests``.
    """


class Checkpoint(Snapshot):
    """A checkpoint, loaded with ``Checkpoint.load(path)``. A running job can remove it after later ones."""

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
        """Load a job's latest checkpoint, or the one with a given number.

        Args:
            path: The job's directory below ``state.checkpoints.dir``, that of one of its runs, or a checkpoint's file.
            number: The checkpoint's number; the latest one by default, unless ``path`` is a file.
            store_options: Options of the object store, as fsspec accepts them.

        Raises:
            NotACheckpoint: The checkpoint does not exist.
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
                f"Checkpoint {number} does not exist in {storage.where}, which has {numbers[0]} to {numbers[-1]}."
            )
        return cls(storage, *load(storage, number))

    @classmethod
    def list(
        cls, path: str | os.PathLike[str], store_options: Mapping[str, Any] | None = None
    ) -> builtins.list[Checkpoint]:
        """Return the readable checkpoints of a job or of one of its runs, oldest first. Damaged ones are skipped."""
        root = savepoint_storage(os.fspath(path).rstrip("/"), store_options)
        return sorted(
            (each for storage in _runs(root) for each in cls.of(storage)),
            key=lambda each: (each.manifest.timestamp, each.manifest.id),
        )

    @classmethod
    def of(cls, storage: Storage) -> Iterator[Checkpoint]:
        """Yield the readable checkpoints of one run."""
        stored = cache(lambda number: load(storage, number)[0])
        there = set(storage.list(""))
        for number in _numbers(storage):
            # A manifest is sometimes kept only because later ones need it, after the files it refers to were removed.
            with suppress(MissingObject, BadManifest):
                try:
                    manifest, version = load(storage, number)
                    readable = files_needed([manifest], number, stored) <= there
                except MissingObject:
                    raise
                except StorageError as error:
                    _log.warning("Skipped checkpoint %d in %s: %s", number, storage.where, error.statement())
                    continue
                if readable:
                    yield cls(storage, manifest, version)

    @property
    def path(self) -> str:
        """The checkpoint's number and location, for display."""
        return f"checkpoint {self.manifest.id} in {self._storage.where}"

    def snapshots(self) -> dict[str, OperatorSnapshot]:
        """The operators' snapshots by uid."""
        return self.manifest.operators

    def keyed_source(self, uid: str) -> CheckpointBlocks:
        """Return the stored blocks of an operator's keyed state."""
        return CheckpointBlocks(self._storage, self.version, self.manifest, uid)


def open_snapshot(path: str | os.PathLike[str], store_options: Mapping[str, Any] | None = None) -> Snapshot:
    """Open the savepoint at a path, or else the latest checkpoint of the job at that path."""
    text = os.fspath(path)
    storage = savepoint_storage(text, store_options)
    if storage.exists(METADATA) or not (_MANIFEST.fullmatch(text.rstrip("/")) or _runs(storage)):
        return Savepoint.load(text, store_options)
    return Checkpoint.load(text, store_options=store_options)


def _numbers(storage: Storage) -> builtins.list[int]:
    return [int(name.rsplit("/", 1)[1]) for name in storage.list(_MANIFESTS) if _MANIFEST.fullmatch(name)]


def _runs(root: SharedStorage) -> builtins.list[SharedStorage]:
    """Return the directories that contain manifests: this one, or those of a job's runs."""
    if _numbers(root):
        return [root]
    found = {match[1] for name in root.list("") if (match := _LINEAGE.fullmatch(name)) is not None}
    return [root.below(name) for name in sorted(found)]


def _newest_run(root: SharedStorage) -> SharedStorage:
    runs = _runs(root)
    if not runs:
        raise NotACheckpoint(
            f"No checkpoints found in {root.where}.",
            fix="Pass the job's directory below state.checkpoints.dir, or that of one of its runs.",
        )
    if len(runs) > 1:
        newest = Lineages(root).newest()
        for run in runs:
            if newest is not None and run.where == root.below(newest).where:
                return run
    return runs[-1]
