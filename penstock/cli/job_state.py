"""The state of a running job, for `penstock state`: from its state server, or else from its retained checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from penstock.cli.found_jobs import FoundJobs
from penstock.cli.listed_job import ListedJob
from penstock.cli.service_address import command_settings
from penstock.common.options import store_options
from penstock.common.options.checkpoints import CHECKPOINTS_DIRECTORY
from penstock.control.client import JobNotFound
from penstock.errors import PenstockError
from penstock.query.client import QueryableStateClient
from penstock.query.errors import CheckpointGone, NotServed, QueryError
from penstock.query.locating import connect_to_proxy
from penstock.query.protocol import CHECKPOINT, TIMESTAMP, Description
from penstock.query.reads import shape_of
from penstock.query.registry import QueryableState
from penstock.state.storage import MissingObject
from penstock.tables.checkpoint import Checkpoint, NotACheckpoint
from penstock.tables.key_history import KeyVersion, combined, history
from penstock.tables.snapshot import StateInfo
from penstock.tables.table import StateTable
from penstock.tables.typed_keys import key_from_text, key_in, typed_key

T = TypeVar("T")

_TIMEOUT_S, _SHORT_S = 5.0, 2.0
"""How long state servers are asked again. The short time is for jobs whose storage can be read instead."""
_ATTEMPTS = 8
"""For a checkpoint that the job removes while it is read."""


class NoStoredState(PenstockError):
    """The job keeps its checkpoints in the memory of its driver, where commands cannot read them.

    Operator action: set `state.checkpoints.dir`, or take a savepoint and pass its path.
    """


class Rows(NamedTuple):
    """Rows of a state at one checkpoint."""

    checkpoint: int
    rows: Iterator[dict[str, Any]]


class _Served(NamedTuple):
    """A state that a state server of the job answers for."""

    client: QueryableStateClient
    job: str
    state: QueryableState
    description: Description


def is_path(text: str) -> bool:
    """Return whether an argument is the path of a snapshot. Otherwise, it is a job."""
    return "/" in text or text in (".", "..") or os.path.exists(text)


class JobState:
    """The state of a job that runs on this host or in a cluster."""

    def __init__(self, job: ListedJob, settings: Mapping[str, str]) -> None:
        """`settings`: those of the command."""
        self.job = job
        self._settings = {**settings, **job.settings()}

    @classmethod
    def of(cls, given: str, address: str | None, setting: list[str] | None) -> JobState:
        """Return the state of the job with this id, id prefix or name. Raises JobNotFound."""
        try:
            return cls(FoundJobs(setting, address).one(given), command_settings(setting))
        except JobNotFound as error:
            raise JobNotFound(
                error.statement(),
                fix=f"Pass a job from `penstock list`, or the path of a savepoint or of a job's folder below "
                f"{CHECKPOINTS_DIRECTORY.key}. A folder in the working directory is ./{given}.",
            ) from None

    def states(self) -> list[StateInfo]:
        """Return the states of all operators at the newest checkpoint. Raises NoStoredState."""
        return self._at_newest(lambda checkpoint: checkpoint.states())

    @contextmanager
    def rows(self, uid: str, state: str, key: str | None, most: int | None) -> Iterator[Rows]:
        """Return the first rows of a state, or those of one key. Raises NoStoredState, NoSuchState."""
        with self._served(uid, state) as served:
            found = None if served is None else self._unless_away(lambda: _rows(served, key))
            if found is not None:
                yield found
                return
        yield self._at_newest(lambda checkpoint: _stored_rows(checkpoint, uid, state, key, most))

    def history(self, uid: str, state: str, key: str) -> list[KeyVersion]:
        """Return the state of a key in all retained checkpoints, and in those that a state server keeps."""
        found: dict[int, KeyVersion] = {}
        with self._served(uid, state) as served:
            if served is not None:
                versions = self._unless_away(lambda: list(_versions(served, key)))
                found = {each.checkpoint: each for each in versions or []}
        if self.job.checkpoints:
            options = store_options(self._settings)
            with self._checkpoints() as path:
                typed = key_in(path, uid, state, key, options)
                stored = history(path, uid, state, typed, options)
            found |= {each.checkpoint: each for each in stored}
        elif not found:
            raise self._not_stored()
        return [version for _, version in sorted(found.items())]

    @contextmanager
    def _served(self, uid: str, state: str) -> Iterator[_Served | None]:
        """Return the state as a state server knows it; None if none serves it."""
        try:
            client = connect_to_proxy(self._settings, _SHORT_S if self.job.checkpoints else _TIMEOUT_S)
        except QueryError:
            yield None
            return
        with client:
            yield self._served_by(client, uid, state)

    def _served_by(self, client: QueryableStateClient, uid: str, state: str) -> _Served | None:
        known = next((each for each in client.jobs() if each.job_id == self.job.id), None)
        description = None if known is None else self._unless_away(lambda: client.describe(self.job.id))
        if known is None or description is None:
            return None
        for each in description.states:
            if (each.uid, each.state) == (uid, state):
                return _Served(client, known.job_id, each, description)
        return None

    def _unless_away(self, ask: Callable[[], T]) -> T | None:
        """Return an answer of the state servers; None if they do not have the job's state now, but its storage does."""
        try:
            return ask()
        except NotServed:
            if not self.job.checkpoints:
                raise
            return None

    def _at_newest(self, read: Callable[[Checkpoint], T]) -> T:
        """Read the newest checkpoint; a later one if the job removed it in the meantime."""
        if not self.job.checkpoints:
            raise self._not_stored()
        for _ in range(_ATTEMPTS - 1):
            try:
                checkpoint = self._newest()
                found = read(checkpoint)
            except MissingObject:
                continue
            # The files of a removed checkpoint can look like an empty state.
            if any(each.manifest.id == checkpoint.manifest.id for each in self._retained()):
                return found
        return read(self._newest())

    def _newest(self) -> Checkpoint:
        with self._checkpoints() as path:
            return Checkpoint.load(path, None, store_options(self._settings))

    @contextmanager
    def _checkpoints(self) -> Iterator[str]:
        """Yield the location of the job's checkpoints. An error that it has none tells when it will have one."""
        try:
            yield self.job.checkpoints
        except NotACheckpoint:
            raise NotACheckpoint(
                f"Job {self.job} has no completed checkpoint yet.",
                fix="Try again in a moment. The log of the job tells if an epoch fails.",
            ) from None

    def _retained(self) -> list[Checkpoint]:
        return Checkpoint.list(self.job.checkpoints, store_options(self._settings))

    def _not_stored(self) -> NoStoredState:
        return NoStoredState(
            f"Job {self.job} keeps its checkpoints in the memory of its driver.",
            fix=f"Set {CHECKPOINTS_DIRECTORY.key}, or take a savepoint with `penstock savepoint` and pass its path.",
        )


