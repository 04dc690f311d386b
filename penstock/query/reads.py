"""The reads of queryable state: a key, many keys, the entries of a map, a complete state, the changes of a checkpoint.

Every read is of one checkpoint. Keys and values are encoded; `values.py` decodes them in the client.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from penstock.query.errors import BadRequest, CheckpointGone, WrongKind
from penstock.query.follower import Follower, Readable, runs_of
from penstock.query.key_checks import declares_kind, decoded, missing
from penstock.query.map_ranges import Bounds, decoded_canonical, map_page
from penstock.query.registry import QueryableState, find_state
from penstock.query.replica import BlockReplica
from penstock.query.stored import VALUES, Parts, StoredState
from penstock.state.files import GroupChanges
from penstock.state.keys import decode_key
from penstock.tables.contents import KeyedContent, OperatorContent
from penstock.tables.keys import TEXT, KeyShape, shape_from_text
from penstock.tables.layouts import map_key_decoder
from penstock.tables.schemas import state_type

_CACHED = 256
_SAMPLED_RUNS = 2
KEY = b"penstock.key"
"""Metadata of the rows of a state: the shape of the column of keys, see `KeyShape.text`."""
_ROWS = 10_000
"""Changes in one piece of a stream."""


def shape_of(schema: pa.Schema) -> KeyShape:
    """Return the shape of the keys of rows with this schema."""
    found = schema.metadata.get(KEY)
    return TEXT if found is None else shape_from_text(found)


class MapRange(msgspec.Struct, kw_only=True, frozen=True):
    """Which entries of a map to read. All keys are encoded; the bounds compare as the decoded keys do."""

    prefix: bytes | None = None
    start: bytes | None = None
    """The first key."""
    stop: bytes | None = None
    """The key after the last one."""
    limit: int | None = None
    cursor: bytes | None = None
    """The last key of the previous page."""


class Page(NamedTuple):
    """Entries of a map, in the order of their keys."""

    parts: Parts
    cursor: bytes | None
    """Where the next page continues; None after the last one."""


class Change(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """A change to one key of a state, or to one entry of a map. Apply changes in order."""

    key: bytes
    window: bytes = b""
    map_key: bytes | None = None
    """The entry of a map that changed; None if `parts` is everything that the key has."""
    parts: Parts | None = None
    """What it has now; None if it has nothing."""


class ChangeSet(NamedTuple):
    """The changes of one checkpoint."""

    checkpoint: int
    reset: bool
    """Whether these are not changes but the complete state, because earlier checkpoints are gone."""
    changes: Iterator[list[Change]]


class Reads:
    """Reads the checkpoints of a follower. Used by any number of threads."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._opened: dict[tuple[bytes, str], StoredState] = {}
        self._samples: dict[str, list[bytes]] = {}
        """Some keys of each state, which show their type."""
        self._sampled: dict[QueryableState, tuple[KeyShape, bool]] = {}
        """The shape of the keys of each state, and whether it belongs to windows."""

    def state(self, readable: Readable, name: str) -> StoredState:
        """Return a keyed state at a checkpoint. Raises UnknownQueryableState, NotEnabled, WrongKind."""
        place = readable.version.digest, name
        state = self._opened.get(place)
        if state is None:
            state = StoredState(readable, name)
            if not state.state.keyed:
                raise WrongKind(
                    f"Queryable state '{name}' is operator state of kind {state.state.kind}, which has no keys.",
                    fix="Read all of it with scan().",
                )
            if len(self._opened) >= _CACHED:
                self._opened.clear()
            self._opened[place] = state
        return state

    def get(self, readable: Readable, name: str, key: bytes, window: bytes = b"") -> Parts:
        """Return what a key has. Raises UnknownKey, WrongKeyType, and the errors of `state` and `StoredState.get`."""
        state = self.state(readable, name)
        parts = state.get(self._follower, key, window)
        if not parts:
            raise missing(state.state, decoded(key), state.number, self._sample(state))
        return parts

    def get_many(
        self,
        readable: Readable,
        name: str,
        keys: list[bytes],
        window: bytes = b"",
        check: Callable[[int], None] = lambda size: None,
    ) -> list[Parts]:
        """Return what each key has; empty for a key that has nothing. Raises WrongKeyType.

        `check` is called with the size so far, and can raise.
        """
        state, follower = self.state(readable, name), self._follower
        size = 0

        def count(more: int) -> None:
            nonlocal size
            size += more
            check(size)

        found = state.get_many(follower, keys, window, count)
        absent = [key for key, parts in zip(keys, found, strict=True) if not parts]
        if absent:
            stored = self._sample(state)
            for key in absent:
                error = missing(state.state, decoded(key), state.number, stored)
                if error.code == "wrong-key-type":
                    raise error
        return found

    def _sample(self, state: StoredState) -> list[bytes]:
        if declares_kind(state.state):
            return []
        name = state.state.name
        # Reading a key group for every key that is missing would take longer than everything else.
        sample = self._samples.get(name) or state.some_keys(self._follower)
        self._samples[name] = sample
        return sample

    def entries(self, readable: Readable, name: str, key: bytes, wanted: MapRange, window: bytes = b"") -> Page:
        """Return entries of the map of a key. Raises WrongKind for another kind of state, and the errors of `get`."""
        state = self.state(readable, name)
        kind = state_type(f"{state.state.kind} {state.state.type}")
        if kind.key is None:
            raise WrongKind(
                f"Queryable state '{name}' is of kind {state.state.kind}, but only maps have entries.",
                fix="Read it with get().",
            )
        if not window and not state.scoped:
            page = self._range(state, key, wanted)
            if page is not None:
                return page
        map_key = map_key_decoder(kind.key)

        def shown(data: bytes) -> Any:
            # Keys of maps are stored as canonical keys, or by their declared type.
            return map_key(data) if data[:1] == b"\1" else decode_key(data[1:])

        found = [(shown(data), data, value) for data, value in self.get(readable, name, key, window)]
        try:
            found.sort(key=lambda entry: entry[0])
        except TypeError:
            found.sort(key=lambda entry: entry[1])
        try:
            return _page(found, wanted, shown)
        except (TypeError, AttributeError):
            raise BadRequest(
                f"The map keys of queryable state '{name}' are of type {kind.key.text}, which does not compare with "
                f"the bounds of the request.",
                fix="Pass bounds of the type of the map keys; a prefix needs map keys that are strings or bytes.",
            ) from None

    def _range(self, state: StoredState, key: bytes, wanted: MapRange) -> Page | None:
        """Return entries of a map without reading the others, if its keys have an order of bytes."""
        bounds = Bounds(
            start=None if wanted.start is None else decoded(wanted.start),
            after=None if wanted.cursor is None else _after(wanted.cursor),
            stop=None if wanted.stop is None else decoded(wanted.stop),
            prefix=None if wanted.prefix is None else decoded(wanted.prefix),
        )
        if wanted.cursor is not None and bounds.after is None:
            return None

        def read(start: bytes, end: bytes | None, portion: int) -> Iterator[tuple[bytes, bytes]]:
            return state.map_entries(self._follower, key, start, end, portion)

        found = map_page(read, bounds, wanted.limit)
        if found is None:
            return None
        parts, more = found
        return Page(parts, parts[-1][0] if more and parts else None)

    def scan(
        self,
        readable: Readable,
        name: str,
        keys_as_text: bool = False,
        keys: list[bytes] | None = None,
        blocks: Collection[int] | None = None,
    ) -> tuple[pa.Schema, Any]:
        """Return the columns of a state and an iterator of its rows, as state tables show them.

        `keys`: the keys whose rows to return, instead of all. The columns have the same types.
        `blocks`: those to read; None for all that this server has.

        Raises UnknownQueryableState, NotEnabled, WrongKind, NotServed; the iterator also MixedKeys.
        """
        manifest = readable.manifest
        found = find_state(manifest, name)
        snapshot = manifest.operators[found.uid]
        if not found.keyed:
            if keys is not None:
                raise WrongKind(
                    f"Queryable state '{name}' is operator state of kind {found.kind}, which has no keys.",
                    fix="Read all of it with scan().",
                )
            described = f"Queryable state '{name}' of operator '{found.operator}'"
            shares = OperatorContent(described, snapshot.operator_state[found.state], f"checkpoint {manifest.id}")
            return shares.schema, shares.batches(0)
        stored = self.state(readable, name)
        source = ReplicaBlocks(self._follower, stored, blocks)
        sampled = None if keys is None else self._sampled.get(stored.state)
        if sampled is None:
            content = KeyedContent(source, found.uid, snapshot, found.state)
            sampled = content.key, content.windowed
            if content.key.kind != "none":
                # To look at keys takes longer than to read one.
                self._sampled[stored.state] = sampled
        if keys is not None:
            source = ChosenKeys(self._follower, stored, keys, blocks)
        key = TEXT if keys_as_text else sampled[0]
        content = KeyedContent(source, found.uid, snapshot, found.state, key, sampled[1])
        schema = content.schema.with_metadata({KEY: key.text()})
        return schema, (batch for part in content.parts() for batch in content.batches(part))

    def changes(
        self, name: str, since: int | None, complete: int | None = None, blocks: Collection[int] | None = None
    ) -> ChangeSet:
        """Return the changes of the checkpoint after `since`.

        If that checkpoint is gone, or `since` is None, return the complete state: of the checkpoint `complete`, or of
        the newest one. `blocks` as in `scan`. Raises CheckpointNotReached, NotServed.
        """
        follower = self._follower
        if since is not None:
            follower.at(at_least=since + 1)
        if since is not None and since >= follower.oldest > 0:
            try:
                readable = follower.at(since + 1)
                rows = self._changed(self.state(readable, name), blocks)
                return ChangeSet(readable.version.id, False, iter([rows]))
            except CheckpointGone:
                pass
        readable = follower.at(complete)
        state = self.state(readable, name)
        replicas = self._follower.runs(state.state.uid, blocks)
        return ChangeSet(readable.version.id, True, self._complete(readable, state, replicas))

    def _complete(self, readable: Readable, state: StoredState, replicas: list[BlockReplica]) -> Iterator[list[Change]]:
        rows: list[Change] = []
        with self._follower.hold(readable.version.id):
            for replica in replicas:
                for group in replica.groups:
                    rows += [
                        Change(key=place.key, window=place.window, parts=parts)
                        for place, parts in state.places(replica, group)
                    ]
                    if len(rows) >= _ROWS:
                        yield rows
                        rows = []
        yield rows

    def _changed(self, state: StoredState, blocks: Collection[int] | None) -> list[Change]:
        rows: list[Change] = []
        for replica in self._follower.runs(state.state.uid, blocks):
            for group, change in sorted(replica.changes(state.number).items()):
                rows += self._rows(state, replica, group, change)
        return rows

    def _rows(self, state: StoredState, replica: BlockReplica, group: int, change: GroupChanges) -> Iterator[Change]:
        ids = {number.to_bytes(4, "big") for number in state.ids}
        cleared = [prefix for prefix in change.cleared if prefix[2:6] in ids]
        entries = [entry for entry in change.entries if entry[0][2:6] in ids]
        if state.state.kind == "map" and state.form is None:
            for prefix in cleared:
                place = state.cleared_place(prefix)
                yield Change(key=place.key, window=place.window)
            for full, data in entries:
                place, map_key = state.place_of(full)
                parts = None if data is None else [(b"", state.current_value(data))]
                yield Change(key=place.key, window=place.window, map_key=map_key, parts=parts)
            return
        if state.state.kind in VALUES and state.form is None:
            for full, data in entries:
                place, _ = state.place_of(full)
                parts = None if data is None else [(b"", state.current_value(data))]
                yield Change(key=place.key, window=place.window, parts=parts)
            return
        places = dict.fromkeys(
            [*map(state.cleared_place, cleared), *(state.place_of(full)[0] for full, _ in entries)],
        )
        for place in places:
            parts = state.get(self._follower, place.key, place.window) or None
            yield Change(key=place.key, window=place.window, parts=parts)


