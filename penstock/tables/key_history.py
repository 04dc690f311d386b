"""What became of one key: its state in every checkpoint and savepoint that is there."""

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
    """One key's state at one checkpoint or savepoint."""

    checkpoint: int
    time: int
    """Processing time of the checkpoint, in milliseconds."""
    value: Any
    """As `value_of` has it; None where the key had nothing."""
    path: str


def history(
    path: str | os.PathLike[str] | list[str],
    uid: str,
    state: str,
    key: Any,
    store_options: Mapping[str, Any] | None = None,
) -> list[KeyVersion]:
    """The state of a key over time, oldest first.

    `path`: a job's folder below `state.checkpoints.dir`, a savepoint, a directory of them, or a list of such. Where an
    operator or a state was not there yet, the key had nothing.
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
            # A running job has removed it meanwhile.
            continue
        number, time = when(snapshot)
        moments.append(KeyVersion(number, time, value, snapshot.path))
    return sorted(moments, key=lambda moment: (moment.time, moment.checkpoint))


def snapshots_in(path: str, store_options: Mapping[str, Any] | None = None) -> Iterator[Snapshot]:
    """The savepoint at a path, or all checkpoints and savepoints below it. What is damaged is left out."""
    if savepoint_storage(path, store_options).exists(METADATA):
        yield Savepoint.load(path, store_options)
        return
    found: list[Snapshot] = [*Checkpoint.list(path, store_options)]
    found += [
        Savepoint.load(each.where, store_options) for each in Savepoint.list(path, store_options) if each.metadata
    ]
    if not found:
        raise NotACheckpoint(
            f"There are no checkpoints and no savepoints in {path}.",
            fix="Give a job's folder below state.checkpoints.dir, or where its savepoints are.",
        )
    yield from found


def when(snapshot: Snapshot) -> tuple[int, int]:
    """The number of its checkpoint, and its time."""
    if isinstance(snapshot, Savepoint):
        return snapshot.metadata.checkpoint, snapshot.metadata.clock
    assert isinstance(snapshot, Checkpoint)
    return snapshot.manifest.id, snapshot.manifest.timestamp


def value_of(table: StateTable, rows: list[dict[str, Any]]) -> Any:
    """One key's rows as one value: that of a value state, a list, (map key, value) pairs; else the rows."""
    content = table.content
    if not rows:
        return None
    if isinstance(content, KeyedContent) and not content.windowed and not content.timers:
        if content.type.kind == "list":
            return [row["value"] for row in rows]
        if content.type.kind == "map":
            return [(row["map_key"], row["value"]) for row in rows]
        if content.type.kind != "timeline":
            return rows[0]["value"]
    return [{name: value for name, value in row.items() if name != "key"} for row in rows]
