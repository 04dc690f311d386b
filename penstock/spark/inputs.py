"""Files for input that Spark cannot stream: collections and batch DataFrames."""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from penstock.common.options import BadSetting
from penstock.state.driver_storage import DriverStorage
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import AlreadyPublished, Storage


class LocalInputs:
    """Input files in a directory that executors can read: below the lineage's directory, or on the driver's disk.

    `source-0.done` is published when all files of a source are written, and contains the name of their folder. Drivers
    that start at the same time therefore use the same files.
    """

    own: Path | None = None
    """The directory that belongs to this driver alone, if Spark's log names files in it."""

    def __init__(self, root: Path) -> None:
        self._storage = LocalStorage(root)

    def folder(self, name: str, source: str, write: Callable[[Path], None]) -> Path:
        done = f"{name}.done"
        if not self._storage.exists(done):
            folder = f"{name}-{uuid.uuid4().hex[:8]}"
            _make_empty(self._storage.root / folder)
            write(self._storage.root / folder)
            try:
                self._storage.publish(done, folder.encode())
            except AlreadyPublished:
                self._storage.delete_below(folder)
        return self._storage.root / self._storage.read(done).decode()


class CopiedInputs:
    """Input files in a store that Spark cannot read, with a copy on each driver's disk.

    `inputs/source-0.done` is published when all files are in the store, and lists them in order.
    """

    def __init__(self, storage: Storage, own: Path, master: str) -> None:
        self._storage = storage
        self._master = master
        self._copied: set[Path] = set()
        self.own = own

    def folder(self, name: str, source: str, write: Callable[[Path], None]) -> Path:
        self._check_master(source)
        folder, done = self.own / name, f"inputs/{name}.done"
        if folder in self._copied:
            return folder
        if not self._storage.exists(done):
            self._upload(folder.with_name(f"{name}-written"), name, done, write)
        _make_empty(folder)
        for number, path in enumerate(json.loads(self._storage.read(done))):
            copy = folder / Path(path).name
            copy.write_bytes(self._storage.read(path))
            set_order(copy, number)
        self._copied.add(folder)
        return folder

    def _upload(self, written: Path, name: str, done: str, write: Callable[[Path], None]) -> None:
        _make_empty(written)
        write(written)
        attempt = uuid.uuid4().hex[:8]
        paths = []
        for number, file in enumerate(sorted(written.glob("*.parquet"))):
            paths.append(f"inputs/{name}/{attempt}-{number:06d}.parquet")
            self._storage.write(paths[-1], file.read_bytes())
        try:
            self._storage.publish(done, json.dumps(paths).encode())
        except AlreadyPublished:
            # Another driver's files are the input; delete ours.
            for path in paths:
                self._storage.delete(path)

    def _check_master(self, source: str) -> None:
        if not re.fullmatch(r"local(-cluster)?(\[.*\])?", self._master):
            raise BadSetting(
                f"The records of source '{source}' come from the driver (from_collection or a batch DataFrame), and "
                f"executors read them from files. With state.checkpoints.dir at {self._storage.where}, those files are "
                f"on the driver's disk, which the executors of {self._master} cannot read.",
                fix="Set state.checkpoints.dir to a directory that is mounted on every host, or read the records with "
                "from_source or from a streaming DataFrame.",
            )


def inputs_of(storage: Storage, scratch: Path, master: str) -> LocalInputs | CopiedInputs:
    """Return the inputs of a lineage in `storage`. `scratch` belongs to this driver alone."""
    if isinstance(storage, LocalStorage):
        return LocalInputs(storage.root / "inputs")
    if isinstance(storage, DriverStorage):
        return LocalInputs(scratch)
    return CopiedInputs(storage, scratch, master)


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def set_order(path: Path, number: int) -> None:
    # Spark reads files in order of their modification times, to the millisecond.
    moment = (1_000_000_000_000 + number) * 1_000_000
    os.utime(path, ns=(moment, moment))
