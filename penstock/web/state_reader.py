"""Reads state for the page: from the newest checkpoint of a job, any retained one, or a savepoint.

Functions block, so pages call them in a thread. Values are never unpickled, and no code of the job runs.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from penstock.common.options.checkpoints import CHECKPOINTS_DIRECTORY, RETAINED_CHECKPOINTS
from penstock.driver.job_snapshot import JobSnapshot
from penstock.errors import PenstockError
from penstock.state.key_groups import key_group_of, owner_of
from penstock.state.storage import MissingObject
from penstock.tables.checkpoint import Checkpoint, open_snapshot
from penstock.tables.conditions import condition
from penstock.tables.contents import KeyedContent
from penstock.tables.key_history import KeyVersion, history
from penstock.tables.keys import KeyShape, MixedKeys, canonical
from penstock.tables.snapshot import TIMERS, NoSuchState, Snapshot, StateInfo
from penstock.tables.table import StateTable
from penstock.tables.typed_keys import key_from_text
from penstock.web.reading import Reading

T = TypeVar("T")

NEWEST = "newest"
_ATTEMPTS = 8
PAGE_ROWS = 50
MOST_EXPORTED = 100_000
"""Rows of an export. Larger states are read with the state tables."""
_MOST_SEARCHED = 1_000_000
"""Rows that one search reads."""


class NoStoredState(PenstockError):
    """The job has no checkpoint that another process can read.

    Operator action: set `state.checkpoints.dir`, or make a savepoint and enter its path.
    """


class Rows(NamedTuple):
    """Some rows of a state."""

    rows: list[dict[str, Any]]
    offset: int
    more: bool
    searched: int = 0
    """Rows that a search has read."""
    limited: bool = False
    """Whether the search ended at its limit."""
    source: str = ""
    """Where the rows are from."""


class Examples(NamedTuple):
    """How the keys of a state are typed."""

    keys: list[str]
    kind: str
    """The type of the keys in words; empty for operator state."""


class Owner(NamedTuple):
    """Where a key's state is."""

    group: int
    block: int | None
    """None if only a state server knows it."""
    subtask: int | None
    """At the parallelism of the checkpoint, or now for a savepoint; None if the job does not have the operator."""


class FoundKey(NamedTuple):
    """The state of one key."""

    rows: list[dict[str, Any]]
    owner: Owner | None
    """None for operator state."""
    timers: list[dict[str, Any]] = []
    """The timers of the key in this operator."""
    ttl_ms: int | None = None
    """How long a value lives after its last access; None: forever."""
    source: str = ""
    """Where the value is from."""


def moments(job: JobSnapshot) -> dict[str, str]:
    """Return the moments whose state can be read, as labels by location, newest first."""
    found = {NEWEST: "now"} if job.checkpointing.storage else {}
    if job.checkpointing.storage:
        try:
            checkpoints = Checkpoint.list(job.checkpointing.storage)
        except PenstockError:
            checkpoints = []
        for each in reversed(checkpoints):
            found[f"checkpoint:{each.manifest.id}"] = f"checkpoint {each.manifest.id}"
    for made in job.checkpoints.history:
        if made.savepoint and made.path:
            found[made.path] = savepoint_label(made.path)
    restored = job.checkpoints.latest_restored
    for path in (job.savepoint, restored.path if restored is not None and restored.savepoint else ""):
        if path:
            found.setdefault(path, savepoint_label(path))
    return found


def savepoint_label(path: str) -> str:
    """Return the end of a savepoint's path, which differs between savepoints of one directory."""
    name = path.rstrip("/").rpartition("/")[2]
    return name if name.startswith("savepoint") else f"savepoint {name}"


def retention_note(found: dict[str, str]) -> str:
    """Return which setting keeps more checkpoints, if only one is there."""
    if sum(each.startswith("checkpoint:") for each in found) > 1:
        return ""
    return f"Only one checkpoint is retained. Set {RETAINED_CHECKPOINTS.key} to keep more, and compare them here."


def open_moment(job: JobSnapshot, moment: str) -> Snapshot:
    """Open a moment: one of `moments`, or the path of a savepoint or checkpoint. Raises PenstockError."""
    number = None
    if moment.startswith("checkpoint:") and moment[11:].isdigit():
        number = int(moment[11:])
    elif moment != NEWEST:
        return open_snapshot(moment)
    if not job.checkpointing.storage:
        raise _in_memory(job)
    return Checkpoint.load(job.checkpointing.storage, number)