class ReplicaBlocks:
    """The replicas of a state at one checkpoint, as state tables read them. Keeps the checkpoint while it is read."""

    def __init__(self, follower: Follower, state: StoredState, blocks: Collection[int] | None = None) -> None:
        """`blocks`: those to read; None for all. Raises NotServed."""
        self._follower = follower
        self._state = state
        self._runs = runs_of(state.state.max_parallelism)
        self._replicas = {self._runs.of(each.groups.start): each for each in follower.runs(state.state.uid, blocks)}

    def blocks(self) -> list[int]:
        """Return the numbers of the runs that this server has."""
        return sorted(self._replicas)

    def block_of(self, group: int) -> int:
        """Return the run that contains a key group."""
        return self._runs.of(group)

    def sample(self) -> Iterator[tuple[int, Iterator[GroupChanges]]]:
        """Yield some runs with their key groups, for sampling keys."""
        sampled = 0
        for block in self.blocks():
            groups = (group for group in self.groups(block) if group.entries)
            first = next(groups, None)
            if first is not None:
                yield block, chain([first], groups)
                sampled += 1
            if sampled == _SAMPLED_RUNS:
                return

    def groups(self, block: int, wanted: range | None = None) -> Iterator[GroupChanges]:
        """Yield the key groups of a run with the entries of the state that have not expired."""
        replica = self._replicas[block]
        for group in replica.groups:
            if wanted is None or group in wanted:
                yield self._state.visible(replica, group)

    def named(self, block: int) -> str:
        """Return the location of a run for error messages."""
        return f"run {block} of checkpoint {self._state.number}"


