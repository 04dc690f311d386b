"""The files that checkpoints need: by definition, and followed from one set of checkpoints to the next.

To read a checkpoint takes its bases and the manifests and deltas since the oldest of them. Manifests that hold Spark's
log belong to it as well.

`NeededFiles` finds the same files as `files_needed`, but visits only what has changed. Of 5,000 delta files per epoch
that stay for twenty epochs, it visits those whose blocks got a base.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from penstock.checkpoint.base_runs import BaseRuns
from penstock.checkpoint.bases import oldest_walk
from penstock.checkpoint.manifest import BaseHandle, Manifest, manifest_name
from penstock.runtime.report import DeltaHandle
from penstock.state.blocks import Blocks


def files_needed(kept: list[Manifest], last: int, manifest: Callable[[int], Manifest]) -> set[str]:
    """Return all files that these checkpoints need, and those from which replicas go on to checkpoint `last`.

    `kept` ascends. `manifest` returns a manifest by its number.
    """
    files = {base.name for each in kept for handles in each.bases.values() for base in handles.values()}
    files |= {manifest_name(number) for each in kept for number in each.log_index.values()}
    oldest = kept[0]
    # A later base of a retained checkpoint does not help earlier checkpoints.
    based: dict[tuple[str, Blocks], list[int]] = {}
    for number in walked(oldest, last):
        files.add(manifest_name(number))
        passed = manifest(number)
        for uid, deltas in _files_in(passed):
            where = uid, passed.blocks[uid]
            if where not in based:
                based[where] = _based(oldest.bases.get(uid, {}), where[1], where[1].numbers)
            files.update(delta.name for delta in deltas if _open_block(delta.blocks, based[where], number) != _NONE)
    files.discard("")
    return files


def walked(oldest: Manifest, last: int) -> range:
    """Return the manifests that walks from a checkpoint pass, and those from it to `last`."""
    return range(min(oldest_walk(oldest) + 1, oldest.id), last + 1)


class NeededFiles:
    """What the retained checkpoints need, and later ones: `add` each manifest in order, then `keep` the retained ones.

    A checkpoint that was added and then not retained cannot be retained again.
    """

    def __init__(self, oldest: Manifest) -> None:
        """`oldest`: the first retained checkpoint. The first manifest to add is the first one in `walked`."""
        self.oldest = oldest.id
        self.newest = 0
        self._kept: list[Manifest] = [oldest]
        self._walked_from = walked(oldest, oldest.id).start
        self._numbers: set[int] = set()
        """The manifests that the retained checkpoints need, and later ones."""
        self._deltas = _Deltas(oldest)
        self._bases = _Bases()

    def add(self, manifest: Manifest) -> list[str]:
        """Add the next manifest, and return the files that it announces."""
        self.newest = manifest.id
        self._numbers.add(manifest.id)
        return [manifest_name(manifest.id), *self._deltas.add(manifest), *self._bases.add(manifest)]

    def keep(self, kept: list[Manifest]) -> list[str]:
        """Retain these checkpoints only, in ascending order. Return the files that are not needed any more."""
        oldest = kept[0]
        if oldest.id > self.oldest:
            self._walked_from = walked(oldest, oldest.id).start
        self._kept, self.oldest = kept, oldest.id
        dropped = self._deltas.drop_older(oldest) + self._bases.drop([each.id for each in kept])
        needed = self._manifests()
        passed = self._numbers - needed
        self._numbers = needed
        return [*dropped, *map(manifest_name, sorted(passed))]

    def names(self) -> set[str]:
        """Return all files."""
        return {*map(manifest_name, self._manifests()), *self._deltas.names(), *self._bases.since}

    def _manifests(self) -> set[int]:
        logged = {number for each in self._kept for number in each.log_index.values()}
        return logged.union(range(self._walked_from, self.newest + 1))


class _File(msgspec.Struct, frozen=True, gc=False):
    """A delta file of one operator in one manifest."""

    number: int
    name: str
    blocks: list[int]


class _Deltas:
    """The delta files that a walk from the oldest retained checkpoint reads.

    A file is needed as long as one of its blocks has an older base. It waits for one such block at a time: only when
    this block gets a base, its other blocks matter.
    """

    def __init__(self, oldest: Manifest) -> None:
        self._oldest = oldest
        self._repeated: dict[str, int] = {}
        """How often a name occurs, if more than once: it consists of the checkpoint's number and a hash of the content.
        Other names are not kept: a dictionary of all of them would not fit into the caches of a processor."""
        self._based: dict[tuple[str, Blocks], list[int]] = {}
        self._waiting: dict[tuple[str, Blocks], dict[int, list[_File]]] = {}
        """Files by the block that they wait for."""
        self._shared: dict[int, list[int]] = {}
        """The newest list of blocks that begins with each block, instead of each list that is equal: most subtasks
        change the same blocks in every epoch."""

    def add(self, manifest: Manifest) -> list[str]:
        """Add the next manifest, and return the names of its files."""
        added: set[str] = set()
        for uid, deltas in _files_in(manifest):
            where = uid, manifest.blocks[uid]
            if where not in self._based:
                self._based[where] = _based(self._oldest.bases.get(uid, {}), where[1], where[1].numbers)
                self._waiting[where] = {}
            based, waiting, number = self._based[where], self._waiting[where], manifest.id
            for delta in deltas:
                if delta.name in added:
                    self._repeated[delta.name] = self._repeated.get(delta.name, 1) + 1
                added.add(delta.name)
                blocks = self._same(delta.blocks)
                # Without an open block, the next call of `drop_older` drops it.
                waiting.setdefault(_open_block(blocks, based, number), []).append(_File(number, delta.name, blocks))
        return [*added]

    def names(self) -> set[str]:
        """Return the names of the files."""
        return {file.name for waiting in self._waiting.values() for files in waiting.values() for file in files}

    def drop_older(self, oldest: Manifest) -> list[str]:
        """Make this the oldest retained checkpoint, and return the names of the files that it does not need."""
        before, self._oldest = self._oldest, oldest
        dropped: list[str] = []
        for where, based in self._based.items():
            uid, blocks = where
            waiting = self._waiting[where]
            changed = _changed(before.bases.get(uid, {}), oldest.bases.get(uid, {}), blocks)
            for block, checkpoint in zip(changed, _based(oldest.bases.get(uid, {}), blocks, changed), strict=True):
                based[block] = checkpoint
            for block in (*changed, _NONE):
                for file in waiting.pop(block, ()):
                    other = _open_block(file.blocks, based, file.number)
                    if other != _NONE:
                        waiting.setdefault(other, []).append(file)
                    elif self._drop(file.name):
                        dropped.append(file.name)
        return dropped

    def _same(self, blocks: list[int]) -> list[int]:
        """Return an equal list that other files have, or this one."""
        if not blocks:
            return blocks
        found = self._shared.setdefault(blocks[0], blocks)
        if found != blocks:
            found = self._shared[blocks[0]] = blocks
        return found

    def _drop(self, name: str) -> bool:
        """Return whether this was the last file of this name."""
        times = self._repeated.pop(name, 1)
        if times > 2:
            self._repeated[name] = times - 1
        return times == 1


_NONE = -1
"""No block."""


def _files_in(manifest: Manifest) -> Iterator[tuple[str, list[DeltaHandle]]]:
    """Yield the deltas of a manifest that are files, by operator."""
    for uid, snapshot in manifest.operators.items():
        if deltas := [delta for delta in snapshot.deltas if delta.inline is None]:
            yield uid, deltas


def _open_block(blocks: list[int], based: list[int], number: int) -> int:
    """Return one of the blocks of a delta of this manifest whose base is older, or `_NONE`."""
    for block in blocks:
        if based[block] < number:
            return block
    return _NONE


def _based(handles: Mapping[int, BaseHandle], blocks: Blocks, numbers: Collection[int]) -> list[int]:
    """Return the checkpoint of the oldest base of each of these blocks, or -1 if a part of the block has none."""
    runs = BaseRuns(handles)
    return [min(-1 if base is None else base.id for _, base in runs.parts(blocks.groups(number))) for number in numbers]


def _changed(before: Mapping[int, BaseHandle], after: Mapping[int, BaseHandle], blocks: Blocks) -> list[int]:
    """Return the blocks with newer bases. Manifests share the handles that did not change."""
    if before is after:
        return []
    found: set[int] = set()
    for first, handle in after.items():
        if before.get(first) is not handle and first < blocks.max_parallelism:
            found.update(blocks.touching(range(first, min(handle.end, blocks.max_parallelism))))
    return sorted(found)


class _Bases:
    """The bases of all retained checkpoints."""

    def __init__(self) -> None:
        self.since: dict[str, int] = {}
        """The first manifest that announced each file."""
        self._handles: dict[str, dict[int, BaseHandle]] = {}
        """Those of the newest manifest, by operator."""
        self._parts: dict[str, int] = {}
        """How many handles in it have each name: a file can be the base of several runs of key groups."""
        self._replaced: dict[str, int] = {}
        """The first manifest without the file, of those that older checkpoints might need."""

    def add(self, manifest: Manifest) -> list[str]:
        """Add the next manifest, and return the names of its new files."""
        announced, added, removed = [], list[str](), list[str]()
        for uid in self._handles.keys() | manifest.bases.keys():
            before, after = self._handles.get(uid, {}), manifest.bases.get(uid, {})
            if before is not after:
                added += _names_in(after, before)
                removed += _names_in(before, after)
        self._handles = manifest.bases
        for name in added:
            if name not in self.since:
                self.since[name] = manifest.id
                announced.append(name)
            self._parts[name] = self._parts.get(name, 0) + 1
            self._replaced.pop(name, None)
        for name in removed:
            self._parts[name] -= 1
            if not self._parts[name]:
                del self._parts[name]
                self._replaced[name] = manifest.id
        return announced

    def drop(self, kept: list[int]) -> list[str]:
        """Return the names of the files that neither these checkpoints nor later ones need, and forget them."""
        dropped = [
            name
            for name, end in self._replaced.items()
            if end <= kept[-1] and not any(self.since[name] <= number < end for number in kept)
        ]
        for name in dropped:
            del self._replaced[name], self.since[name]
        return dropped


def _names_in(handles: Mapping[int, BaseHandle], other: Mapping[int, BaseHandle]) -> Iterator[str]:
    """Yield the names of those that the other manifest does not have."""
    return (handle.name for first, handle in handles.items() if other.get(first) is not handle and handle.name)
