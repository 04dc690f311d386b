"""Retention: removes the files that no retained checkpoint needs.

The first sweep of a driver lists the storage, which finds what a driver that died left behind. Later ones know the
names: those that the first one found, and those in the manifests since. A job that writes thousands of files per epoch
would otherwise list all of them every time. Some later sweeps list again, to find files of failed attempts.

A sweep touches no files of a running epoch, and no files that another driver wrote after this one was presumed dead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from penstock.checkpoint.manifest import Manifest, load, manifest_name
from penstock.checkpoint.needed_files import NeededFiles, files_needed, walked
from penstock.checkpoint.pins import ServerPins
from penstock.checkpoint.wal import FORMER_WAL, WAL
from penstock.state.storage import MissingObject, Storage

_MANIFESTS, _DELTAS = "manifests/", "deltas/"
_FOLDERS = (_MANIFESTS, _DELTAS, "bases/")


class Retention:
    """Manages the files of one lineage, for the driver that publishes its manifests."""

    def __init__(self, storage: Storage, retained: int, pins: ServerPins | None = None) -> None:
        """`retained` is the number of completed checkpoints that stay usable. `pins`: those of state servers."""
        self._storage = storage
        self._retained = retained
        self._pins = pins
        self._manifests: dict[int, Manifest] = {}
        """The checkpoints that the last sweep has kept, and those published since: all of their files exist."""
        self._needed: NeededFiles | None = None
        """None before the first sweep, and after one that failed."""
        self._unneeded: set[str] | None = None
        """Files that might exist and that no retained checkpoint needs; None while `_needed` is."""
        self._missing: set[str] = set()
        """Files that are needed to go on from a checkpoint that was pinned late, and had been removed before."""
        self._published: deque[Manifest] = deque()
        """Manifests since the last sweep, which can run in another thread. Only a sweep uses everything else."""

    def published(self, manifest: Manifest) -> None:
        """Add the next manifest. Can be called during a sweep."""
        self._published.append(manifest)

    def kept(self, last: Manifest, reading: Collection[int] = ()) -> list[int]:
        """Return the retained checkpoints and the one before them, which a recovery needs to verify the parent link."""
        numbers = [number for number in range(last.id - self._retained, last.id) if self._there(number)]
        numbers += [number for number in reading if number < last.id]
        return sorted({*numbers, last.id})

    def sweep(self, last: Manifest, reading: Collection[int] = (), listing: bool = True) -> list[str]:
        """Remove files that no retained checkpoint needs, and return their names. `reading`: older ones still in use.

        With `listing`, this includes files that are in no manifest.
        """
        try:
            return self._sweep(last, reading, listing)
        except BaseException:
            # The next sweep lists the storage, and reads the manifests again.
            self._needed = self._unneeded = None
            self._manifests = {}
            raise

    def _sweep(self, last: Manifest, reading: Collection[int], listing: bool) -> list[str]:
        self._manifests[last.id] = last
        while self._published:
            manifest = self._published.popleft()
            self._manifests[manifest.id] = manifest
        newest = max(self._manifests)
        self._follow(newest)
        listed = self._listed() if listing or self._needed is None else None
        pinned = set() if self._pins is None else self._readable(self._pins.numbers(last), newest, listed)
        reading = [*reading, *pinned]
        numbers = self.kept(last, reading)
        followed = self._manifests.keys() >= {*numbers}
        kept = [self._manifest(number) for number in numbers]
        if self._needed is None or not followed:
            known = self._known() if listed is None else listed
            self._needed = self._from_scratch(kept[0], newest)
            self._needed.keep(kept)
            names = self._needed.names()
            unneeded, self._missing = sorted(known - names), names - known
        else:
            assert self._unneeded is not None
            unneeded = [*sorted(self._unneeded), *self._needed.keep(kept)]
            if listed is not None:
                unneeded = sorted(listed - self._needed.names())
        # Nearly all of them go, and a set of them would not fit into the caches of a processor.
        gone = list[str]()
        self._unneeded = set()
        for name in unneeded:
            if self._is_garbage(name, last, reading):
                gone.append(name)
            else:
                self._unneeded.add(name)
        # Keep those of the last checkpoint: a driver that recovers from it commits them again.
        for folder in (WAL, FORMER_WAL):
            gone += [name for name in self._storage.list(folder) if _epoch(name) < last.id]
        # In ascending order, and before other files: see `fencing`.
        for name in sorted(name for name in gone if name.startswith(_MANIFESTS)):
            self._storage.delete(name)
        self._storage.delete_all(name for name in gone if not name.startswith(_MANIFESTS))
        stay = {*numbers}
        self._manifests = {each.id: each for each in self._manifests.values() if each.id in stay or each.id > last.id}
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

    def _follow(self, newest: int) -> None:
        """Add the manifests since the last sweep. After a failed commit, `published` has not been called with one."""
        if self._needed is None or self._unneeded is None:
            return
        for number in range(self._needed.newest + 1, newest + 1):
            added = self._needed.add(self._manifest(number))
            if self._unneeded:
                # A listing might have found its files before.
                self._unneeded.difference_update(added)

    def _from_scratch(self, oldest: Manifest, newest: int) -> NeededFiles:
        """Read all manifests that walks from a checkpoint pass, and those since."""
        needed = NeededFiles(oldest)
        for number in walked(oldest, newest):
            needed.add(self._stored(number))
        return needed

    def _listed(self) -> set[str]:
        return {name for folder in _FOLDERS for name in self._storage.list(folder)}

    def _known(self) -> set[str]:
        """Return all files that might exist. They exist unless another process has removed them."""
        assert self._needed is not None
        assert self._unneeded is not None
        return (self._needed.names() | self._unneeded) - self._missing

    def _readable(self, numbers: Collection[int], newest: int, listed: set[str] | None) -> set[int]:
        """Return the checkpoints of these whose files exist. A pin can come too late to keep them."""
        late = [number for number in numbers if number not in self._manifests]
        if late:
            known = self._known() if listed is None else listed
            late = [number for number in late if not self._is_readable(number, newest, known)]
        return {*numbers} - {*late}

    def _is_readable(self, number: int, newest: int, known: set[str]) -> bool:
        # All later ones as well: while it is kept, sweeps visit the manifests from it to the last one.
        if number <= 0 or not all(manifest_name(each) in known for each in range(number, newest + 1)):
            return False
        try:
            return files_needed([self._stored(number)], number, self._stored) <= known
        except MissingObject:
            return False

    def _stored(self, number: int) -> Manifest:
        manifest = self._manifests.get(number)
        return load(self._storage, number)[0] if manifest is None else manifest

    def _there(self, number: int) -> bool:
        return number > 0 and (number in self._manifests or self._storage.exists(manifest_name(number)))

    def _manifest(self, number: int) -> Manifest:
        return self._manifests.setdefault(number, self._stored(number))


def _last_part(name: str) -> int:
    return int(name.rsplit("/", 1)[1])


def _epoch(name: str) -> int:
    return int(name.split("/")[1])
