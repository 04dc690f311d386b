"""A savepoint: its contents, each state as a table, and its differences from another savepoint."""

from __future__ import annotations

import builtins
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from penstock.checkpoint.lineages import SharedStorage
from penstock.checkpoint.manifest import OperatorSnapshot
from penstock.errors import PenstockError
from penstock.savepoint.format import (
    Found,
    Metadata,
    SavedOperator,
    dispose_savepoint,
    list_savepoints,
    load_savepoint,
    savepoint_storage,
)
from penstock.state.entries import state_id
from penstock.state.ttl import timed_name
from penstock.tables.snapshot import TIMERS, Snapshot
from penstock.tables.sources import SavedBlocks

_log = logging.getLogger(__name__)


class StateSize(NamedTuple):
    """The size of a state."""

    entries: int
    bytes: int


class Savepoint(Snapshot):
    """A savepoint, loaded with ``Savepoint.load(path)``. It runs no saved code, and only ``state`` decodes values."""

    def __init__(self, storage: SharedStorage, metadata: Metadata) -> None:
        self._storage = storage
        self.metadata = metadata
        """The savepoint's metadata, by operator and source uid."""

    @classmethod
    def load(cls, path: str | os.PathLike[str], store_options: Mapping[str, Any] | None = None) -> Savepoint:
        """Load a savepoint.

        Args:
            path: Its directory, or a URI such as s3://bucket/path.
            store_options: Options of the object store, as fsspec accepts them.

        Raises:
            SavepointError: The path contains no savepoint, or a damaged one.
        """
        storage = savepoint_storage(os.fspath(path), store_options)
        return cls(storage, load_savepoint(storage))

    @staticmethod
    def list(directory: str | os.PathLike[str], store_options: Mapping[str, Any] | None = None) -> builtins.list[Found]:
        """Return the savepoints in a directory, oldest first, and the remains of incomplete ones."""
        return list_savepoints(savepoint_storage(os.fspath(directory), store_options))

    @property
    def path(self) -> str:
        """The location of the savepoint."""
        return self._storage.where

    @property
    def storage(self) -> SharedStorage:
        """The storage that holds the savepoint."""
        return self._storage

    def snapshots(self) -> dict[str, OperatorSnapshot]:
        """The operators' snapshots by uid."""
        return {uid: operator.snapshot for uid, operator in self.metadata.operators.items()}

    def keyed_source(self, uid: str) -> SavedBlocks:
        """Return the stored blocks of an operator's keyed state."""
        return SavedBlocks(self._storage, self.metadata.operators[uid])

    @property
    def operators(self) -> dict[str, SavedOperator]:
        """The operators by uid, including those without state."""
        return self.metadata.operators

    def positions(self) -> dict[str, builtins.list[str]]:
        """Return the positions of each source by uid, as logged by Spark; empty for a source that was not read."""
        lines = self.metadata.positions.lines
        return {uid: [line.position for line in lines.get(uid, [])] for uid in self.metadata.sources}

    def sizes(self, uid: str) -> dict[str, StateSize]:
        """Return the size of each keyed state of an operator. Reads all of its state."""
        operator = self.metadata.operators.get(uid)
        if operator is None:
            raise PenstockError(
                f"The savepoint in {self.path} has no operator with uid '{uid}', only {sorted(self.operators)}."
            )
        names = {state_id(form): name for name in operator.snapshot.states for form in (name, timed_name(name))}
        entries: Counter[str] = Counter()
        size: Counter[str] = Counter()
        source = self.keyed_source(uid)
        for block in source.blocks():
            for group in source.groups(block):
                for key, value in group.entries:
                    name = names.get(int.from_bytes(key[2:6], "big"), TIMERS)
                    entries[name] += 1
                    size[name] += len(key) + len(value or b"")
        return {name: StateSize(entries[name], size[name]) for name in sorted(entries)}

    def describe(self) -> str:
        """Return a readable summary of the savepoint."""
        return "\n".join(self._lines())

    def differences(self, other: Savepoint) -> builtins.list[str]:
        """Return the differences of ``other`` from this savepoint, one per line. Compares keyed state by block hash."""
        return list(map(str, self.compared(other)))

    def compared(self, other: Savepoint) -> builtins.list[Difference]:
        """Return the differences of ``other`` from this savepoint as objects."""
        return [*_operator_differences(self, other), *_source_differences(self, other)]

    def dispose(self) -> None:
        """Delete the savepoint permanently, and log it."""
        dispose_savepoint(self._storage)
        _log.info("Removed the savepoint in %s.", self._storage.where)

    def _lines(self) -> Iterator[str]:
        data = self.metadata
        made = datetime.fromtimestamp(data.created / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        yield f"savepoint {data.id} of job '{data.job}', in {self.path}"
        yield f"made {made} by Penstock {data.penstock}, of checkpoint {data.checkpoint} of lineage {data.lineage}"
        yield f"{data.size:,} bytes of keyed state in {len(data.files())} files"
        for uid, operator in data.operators.items():
            snapshot = operator.snapshot
            yield ""
            yield f"operator '{uid}'{_derived(operator.derived_uid)}: {snapshot.name}"
            if not operator.has_state:
                yield "  no state"
                continue
            yield (
                f"  parallelism {snapshot.parallelism} of at most {snapshot.max_parallelism}, "
                f"{operator.size:,} bytes in {len(operator.blocks)} blocks"
            )
            for name, kind in sorted(snapshot.states.items()):
                form = snapshot.ttl.get(name)
                lives = "" if form is None or form.ttl_ms is None else f", time to live {form.ttl_ms} ms"
                yield f"  {name}: {kind}{lives}"
            for kind, blocks in sorted(snapshot.timers.items()):
                if blocks:
                    yield f"  {kind.lower().replace('_', ' ')} timers, the first at {min(blocks.values())}"
            for name, elements in sorted(operator.operator_state().items()):
                mode = snapshot.operator_state[name].mode.lower()
                yield f"  operator state {name} ({mode}): {elements} elements"
        for uid, positions in self.positions().items():
            source = data.sources[uid]
            yield ""
            yield f"source '{uid}'{_derived(source.derived_uid)}: {source.name}, {source.records:,} records"
            yield from (f"  position {position}" for position in positions if position)


class Difference(NamedTuple):
    """One difference between two savepoints."""

    of: str
    """The kind of object that differs: "operator" or "source"."""
    uid: str
    what: str
    was: Any = None
    now: Any = None

    def __str__(self) -> str:
        change = "" if self.was is self.now is None else f" {_shown(self.was)} -> {_shown(self.now)}"
        return f"{self.of} '{self.uid}': {self.what}{change}"


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _operator_differences(one: Savepoint, other: Savepoint) -> Iterator[Difference]:
    olds, news = _stateful(one), _stateful(other)
    for uid in dict.fromkeys([*olds, *news]):
        before, after = olds.get(uid), news.get(uid)
        if before is None or after is None:
            yield Difference("operator", uid, "added" if before is None else "gone")
            continue
        old, new = before.snapshot, after.snapshot
        for what, was, now in (
            ("parallelism", old.parallelism, new.parallelism),
            ("max parallelism", old.max_parallelism, new.max_parallelism),
            ("blocks", len(before.all_blocks.numbers), len(after.all_blocks.numbers)),
            ("bytes", before.size, after.size),
            ("elements of operator state", sum(before.operator_state().values()), sum(after.operator_state().values())),
        ):
            if was != now:
                yield Difference("operator", uid, what, was, now)
        was_types, now_types = _types(old), _types(new)
        for state in sorted(was_types.keys() | now_types.keys()):
            was_type, is_type = was_types.get(state, "none"), now_types.get(state, "none")
            if was_type != is_type:
                yield Difference("operator", uid, state, was_type, is_type)
        if before.all_blocks != after.all_blocks:
            # Files with other key groups cannot be compared by their hashes.
            continue
        blocks = before.blocks.keys() | after.blocks.keys()
        changed = [number for number in blocks if before.blocks.get(number) != after.blocks.get(number)]
        if changed:
            yield Difference("operator", uid, f"{len(changed)} of {len(blocks)} blocks of keyed state differ")


def _types(snapshot: OperatorSnapshot) -> dict[str, str]:
    """Return the types of all states of an operator, by their descriptions in a difference."""
    of_operator = {
        f"operator state '{name}'": f"{each.mode} {each.schema}" for name, each in snapshot.operator_state.items()
    }
    return {f"state '{name}'": schema for name, schema in snapshot.states.items()} | of_operator


def _stateful(savepoint: Savepoint) -> dict[str, SavedOperator]:
    return {uid: operator for uid, operator in savepoint.operators.items() if operator.has_state}


def _source_differences(one: Savepoint, other: Savepoint) -> Iterator[Difference]:
    before, after = one.metadata.sources, other.metadata.sources
    for uid in dict.fromkeys([*before, *after]):
        if uid not in before or uid not in after:
            yield Difference("source", uid, "gone" if uid in before else "added")
            continue
        if before[uid].records != after[uid].records:
            yield Difference("source", uid, "records", before[uid].records, after[uid].records)
        if one.positions()[uid] != other.positions()[uid]:
            yield Difference("source", uid, "position", one.positions()[uid], other.positions()[uid])


def _derived(derived: bool) -> str:
    return " (derived)" if derived else ""