class ChosenKeys(ReplicaBlocks):
    """Some keys of a state at one checkpoint."""

    def __init__(
        self, follower: Follower, state: StoredState, keys: list[bytes], blocks: Collection[int] | None = None
    ) -> None:
        super().__init__(follower, state, blocks)
        self._keys: dict[int, set[bytes]] = {}
        for key in keys:
            self._keys.setdefault(state.group_of(key), set()).add(key)

    def blocks(self) -> list[int]:
        """Return the numbers of the runs that this server has and that can contain the keys."""
        wanted = {self.block_of(group) for group in self._keys}
        return [block for block in super().blocks() if block in wanted]

    def groups(self, block: int, wanted: range | None = None) -> Iterator[GroupChanges]:
        """Yield the key groups of a run with the entries of the keys that have not expired."""
        replica = self._replicas[block]
        for group in sorted(group for group in self._keys if self.block_of(group) == block):
            if wanted is None or group in wanted:
                yield self._state.visible(replica, group, sorted(self._keys[group]))


def _after(cursor: bytes) -> Any:
    try:
        return decoded_canonical(cursor)
    except Exception as error:  # arbitrary bytes
        raise BadRequest(f"The cursor cannot be decoded: {error}.", fix="Pass the cursor of a page.") from None


def _page(found: list[tuple[Any, bytes, bytes]], wanted: MapRange, shown: Any) -> Page:
    if wanted.prefix is not None:
        prefix = decoded(wanted.prefix)
        found = [entry for entry in found if entry[0].startswith(prefix)]
    if wanted.start is not None:
        start = decoded(wanted.start)
        found = [entry for entry in found if entry[0] >= start]
    if wanted.stop is not None:
        stop = decoded(wanted.stop)
        found = [entry for entry in found if entry[0] < stop]
    if wanted.cursor is not None:
        try:
            after = shown(wanted.cursor)
        except Exception as error:  # arbitrary bytes
            raise BadRequest(f"The cursor cannot be decoded: {error}.", fix="Pass the cursor of a page.") from None
        found = [entry for entry in found if entry[0] > after]
    page = found if wanted.limit is None else found[: wanted.limit]
    cursor = page[-1][1] if page and len(page) < len(found) else None
    return Page([(data, value) for _, data, value in page], cursor)