def _stored_rows(checkpoint: Checkpoint, uid: str, state: str, key: str | None, most: int | None) -> Rows:
    table: StateTable = checkpoint.state(uid, state)
    # Read here, before the job removes the checkpoint.
    rows = [*islice(table.rows(), most)] if key is None else table.get(key_from_text(table, key))
    return Rows(checkpoint.manifest.id, iter(rows))


def _rows(served: _Served, key: str | None) -> Rows:
    client, job, state, _ = served
    if key is None:
        stream = client.scan(job, state.name)
    else:
        typed = typed_key(shape_of(client.scan(job, state.name, keys=[]).schema), state.state, key)
        stream = client.scan(job, state.name, keys=[typed])
    number = int(stream.schema.metadata[CHECKPOINT])
    return Rows(number, (row for batch in stream for row in batch.to_pylist()))


def _versions(served: _Served, key: str) -> Iterator[KeyVersion]:
    client, job, state, description = served
    typed = typed_key(shape_of(client.scan(job, state.name, keys=[]).schema), state.state, key)
    for number in range(description.oldest, description.newest + 1):
        try:
            stream = client.scan(job, state.name, keys=[typed], checkpoint=number)
            rows = [row for batch in stream for row in batch.to_pylist()]
        except CheckpointGone:
            continue
        windowed = "window_start" in stream.schema.names
        time = int(stream.schema.metadata[TIMESTAMP])
        yield KeyVersion(number, time, combined("" if windowed else state.kind, rows), f"checkpoint {number}")