def _in_memory(job: JobSnapshot) -> NoStoredState:
    return NoStoredState(
        f"Job '{job.name}' keeps its checkpoints in the memory of its driver.",
        fix=f"Set {CHECKPOINTS_DIRECTORY.key}, or make a savepoint and enter its path.",
    )


def read_moment(job: JobSnapshot, moment: str, read: Callable[[Snapshot], T]) -> T:
    """Open a moment and read it; again if the job removed the checkpoint in the meantime. Raises PenstockError.

    The files of a removed checkpoint can look like an empty state.
    """
    for _ in range(_ATTEMPTS):
        snapshot = open_moment(job, moment)
        try:
            found = read(snapshot)
        except MissingObject:
            continue
        if not isinstance(snapshot, Checkpoint) or snapshot.manifest.id in _readable(job, moment):
            return found
    raise NoStoredState(
        f"Job '{job.name}' removed the checkpoint while the page read it.",
        fix=f"Try again, or set {RETAINED_CHECKPOINTS.key} to keep more checkpoints.",
    )


def _readable(job: JobSnapshot, moment: str) -> set[int]:
    of_job = moment == NEWEST or moment.startswith("checkpoint:")
    return {each.manifest.id for each in Checkpoint.list(job.checkpointing.storage if of_job else moment)}


def states(snapshot: Snapshot) -> list[StateInfo]:
    """Return the states of all operators."""
    return snapshot.states()


def examples(snapshot: Snapshot, uid: str, state: str) -> Examples:
    """Return a few keys as a viewer types them, and their type."""
    table = snapshot.state(uid, state)
    if not isinstance(table.content, KeyedContent):
        return Examples([], "")
    # The content knows the type of its keys once it is read.
    rows = list(islice(rows_of(table), 50))
    return examples_of(rows, table.content.key)


def examples_of(rows: Iterable[dict[str, Any]], key: KeyShape) -> Examples:
    """Return the keys of some rows as a viewer types them, and their type."""
    found: dict[str, None] = {}
    for row in rows:
        found[_typed(row.get("key"))] = None
        if len(found) == 3:
            break
    return Examples([*found], "" if not found else _kind(key))


def _kind(key: KeyShape) -> str:
    if not key.parts:
        return "several types" if key.kind == "text" else key.kind
    fields = ", ".join(f"{name}: {_kind(part)}" for name, part in zip(key.names, key.parts, strict=True))
    return f"{key.kind} ({fields}), written as a JSON list"


def look_up(snapshot: Snapshot, uid: str, state: str, key: str, job: JobSnapshot) -> FoundKey:
    """Return the state of a key, typed as text. Raises PenstockError if it is not of the type of the keys."""
    table = snapshot.state(uid, state)
    wanted = key_from_text(table, key)
    content = table.content
    if not isinstance(content, KeyedContent):
        return FoundKey(table.get(wanted), None, source=snapshot.path)
    group = key_group_of(canonical(wanted), content.max_parallelism)
    parallelism = _parallelism(snapshot, uid, job)
    subtask = None if parallelism is None else owner_of(group, parallelism, content.max_parallelism)
    return FoundKey(
        table.get(wanted),
        Owner(group, snapshot.keyed_source(uid).block_of(group), subtask),
        [] if content.timers else _timers(snapshot, uid, wanted),
        table.info.ttl_ms,
        snapshot.path,
    )


def _parallelism(snapshot: Snapshot, uid: str, job: JobSnapshot) -> int | None:
    """Return the parallelism that the blocks of a snapshot go with: that of a checkpoint, and for a savepoint the
    current one of the job, if it has the operator."""
    if isinstance(snapshot, Checkpoint):
        return snapshot.manifest.operators[uid].parallelism
    return _current_parallelism(job, uid)


def owning_subtask(job: JobSnapshot, uid: str, group: int, max_parallelism: int) -> int | None:
    """Return the subtask of an operator that owns a key group now; None if the job does not have the operator."""
    parallelism = _current_parallelism(job, uid)
    return None if parallelism is None else owner_of(group, parallelism, max_parallelism)


def _current_parallelism(job: JobSnapshot, uid: str) -> int | None:
    return next(
        (vertex.parallelism for vertex in job.vertices if uid in [operator.uid for operator in vertex.operators]), None
    )


def _timers(snapshot: Snapshot, uid: str, key: Any) -> list[dict[str, Any]]:
    try:
        return snapshot.state(uid, TIMERS).get(key)
    except NoSuchState:
        return []


