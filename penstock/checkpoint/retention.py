"""Retention: finds the files that the retained checkpoints need, and removes all others.

The first sweep of a driver lists the storage, which finds what a driver that died left behind. Later ones know the
names: those that the first one found, and those in the manifests since. A job that writes thousands of files per epoch
would otherwise list all of them every time. Some later sweeps list again, to find files of failed attempts.

A sweep touches no files of a running epoch, and no files that another driver wrote after this one was presumed dead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from penstock.checkpoint.base_runs import BaseRuns
from penstock.checkpoint.bases import oldest_walk
from penstock.checkpoint.manifest import Manifest, load, manifest_name
from penstock.checkpoint.pins import ServerPins
from penstock.checkpoint.wal import FORMER_WAL, WAL
from penstock.state.blocks import Blocks
from penstock.state.storage import MissingObject, Storage

_MANIFESTS, _DELTAS = "manifests/", "deltas/"
_FOLDERS = (_MANIFESTS, _DELTAS, "bases/")


class _Deltas(NamedTuple):
    """The delta files of one operator in one manifest."""

    uid: str
    blocks: Blocks
    files: list[tuple[str, list[int]]]
    """Names, and the blocks that they change."""


class Retention:
    """Manages the files of one lineage, for the driver that publishes its manifests."""

    def __init__(self, storage: Storage, retained: int, pins: ServerPins | None = None) -> None:
        """`retained` is the number of completed checkpoints that stay usable. `pins`: those of state servers."""
        self._storage = storage
        self._retained = retained
        self._pins = pins
        self._pinned: set[int] = set()
        """Checkpoints that state servers have pinned, all of whose files exist."""
        self._manifests: dict[int, Manifest] = {}
        self._deltas: dict[int, list[_Deltas]] = {}
        """Delta files of every manifest that a walk might pass."""
        self._known: set[str] | None = None
        """Manifests, deltas and bases that might exist; None before the first listing."""
        self._published: deque[Manifest] = deque()
        """Manifests since the last sweep, which can run in another thread. Only a sweep uses everything else."""

    def published(self, manifest: Manifest) -> None:
        """Add the next manifest. Can be called during a sweep."""
        self._published.append(manifest)

    def needed(self, last: Manifest, reading: Collection[int] = ()) -> set[str]:
        """Return all files that the retained checkpoints need. `reading`: older checkpoints still in use."""
        return self._files_of([self._manifest(number) for number in self.kept(last, reading)], last.id)

    def _files_of(self, kept: list[Manifest], last: int) -> set[str]:
        """Return all files that these checkpoints need to be read, and those from which replicas go on to `last`."""
        files = {base.name for each in kept for handles in each.bases.values() for base in handles.values()}
        files |= {manifest_name(number) for each in kept for number in each.log_index.values()}
        oldest = kept[0]
        # A later base of a retained checkpoint does not help earlier checkpoints.
        based = _BasedAt(oldest)
        for number in range(min(oldest_walk(oldest) + 1, oldest.id), last + 1):
            files.add(manifest_name(number))
            for uid, blocks, deltas in self._deltas_of(number):
                since = based.by_block(uid, blocks)
                files.update(name for name, changed in deltas if any(since[block] < number for block in changed))
        return files

    def kept(self, last: Manifest, reading: Collection[int] = ()) -> list[int]:
        """Return the retained checkpoints and the one before them, which a recovery needs to verify the parent link."""
        numbers = [number for number in range(last.id - self._retained, last.id) if self._there(number)]
        numbers += [number for number in reading if number < last.id]
        return sorted({*numbers, last.id})

    def sweep(self, last: Manifest, reading: Collection[int] = (), listing: bool = True) -> list[str]:
        """Remove files that no retained checkpoint needs, and return their names.

        With `listing`, this includes files that are in no manifest.
        """
        while self._published:
            self._add(self._published.popleft())
        if listing or self._known is None:
            self._known = {name for folder in _FOLDERS for name in self._storage.list(folder)}
        pinned = set() if self._pins is None else set(self._pins.numbers(last))
        self._pinned = {number for number in pinned if number in self._pinned or self._is_readable(number)}
        reading = [*reading, *self._pinned]
        needed = self.needed(last, reading)
        unneeded = self._known - needed
        gone = sorted(name for name in unneeded if self._is_garbage(name, last, reading))
        # Keep those of the last checkpoint: a driver that recovers from it commits them again.
        for folder in (WAL, FORMER_WAL):
            gone += [name for name in self._storage.list(folder) if _epoch(name) < last.id]
        for name in gone:
            if name.startswith(_MANIFESTS):
                # In ascending order, and before other files: see `fencing`.
                self._storage.delete(name)
        self._storage.delete_all(name for name in gone if not name.startswith(_MANIFESTS))
        self._known -= set(gone)
        kept = self.kept(last, reading)
        oldest = oldest_walk(self._manifest(kept[0]))
        self._manifests = {number: each for number, each in self._manifests.items() if number in kept}
        self._deltas = {number: each for number, each in self._deltas.items() if number >= oldest}
        return gone

    @staticmethod
    def _is_garbage(name: str, last: Manifest, reading: Collection[int]) -> bool:
        """Return whether a file that no retained checkpoint needs belongs to no running epoch and no later driver."""
        if name.startswith(_MANIFESTS):
            return _last_part(name) <= last.id
        if name.startswith(_DELTAS):
            return _epoch(name) <= last.id
        # Another driver might be about to announce a base of the last checkpoint.
        return _epoch(name) < last.id and _epoch(name) not in reading

    def _is_readable(self, number: int) -> bool:
        """Return whether all files of a checkpoint exist. A pin can come too late to keep them."""
        assert self._known is not None
        if number <= 0 or manifest_name(number) not in self._known:
            return False
        try:
            return self._files_of([self._manifest(number)], number) - {""} <= self._known
        except MissingObject:
            return False

    def _there(self, number: int) -> bool:
        return number > 0 and (number in self._manifests or self._storage.exists(manifest_name(number)))

    def _manifest(self, number: int) -> Manifest:
        if number not in self._manifests:
            self._remember(load(self._storage, number)[0])
        return self._manifests[number]

    def _add(self, manifest: Manifest) -> None:
        self._remember(manifest)
        if self._known is not None:
            self._known.add(manifest_name(manifest.id))
            self._known.update(name for each in self._deltas[manifest.id] for name, _ in each.files)
            bases = (base.name for handles in manifest.bases.values() for base in handles.values())
            self._known.update(name for name in bases if name)

    def _remember(self, manifest: Manifest) -> None:
        self._manifests[manifest.id] = manifest
        self._deltas[manifest.id] = _deltas_in(manifest)

    def _deltas_of(self, number: int) -> list[_Deltas]:
        deltas = self._deltas.get(number)
        if deltas is None:
            deltas = self._deltas[number] = _deltas_in(load(self._storage, number)[0])
        return deltas


def _deltas_in(manifest: Manifest) -> list[_Deltas]:
    return [
        _Deltas(uid, manifest.blocks[uid], files)
        for uid, snapshot in manifest.operators.items()
        if (files := [(delta.name, delta.blocks) for delta in snapshot.deltas if delta.inline is None])
    ]


class _BasedAt:
    """From which checkpoint on each block has a base, at one checkpoint."""

    def __init__(self, manifest: Manifest) -> None:
        self._runs = {uid: BaseRuns(handles) for uid, handles in manifest.bases.items()}
        self._found: dict[tuple[str, Blocks], list[int]] = {}

    def by_block(self, uid: str, blocks: Blocks) -> list[int]:
        """Return the checkpoint of the oldest base of each block, or -1 if a part of it has none."""
        found = self._found.get((uid, blocks))
        if found is None:
            runs = self._runs.get(uid, BaseRuns({}))
            found = [
                min(-1 if base is None else base.id for _, base in runs.parts(blocks.groups(block)))
                for block in blocks.numbers
            ]
            self._found[uid, blocks] = found
        return found


def _last_part(name: str) -> int:
    return int(name.rsplit("/", 1)[1])


def _epoch(name: str) -> int:
    return int(name.split("/")[1])
