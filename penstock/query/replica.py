"""A replica of some key groups of one operator, which keeps several checkpoints readable.

The engine holds the oldest of them, or one before it. Above it lie the changes of each later checkpoint, as the deltas
have them. A new checkpoint therefore costs what it costs a task: to read its changes, and to apply those of the
checkpoint that leaves.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from penstock.checkpoint.bases import block_groups
from penstock.checkpoint.manifest import Version, encode_version
from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.query.errors import CheckpointGone, NotServed
from penstock.state.engines.base import Engine, EngineError, Reader
from penstock.state.files import GroupChanges, IndexedChanges, merge_changes, read_changes
from penstock.state.storage import Storage

Entry = tuple[bytes, bytes]
_first = itemgetter(0)
_key_and_age = itemgetter(0, 1)

_FEW = 0.05
"""Changes, in proportion to the entries of a key group, that are cheaper to apply one by one."""


class Layer(NamedTuple):
    """The changes of one checkpoint to one operator. Its replicas share them."""

    version: Version
    changes: dict[int, IndexedChanges]
    """By key group."""


def read_layer(
    storage: Storage, uid: str, before: Version, version: Version, max_parallelism: int, wanted: frozenset[int] | None
) -> Layer | None:
    """Return the changes from a checkpoint to the next one, or None if the replicas must be built again.

    All replicas of an operator read them together: each file is opened and its index is decoded once. `wanted`: the key
    groups to read; None for all.
    """
    chain = ManifestChain(storage, version)
    steps = chain.steps(uid, range(max_parallelism), encode_version(before))
    if steps is None:
        return None
    changes: dict[int, list[IndexedChanges]] = {}
    for step in steps:
        groups = step.groups if wanted is None else frozenset(group for group in wanted if group in step.groups)
        for change in read_changes(step.data, groups, name=step.name):
            changes.setdefault(change.group, []).append(_indexed(change))
    merged = {group: each[0] if len(each) == 1 else _indexed(merge_changes([*each])) for group, each in changes.items()}
    return Layer(version, merged)


def _indexed(change: GroupChanges) -> IndexedChanges:
    return IndexedChanges(change.group, change.cleared, dict(change.entries))


class BlockReplica:
    """The state of some key groups of an operator at several checkpoints. Only one thread advances it."""

    def __init__(self, storage: Storage, uid: str, groups: range, engine: Engine, collected: int = 1) -> None:
        """`collected`: how many checkpoints that leave are applied together. Until then, their changes are in memory.

        Each apply to a replica on disk has a fixed cost: RocksDB writes a file.
        """
        self._collected = collected
        # Not all replicas of an operator at the same checkpoint.
        self._patience = 1 + groups.start // max(1, len(groups)) % collected
        self._storage = storage
        self._uid = uid
        self.groups = groups
        self._engine = engine
        self._lock = threading.Lock()
        self._position: bytes | None = None
        """Where the engine is. If it is elsewhere, something changed or removed its files."""
        self.lost = False
        """Whether the replica must be built again, because its files are gone or damaged."""
        self._oldest = 0
        self._layers: list[Layer] = []

    @property
    def oldest(self) -> int:
        """The oldest readable checkpoint."""
        return self._oldest

    @property
    def newest(self) -> int:
        """The newest readable checkpoint."""
        return self._layers[-1].version.id if self._layers else self._oldest

    def build(self, version: Version) -> None:
        """Read the complete state of a checkpoint. No earlier one is readable then."""
        position = encode_version(version)
        if self._engine.position() is not None:
            self._engine.reset()
        if not self._engine.apply(None, _Complete(self._storage, self._uid, self.groups, version), position):
            raise EngineError(
                f"Something else changed the replica of key groups {self.groups.start} to {self.groups.stop - 1} of "
                f"operator '{self._uid}' while the state server built it. It is built again."
            )
        self._engine.trim()
        self._position = position
        self._oldest = version.id
        self._layers = []

    def add(self, layer: Layer) -> None:
        """Make the changes of a checkpoint readable."""
        with self._lock:
            self._layers.append(layer)

    def retire(self, oldest: int) -> None:
        """Drop the checkpoints before this one."""
        leaving = [layer for layer in self._layers if layer.version.id <= oldest]
        if not leaving:
            return
        with self._lock:
            self._oldest = leaving[-1].version.id
            if len(leaving) < self._patience:
                return
            changes = [layer.changes[group] for layer in leaving for group in self.groups if group in layer.changes]
            if changes:
                position = encode_version(leaving[-1].version)
                if not self._engine.apply(self._position, changes, position):
                    self.lost = True
                    return
                self._position = position
            # Only now: on a full disk, the changes stay above the engine.
            del self._layers[: len(leaving)]
            self._patience = self._collected

    def get(self, number: int, group: int, entry: bytes) -> bytes | None:
        """Return the value of an entry at a checkpoint, or None. Raises CheckpointGone."""
        with self._lock:
            self._check(number)
            for layer in reversed(self._layers):
                change = layer.changes.get(group) if layer.version.id <= number else None
                if change is None:
                    continue
                if entry in change.by_key:
                    return change.by_key[entry]
                if change.cleared and any(entry.startswith(prefix) for prefix in change.cleared):
                    return None
            try:
                with self._engine.reader() as reader:
                    if reader.position == self._position:
                        return reader.get(entry)
            except EngineError as error:
                raise self._unreadable(str(error)) from error
            raise self._unreadable("its files are gone")

    def get_many(
        self, number: int, entries: Sequence[tuple[int, bytes]], count: Callable[[int], None]
    ) -> list[bytes | None]:
        """Return the values of entries, each with its key group, as `get` does. `count` is called with each size."""
        found: list[bytes | None] = []
        with self._lock:
            self._check(number)
            layers = [layer.changes for layer in reversed(self._layers) if layer.version.id <= number]
            with self._reader() as reader:
                for group, entry in entries:
                    value = _above(layers, group, entry, reader)
                    if value is not None:
                        count(len(value))
                    found.append(value)
        return found

    def between(self, number: int, group: int, start: bytes, end: bytes) -> list[Entry]:
        """Return the entries of a key group with `start` <= key < `end` at a checkpoint, in order.

        Raises CheckpointGone.
        """
        with self._lock:
            self._check(number)
            with self._reader() as reader:
                stored = list(reader.between(start, end))
            layers = [
                _within(layer.changes[group], start, end)
                for layer in self._layers
                if layer.version.id <= number and group in layer.changes
            ]
        for layer in layers:
            stored = _changed(stored, layer)
        return stored

    def first(self, number: int, group: int, start: bytes, end: bytes | None, most: int) -> list[Entry]:
        """Return the first entries of a range, as `between` does. Reads little more than those.

        Raises CheckpointGone.
        """
        with self._lock:
            self._check(number)
            layers = [
                layer.changes[group] for layer in self._layers if layer.version.id <= number and group in layer.changes
            ]
            with self._reader() as reader:
                return list(islice(_merged(reader.between(start, end), layers, start, end), most))

    def changes(self, number: int) -> Mapping[int, GroupChanges]:
        """Return the changes of a checkpoint by key group. Raises CheckpointGone."""
        with self._lock:
            self._check(number - 1)
            found = next((layer.changes for layer in self._layers if layer.version.id == number), {})
            return {group: found[group] for group in self.groups if group in found}

    def close(self) -> None:
        """Release the memory of the replica, and refuse further reads."""
        with self._lock:
            self._layers = []
            self._oldest = 1 << 62
            self._engine.close()

    @contextmanager
    def _reader(self) -> Iterator[Reader]:
        try:
            with self._engine.reader() as reader:
                if reader.position != self._position:
                    raise self._unreadable("its files are gone")
                yield reader
        except EngineError as error:
            raise self._unreadable(str(error)) from error

    def _unreadable(self, why: str) -> NotServed:
        self.lost = True
        return NotServed(
            f"The state server must read key groups {self.groups.start} to {self.groups.stop - 1} of operator "
            f"'{self._uid}' from the checkpoints again: {why.removesuffix('.')}.",
            fix="Try again in a moment.",
        )

    def _check(self, number: int) -> None:
        if number < self._oldest:
            raise gone(number, self._oldest)


class _Complete:
    """The complete state of some key groups, which can be read repeatedly and is never in memory as a whole."""

    def __init__(self, storage: Storage, uid: str, groups: range, version: Version) -> None:
        self._chain, self._uid, self._groups = ManifestChain(storage, version), uid, groups

    def __iter__(self) -> Iterator[GroupChanges]:
        return block_groups(self._chain, self._uid, self._groups)


def gone(number: int, oldest: int) -> CheckpointGone:
    """Return the error for a checkpoint that is not readable any more."""
    return CheckpointGone(
        f"Checkpoint {number} is not readable any more; the oldest is {oldest}.",
        fix="Read a later one, or raise queryable-state.retained-checkpoints.",
    )


def key_group_range(group: int) -> tuple[bytes, bytes]:
    """Return the range of all entries of a key group."""
    return group.to_bytes(2, "big"), (group + 1).to_bytes(2, "big")


def _above(layers: list[dict[int, IndexedChanges]], group: int, entry: bytes, reader: Reader) -> bytes | None:
    """Return the value of an entry after changes, the newest first."""
    for changes in layers:
        change = changes.get(group)
        if change is None:
            continue
        if entry in change.by_key:
            return change.by_key[entry]
        if change.cleared and any(entry.startswith(prefix) for prefix in change.cleared):
            return None
    return reader.get(entry)


def _within(change: GroupChanges, start: bytes, end: bytes) -> GroupChanges:
    entries = change.entries
    low = bisect_left(entries, start, key=_first)
    high = bisect_left(entries, end, low, key=_first)
    cleared = [prefix for prefix in change.cleared if prefix < end and (prefix >= start or start.startswith(prefix))]
    return GroupChanges(change.group, cleared, entries[low:high])


def _merged(
    stored: Iterator[Entry], layers: Sequence[GroupChanges], start: bytes, end: bytes | None
) -> Iterator[Entry]:
    """Yield sorted entries after changes, the oldest first, one by one."""
    if not layers:
        yield from stored
        return

    def of_layer(age: int, change: GroupChanges) -> Iterator[tuple[bytes, int, bytes | None]]:
        entries = change.entries
        for place in range(bisect_left(entries, start, key=_first), len(entries)):
            key, value = entries[place]
            if end is not None and key >= end:
                return
            yield key, -age, value

    sources = [of_layer(age, change) for age, change in enumerate(layers, 1)]
    last: bytes | None = None
    # For each key, the newest layer comes first.
    for key, age, value in merge(((key, 0, value) for key, value in stored), *sources, key=_key_and_age):
        if key == last:
            continue
        last = key
        if value is not None and not any(key.startswith(prefix) for each in layers[-age:] for prefix in each.cleared):
            yield key, value


def _changed(entries: list[Entry], change: GroupChanges) -> list[Entry]:
    """Return sorted entries after a change. Can change the list that is passed."""
    if change.cleared or len(change.entries) > _FEW * len(entries):
        merged = merge_changes([GroupChanges(change.group, [], [*entries]), change], as_base=True)
        return [(key, value) for key, value in merged.entries if value is not None]
    # A scan of a million keys with ten checkpoints above them would spend half of its time merging.
    for key, value in change.entries:
        place = bisect_left(entries, key, key=_first)
        found = place < len(entries) and entries[place][0] == key
        if value is None:
            del entries[place : place + found]
        elif found:
            entries[place] = key, value
        else:
            entries.insert(place, (key, value))
    return entries
