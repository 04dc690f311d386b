"""The history of one key: its state in every available checkpoint and savepoint."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from penstock.savepoint.format import METADATA, savepoint_storage
from penstock.state.storage import MissingObject
from penstock.tables.checkpoint import Checkpoint, NotACheckpoint
from penstock.tables.contents import KeyedContent
from penstock.tables.savepoint import Savepoint
from penstock.tables.snapshot import NoSuchState, Snapshot
from penstock.tables.table import StateTable


class KeyVersion(NamedTuple):
    """The state of a key in one checkpoint or savepoint."""

    checkpoint: int
    time: int
    """Processing time of the checkpoint, in milliseconds."""
    value: Any
    """The key's value (see ``value_of``), or None if the key had no state."""
    path: str


def history(
    path: str | os.PathLike[str] | list[str],
    uid: str,
    state: str,
    key: Any,
    store_options: Mapping[str, Any] | None = None,
) -> list[KeyVersion]:
    """Return the state of a key over time, oldest first.

    The value is None for a snapshot in which the operator or the state does not exist yet.

    Args:
        path: A job's directory below ``state.checkpoints.dir``, a savepoint, a directory of savepoints, or a list of
            these.
        uid: The operator's uid.
        state: The state's name.
        key: The key.
        store_options: Options of the object store, as fsspec accepts them.
    """
    paths = path if isinstance(path, list) else [os.fspath(path)]
    moments = []
    for snapshot in (found for each in paths for found in snapshots_in(each, store_options)):
        try:
            table = snapshot.state(uid, state)
            value = value_of(table, table.get(key))
        except NoSuchState:
            value = None
        except MissingObject:
            # A running job has just removed it.
            continue
        number, time = when(snapshot)
        moments.append(KeyVersion(number, time, value, snapshot.path))
    return sorted(moments, key=lambda moment: (moment.time, moment.checkpoint))


def snapshots_in(path: str, store_options: Mapping[str, Any] | None = None) -> Iterator[Snapshot]:
    """Yield the savepoint at a path, or all checkpoints and savepoints below it. Damaged ones are skipped."""
    if savepoint_storage(path, store_options).exists(METADATA):
        yield Savepoint.load(path, store_options)
        return
    found: list[Snapshot] = [*Checkpoint.list(path, store_options)]
    found += [
        Savepoint.load(each.where, store_options) for each in Savepoint.list(path, store_options) if each.metadata
    ]
    if not found:
        raise NotACheckpoint(
            f"No checkpoints or savepoints found in {path}.",
            fix="Pass a job's directory below state.checkpoints.dir, or the directory of its savepoints.",
        )
    yield from found


def when(snapshot: Snapshot) -> tuple[int, int]:
    """Return the number of the snapshot's checkpoint, and its time."""
    if isinstance(snapshot, Savepoint):
        return snapshot.metadata.checkpoint, snapshot.metadata.clock
    assert isinstance(snapshot, Checkpoint)
    return snapshot.manifest.id, snapshot.manifest.timestamp


def value_of(table: StateTable, rows: list[dict[str, Any]]) -> Any:
    """Combine a key's rows: a value for value state, a list, (map key, value) pairs; otherwise the rows themselves."""
    content = table.content
    plain = isinstance(content, KeyedContent) and not content.windowed and not content.timers
    return combined(content.type.kind if plain and isinstance(content, KeyedContent) else "", rows)


def combined(kind: str, rows: list[dict[str, Any]]) -> Any:
    """Combine the rows of a key of this kind of state; an empty kind stands for states of windows and others."""
    if not rows:
        return None
    if kind == "list":
        return [row["value"] for row in rows]
    if kind == "map":
        return [(row["map_key"], row["value"]) for row in rows]
    if kind in ("value", "reducing", "aggregating"):
        return rows[0]["value"]
    return [{name: value for name, value in row.items() if name != "key"} for row in rows]
