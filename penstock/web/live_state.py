"""Reads queryable states from the state server of a job, as `penstock.query` clients do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock.common.options.query import QUERYABLE_STATE
from penstock.driver.job_snapshot import JobSnapshot
from penstock.errors import PenstockError
from penstock.query.client import QueryableStateClient
from penstock.query.errors import QueryError, UnknownKey
from penstock.query.locating import connect_to_proxy
from penstock.query.protocol import CHECKPOINT
from penstock.query.registry import QueryableState
from penstock.tables.contents import KeyedContent
from penstock.tables.snapshot import Snapshot
from penstock.tables.typed_keys import key_from_text
from penstock.web.reading import Reading
from penstock.web.state_reader import FoundKey, Rows, look_up, page_among, page_of

_TIMEOUT_S = 2.0
_LIVE = "live from the job's state server"


def is_queryable(job: JobSnapshot) -> bool:
    """Return whether a job has states that can be read from outside."""
    return bool(job.configuration.get(QUERYABLE_STATE.key)) and QUERYABLE_STATE.read(job.configuration)


class NotLive(PenstockError):
    """A state cannot be read from a state server; the page reads the newest checkpoint instead.

    Operator action: declare the state with ``set_queryable``, and set `queryable-state.enable` to true.
    """


def described(job: JobSnapshot, settings: Mapping[str, str]) -> list[QueryableState]:
    """Return the queryable states of a job. Raises QueryError."""
    with connect_to_proxy({**settings, **job.configuration}, _TIMEOUT_S) as client:
        return client.describe(job.id).states


def look_up_now(
    snapshot: Snapshot, job: JobSnapshot, settings: Mapping[str, str], uid: str, state: str, key: str
) -> FoundKey:
    """Return the state of a key from the state server, or else from the snapshot, which is the newest checkpoint."""
    try:
        with LiveState(job, settings, uid, state) as live:
            return live.look_up(snapshot, uid, key)
    except (NotLive, QueryError) as error:
        return look_up(snapshot, uid, state, key, job)._replace(source=_stored(snapshot, error))


def page_now(
    snapshot: Snapshot,
    job: JobSnapshot,
    settings: Mapping[str, str],
    uid: str,
    state: str,
    offset: int,
    where: str,
    reading: Reading,
) -> Rows:
    """Return a page of rows from the state server, or else from the snapshot, which is the newest checkpoint."""
    try:
        with LiveState(job, settings, uid, state) as live:
            return live.page(offset, where, reading)
    except (NotLive, QueryError) as error:
        found = page_of(snapshot, uid, state, offset, where, reading)
        return found._replace(source=_stored(snapshot, error))


def _stored(snapshot: Snapshot, error: PenstockError) -> str:
    return f"{snapshot.path}, the newest one. Not live: {error.statement().rstrip('.')}"


class LiveState:
    """One queryable state, with a connection to the proxy."""

    def __init__(self, job: JobSnapshot, settings: Mapping[str, str], uid: str, state: str) -> None:
        """Find the state at the proxy of the job. Raises NotLive, QueryError."""
        self._job = job
        if not is_queryable(job):
            raise NotLive(f"{QUERYABLE_STATE.key} is not true for this job")
        self._client, self.state = self._find({**settings, **job.configuration}, uid, state)

    def __enter__(self) -> LiveState:
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.close()

    def _find(self, settings: Mapping[str, str], uid: str, state: str) -> tuple[QueryableStateClient, QueryableState]:
        client = connect_to_proxy(settings, _TIMEOUT_S)
        try:
            for each in client.describe(self._job.id).states:
                if (each.uid, each.state) == (uid, state):
                    return client, each
        except QueryError:
            client.close()
            raise
        client.close()
        raise NotLive("the program did not call set_queryable for this state")

    def look_up(self, snapshot: Snapshot, uid: str, key: str) -> FoundKey:
        """Return the value of a key. The snapshot has the type of the keys, and the timers. Raises PenstockError."""
        table = snapshot.state(uid, self.state.state)
        if isinstance(table.content, KeyedContent) and table.content.windowed:
            raise NotLive("a state of windows has several values for each key")
        wanted = key_from_text(table, key)
        stored = look_up(snapshot, uid, self.state.state, key, self._job)
        try:
            found = self._client.read(self._job.id, self.state.name, wanted)
        except UnknownKey:
            return stored._replace(rows=[], source=_LIVE)
        rows = [{"key": wanted, "value": found.value}]
        return stored._replace(rows=rows, source=f"checkpoint {found.checkpoint}, {_LIVE}")

    def page(self, offset: int, where: str, reading: Reading) -> Rows:
        """Return a page of the rows that fulfil a condition. Raises PenstockError."""
        stream = self.scan()

        def rows() -> Iterator[dict[str, Any]]:
            read = 0
            for batch in stream:
                yield from batch.to_pylist()
                read += batch.num_rows
                reading.step(read, 0.5)

        return page_among(rows(), stream.schema.names, offset, where, self.source(stream))

    def scan(self, keys: list[Any] | None = None) -> pa.RecordBatchReader:
        """Return the rows of the state, or those of some keys. Raises QueryError."""
        return self._client.scan(self._job.id, self.state.name, keys=keys)

    @staticmethod
    def source(stream: pa.RecordBatchReader) -> str:
        """Return in words where rows are from."""
        return f"checkpoint {stream.schema.metadata[CHECKPOINT].decode()}, {_LIVE}"
