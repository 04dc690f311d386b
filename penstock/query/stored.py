"""One queryable state at one checkpoint: from the entries of a replica to encoded values in their current type.

Values stay encoded: the client knows the types that it wants. TTL hides values by the clock of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import NamedTuple

from penstock.checkpoint.expiry import visible_at
from penstock.query.errors import WrongKind
from penstock.query.follower import Follower, Readable
from penstock.query.registry import QueryableState, find_state
from penstock.query.replica import BlockReplica, Entry
from penstock.runtime.windows.scopes import in_scope
from penstock.runtime.windows.window import NAME_LENGTH
from penstock.state.entries import entry_prefix, state_id
from penstock.state.files import GroupChanges, prefix_end
from penstock.state.key_groups import key_group_of
from penstock.state.ttl import STAMP, decode_elements, timed_name
from penstock.state.ttl_reader import with_time
from penstock.tables.layouts import is_windowed, parts_of, present

Parts = list[tuple[bytes, bytes]]
"""Map keys and values, all encoded. The map key is empty for other kinds; a list has one part per element."""

_first = itemgetter(0)
_PORTION = 4096
"""Entries of a map to read at a time at most."""
VALUES = ("value", "reducing", "aggregating")
"""The kinds with one value per key."""


class Place(NamedTuple):
    """A key, and the window if the state belongs to windows."""

    key: bytes
    window: bytes


class StoredState:
    """A keyed queryable state at one checkpoint. Used by any number of threads."""

    def __init__(self, readable: Readable, name: str) -> None:
        """Raises UnknownQueryableState, NotEnabled."""
        manifest = readable.manifest
        self.number = readable.version.id
        self.state: QueryableState = find_state(manifest, name)
        self.snapshot = manifest.operators[self.state.uid]
        self.form = self.snapshot.ttl.get(self.state.state)
        self.ids = [state_id(self.state.state)]
        if self.form is not None:
            self.ids.append(state_id(timed_name(self.state.state)))
        self._expiry = visible_at(manifest, self.state.uid)
        self._present = present(self.snapshot.migrations.get(self.state.state, ()))
        self._scoped = in_scope(self.state.state)
        self._direct = self.state.kind in VALUES and self.form is None and not self._scoped

    def group_of(self, key: bytes) -> int:
        """Return the key group of a key."""
        return key_group_of(key, self.state.max_parallelism)

    def get(self, follower: Follower, key: bytes, window: bytes = b"") -> Parts:
        """Return what a key has; empty if it has nothing. Raises CheckpointGone, NotServed, WrongKind."""
        group = self.group_of(key)
        replica = follower.replica(self.state.uid, group, self.state.max_parallelism)
        if self._direct:
            # The bulk of all reads.
            data = replica.get(self.number, group, entry_prefix(group, self.ids[0], key))
            return [] if data is None else [(b"", data if self._present is None else self._present(data))]
        found = {place.window: parts for place, parts in self._places(replica, group, key)}
        if window or not found.keys() - {b""}:
            return found.get(window, [])
        raise WrongKind(
            f"Queryable state '{self.state.name}' belongs to windows; the key has {len(found)} of them.",
            fix="Pass the window, such as window=(start, end) in milliseconds, or scan the state.",
        )

    def get_many(
        self, follower: Follower, keys: Sequence[bytes], window: bytes, count: Callable[[int], None]
    ) -> list[Parts]:
        """Return what each key has, as `get` does. `count` is called with the size of each answer, and can raise."""
        found: list[Parts]
        if not self._direct:
            found = []
            for key in keys:
                parts = self.get(follower, key, window)
                count(sum(len(map_key) + len(value) for map_key, value in parts))
                found.append(parts)
            return found
        wanted: dict[BlockReplica, list[tuple[int, int, bytes]]] = {}
        for place, key in enumerate(keys):
            group = self.group_of(key)
            replica = follower.replica(self.state.uid, group, self.state.max_parallelism)
            wanted.setdefault(replica, []).append((place, group, entry_prefix(group, self.ids[0], key)))
        found = [[] for _ in keys]
        present = self._present
        for replica, entries in wanted.items():
            # A replica on disk is opened once for all keys.
            stored = replica.get_many(self.number, [(group, entry) for _, group, entry in entries], count)
            for (place, _, _), data in zip(entries, stored, strict=True):
                if data is not None:
                    found[place] = [(b"", data if present is None else present(data))]
        return found

    def _places(self, replica: BlockReplica, group: int, key: bytes) -> Iterator[tuple[Place, Parts]]:
        ranges = [entry_prefix(group, number, key) for number in self.ids]
        return self._grouped(self._visible(replica, group, ranges))

    def places(self, replica: BlockReplica, group: int) -> Iterator[tuple[Place, Parts]]:
        """Yield everything that a key group has, in the order of the keys."""
        start = group.to_bytes(2, "big")
        ranges = [start + number.to_bytes(4, "big") for number in self.ids]
        return self._grouped(self._visible(replica, group, ranges))

    def visible(self, replica: BlockReplica, group: int, keys: list[bytes] | None = None) -> GroupChanges:
        """Return the entries of a key group in their stored form, without those that have expired.

        `keys`: the keys whose entries to return; None for all.
        """
        start = group.to_bytes(2, "big")
        prefixes = [
            prefix
            for number in sorted(self.ids)
            for prefix in (
                [start + number.to_bytes(4, "big")]
                if keys is None
                else sorted(entry_prefix(group, number, key) for key in keys)
            )
        ]
        found = [entry for prefix in prefixes for entry in self._entries(replica, group, prefix)]
        return GroupChanges(group, [], [*found])

    def map_entries(
        self, follower: Follower, key: bytes, start: bytes, end: bytes | None, portion: int
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the stored map keys in a range, with their values, in the order of the bytes.

        `portion`: how many to read at a time. For a state that does not belong to windows.
        """
        group = self.group_of(key)
        replica = follower.replica(self.state.uid, group, self.state.max_parallelism)
        streams = []
        for number in self.ids:
            prefix = entry_prefix(group, number, key)
            stop = prefix_end(prefix) if end is None else prefix + end
            streams.append(self._portions(replica, group, prefix + start, stop, portion))
        entries, skipped = streams[0], len(entry_prefix(group, self.ids[0], key))
        if self.form is not None:
            timed, form = self.ids[1].to_bytes(4, "big"), self.form
            stamped = ((full[:2] + timed + full[6:], with_time(data, form)) for full, data in streams[0])
            entries = merge(streams[1], stamped, key=_first)
        for full, data in entries:
            yield full[skipped:], self._current(data)

    def _portions(
        self, replica: BlockReplica, group: int, start: bytes, end: bytes | None, portion: int
    ) -> Iterator[Entry]:
        """Yield the entries of a range that have not expired."""
        while True:
            found = replica.first(self.number, group, start, end, portion)
            yield from self._unexpired(group, found)
            if len(found) < portion:
                return
            start = found[-1][0] + b"\0"
            portion = min(4 * portion, _PORTION)

    @property
    def scoped(self) -> bool:
        """Whether the state can belong to windows."""
        return self._scoped

    def _entries(self, replica: BlockReplica, group: int, prefix: bytes) -> list[Entry]:
        end = prefix_end(prefix)
        assert end is not None
        return self._unexpired(group, replica.between(self.number, group, prefix, end))

    def _unexpired(self, group: int, entries: list[Entry]) -> list[Entry]:
        if not entries or self.form is None:
            return entries
        left = self._expiry.rest(GroupChanges(group, [], [*entries])).entries
        return [(key, value) for key, value in left if value is not None]

    def _visible(self, replica: BlockReplica, group: int, ranges: list[bytes]) -> Iterator[Entry]:
        """Yield the entries below these prefixes, one for each id. Those of a state with TTL start with a timestamp."""
        plain = self._entries(replica, group, ranges[0])
        if self.form is None:
            return iter(plain)
        number, form = self.ids[1].to_bytes(4, "big"), self.form
        stamped = ((key[:2] + number + key[6:], with_time(data, form)) for key, data in plain)
        return merge(self._entries(replica, group, ranges[1]), stamped, key=_first)

    def _grouped(self, entries: Iterator[Entry]) -> Iterator[tuple[Place, Parts]]:
        last: Place | None = None
        parts: Parts = []
        for full, data in entries:
            place, rest = self.place_of(full)
            if place != last:
                if last is not None and parts:
                    yield last, parts
                last, parts = place, []
            if self.state.kind == "list":
                parts += [(b"", self._current(element)) for element in decode_elements(data)]
            else:
                parts.append((rest, self._current(data)))
        if last is not None and parts:
            yield last, parts

    def place_of(self, full: bytes) -> tuple[Place, bytes]:
        """Return the key and window of an entry, and the bytes that follow."""
        key, rest = parts_of(full)
        if self._scoped and is_windowed(self.state.state, self.state.kind, rest):
            return Place(key, rest[:NAME_LENGTH]), rest[NAME_LENGTH:]
        return Place(key, b""), rest

    def cleared_place(self, prefix: bytes) -> Place:
        """Return the key and window of a prefix whose entries were cleared. No map key follows."""
        key, rest = parts_of(prefix)
        return Place(key, rest if self._scoped else b"")

    def _current(self, data: bytes) -> bytes:
        """Return a stored value without its timestamp, in the current version of its type."""
        if self.form is not None:
            data = data[STAMP.size :]
        return data if self._present is None else self._present(data)

    def current_value(self, data: bytes) -> bytes:
        """Return a stored value in the current version of its type, for a state without TTL."""
        return self._current(data)

    def some_keys(self, follower: Follower, most: int = 100) -> list[bytes]:
        """Return some keys that have this state."""
        found: list[bytes] = []
        for replica in follower.runs(self.state.uid):
            for group in replica.groups:
                for place, _ in self.places(replica, group):
                    found.append(place.key)
                    if len(found) >= most:
                        return found
                if found:
                    break
        return found