def page_of(
    snapshot: Snapshot, uid: str, state: str, offset: int = 0, where: str = "", reading: Reading | None = None
) -> Rows:
    """Return a page of the rows, or of those that fulfil a condition. Raises BadCondition."""
    table = snapshot.state(uid, state)
    return page_among(rows_of(table, reading), table.schema.names, offset, where, snapshot.path)


def page_among(rows: Iterator[dict[str, Any]], columns: list[str], offset: int, where: str, source: str) -> Rows:
    """Return a page of rows with these columns, or of those that fulfil a condition. Raises BadCondition."""
    holds = condition(where, columns) if where else None
    searched = 0

    def wanted() -> Iterator[dict[str, Any]]:
        nonlocal searched
        for row in islice(rows, _MOST_SEARCHED):
            searched += 1
            if holds is None or holds(row):
                yield row

    found = list(islice(wanted(), offset, offset + PAGE_ROWS + 1))
    more = len(found) > PAGE_ROWS
    return Rows(found[:PAGE_ROWS], offset, more, searched, not more and searched == _MOST_SEARCHED, source)


def versions(job: JobSnapshot, snapshot: Snapshot, uid: str, state: str, key: str) -> list[KeyVersion]:
    """Return the state of a key in every retained checkpoint and known savepoint, oldest first."""
    found = moments(job)
    paths = [each for each in found if each != NEWEST and not each.startswith("checkpoint:")]
    if job.checkpointing.storage:
        paths.insert(0, job.checkpointing.storage)
    return history(paths, uid, state, key_from_text(snapshot.state(uid, state), key))


def exported(snapshot: Snapshot, uid: str, state: str, form: str, reading: Reading | None = None) -> bytes:
    """Return a state as Parquet or CSV. Nested values are JSON text in CSV. Raises PenstockError if it is too large."""
    rows = list(islice(rows_of(snapshot.state(uid, state), reading), MOST_EXPORTED + 1))
    if len(rows) > MOST_EXPORTED:
        raise PenstockError(
            f"State '{state}' of operator '{uid}' has more than {MOST_EXPORTED:,} rows.",
            fix="Read it with pandas; the page shows the code.",
        )
    sink = io.BytesIO()
    if form == "parquet":
        table = snapshot.state(uid, state)
        try:
            pyarrow.parquet.write_table(table.to_arrow().read_all(), sink)
        except MixedKeys:
            table = snapshot.state(uid, state, keys_as_text=True)
            pyarrow.parquet.write_table(table.to_arrow().read_all(), sink)
        return sink.getvalue()
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: pa.array([_cell(row.get(name)) for row in rows], pa.string()) for name in names}
    pyarrow.csv.write_csv(pa.table(columns), sink)
    return sink.getvalue()


def snippet(job: JobSnapshot, moment: str, uid: str, state: str) -> str:
    """Return Python code that reads the state with pandas. Raises NoStoredState."""
    if moment == NEWEST or moment.startswith("checkpoint:"):
        if not job.checkpointing.storage:
            raise _in_memory(job)
        number = "" if moment == NEWEST else f", {moment[11:]}"
        kind, path = "Checkpoint", f"{job.checkpointing.storage!r}{number}"
    else:
        kind, path = "Savepoint", repr(moment)
    return f"from penstock.tables import {kind}\n\n{kind}.load({path}).state({uid!r}, {state!r}).to_pandas()"


def as_text(value: Any) -> str:
    """Return a value as JSON; types that JSON lacks as their text."""
    return msgspec.json.encode(_plain(value), enc_hook=str).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _cell(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else as_text(value)


def _typed(key: Any) -> str:
    if isinstance(key, str):
        return key
    return as_text(list(key.values())) if isinstance(key, dict) else as_text(key).strip('"')


def rows_of(table: StateTable, reading: Reading | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows, with keys as text if they have several types."""
    try:
        yield from _rows(table, reading)
    except MixedKeys:
        assert isinstance(table.content, KeyedContent)
        yield from _rows(StateTable(table.info, table.content.with_text_keys()), reading)


def _rows(table: StateTable, reading: Reading | None) -> Iterator[dict[str, Any]]:
    parts = table.content.parts()
    read = 0
    for place, part in enumerate(parts):
        for batch in table.content.batches(part):
            yield from batch.to_pylist()
            read += batch.num_rows
            if reading is not None:
                reading.step(read, (place + 0.5) / len(parts))
