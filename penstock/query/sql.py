"""SQL over the state of a job at one checkpoint: of a running job, a checkpoint or a savepoint.

DuckDB runs in this process, so a query costs the server only the scans of the states that it names. If a query asks for
certain keys of a state, only these are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Protocol

import pyarrow as pa

from penstock.query.client import QueryableStateClient
from penstock.query.errors import BadRequest, QueryError
from penstock.query.pinned import PinnedReads
from penstock.query.reads import KEY
from penstock.query.registry import QueryableState
from penstock.query.sql_filters import keys_of, restricted_tables
from penstock.tables.checkpoint import Checkpoint
from penstock.tables.contents import KeyedContent
from penstock.tables.key_history import when
from penstock.tables.keys import TEXT, KeyShape, MixedKeys, shape_from_text
from penstock.tables.savepoint import Savepoint
from penstock.tables.snapshot import Snapshot


class SqlUnavailable(QueryError):
    """DuckDB is not installed.

    Operator action: install the package that the message names.
    """

    code = "sql-unavailable"


class _States(Protocol):
    """The states that a database shows."""

    checkpoint: int

    def names(self) -> set[str]:
        """Return the names of the tables."""

    def shape(self, name: str) -> KeyShape | None:
        """Return the shape of the keys of a state, or None if it has none."""

    def read(self, name: str, keys: list[Any] | None) -> pa.Table:
        """Return the rows of some keys, or all rows."""


class StateDatabase:
    """The states of a job as tables, all of one checkpoint. ``connect_duckdb`` returns it."""

    def __init__(self, connection: Any, states: _States) -> None:
        self._connection = connection
        self._states = states
        self._names = states.names()
        self._loaded: dict[str, pa.Table] = {}
        """Complete tables."""
        self._registered: set[str] = set()
        self._cursors: list[Any] = []
        """Connections with the rows of some keys. The results of their queries are read later."""
        self.checkpoint = states.checkpoint
        """The checkpoint that all tables show."""

    @property
    def names(self) -> list[str]:
        """The names of the tables."""
        return sorted(self._names)

    def sql(self, query: str) -> Any:
        """Run a query, and return DuckDB's relation: call ``fetchall()``, ``df()`` or ``to_arrow_table()`` on it.

        The states that the query names are read first, each once. If its WHERE clause has ``key = …`` or
        ``key IN (…)`` with constants, only the rows of these keys are read. Quote a name with spaces: ``"last order"``.

        Args:
            query: One SELECT statement.

        Raises:
            BadRequest: DuckDB cannot parse or run the query.
        """
        duckdb = _duckdb()
        wanted = restricted_tables(self._connection, query)
        chosen = self._chosen(wanted)
        if chosen:
            cursor = self._connection.cursor()
            for name in self._named(query, wanted):
                keys = chosen.get(name)
                cursor.register(name, self._complete(name) if keys is None else self._states.read(name, keys))
            try:
                found = cursor.sql(query)
                self._cursors.append(cursor)
                return found
            except duckdb.Error:
                # It can name a temporary table of the other connection.
                cursor.close()
        for name in self._named(query, wanted):
            if name not in self._registered:
                self._connection.register(name, self._complete(name))
                self._registered.add(name)
        try:
            return self._connection.sql(query)
        except duckdb.Error as error:
            raise BadRequest(
                f"DuckDB cannot run the query: {error}", fix=f"The tables are {', '.join(self.names)}."
            ) from None

    def close(self) -> None:
        """Close DuckDB. ``connect_duckdb`` does it at the end of its block."""
        for cursor in self._cursors:
            cursor.close()
        self._connection.close()

    def _complete(self, name: str) -> pa.Table:
        if name not in self._loaded:
            self._loaded[name] = self._states.read(name, None)
        return self._loaded[name]

    def _chosen(self, wanted: dict[str, Any]) -> dict[str, list[Any]]:
        """Return the keys to read by state, for the states of which the query needs only some keys."""
        found = {}
        for name in self._names - self._loaded.keys():
            literals = wanted.get(name.lower())
            shape = None if literals is None else self._states.shape(name)
            keys = None if literals is None or shape is None else keys_of(literals, shape)
            if keys is not None:
                found[name] = keys
        return found

    def _named(self, query: str, wanted: dict[str, Any]) -> list[str]:
        if wanted:
            return sorted(name for name in self._names if name.lower() in wanted)
        # Only DuckDB knows the tables of a statement that is not a SELECT.
        return sorted(name for name in self._names if name.lower() in query.lower())


class _LiveStates:
    """The queryable states of a running job."""

    def __init__(self, pinned: PinnedReads, states: list[QueryableState]) -> None:
        self._pinned = pinned
        self._states = {state.name: state for state in states}
        self._shapes: dict[str, KeyShape] = {}
        self.checkpoint = pinned.checkpoint

    def names(self) -> set[str]:
        return set(self._states)

    def shape(self, name: str) -> KeyShape | None:
        if not self._states[name].keyed:
            return None
        if name not in self._shapes:
            metadata = self._pinned.scan(name, keys=[]).schema.metadata
            self._shapes[name] = shape_from_text(metadata[KEY]) if KEY in metadata else TEXT
        return self._shapes[name]

    def read(self, name: str, keys: list[Any] | None) -> pa.Table:
        return self._pinned.scan(name, keys=keys).read_all()


class _StoredStates:
    """The states of a savepoint or checkpoint: by queryable name, by `uid.state`, and by state if only one has it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.checkpoint, _ = when(snapshot)
        infos = snapshot.states()
        alone = [info.name for info in infos]
        self._places = {info.name: (info.uid, info.name) for info in infos if alone.count(info.name) == 1}
        self._places |= {f"{info.uid}.{info.name}": (info.uid, info.name) for info in infos}
        self._places |= {name: (at.uid, at.state) for name, at in _registry(snapshot).items()}
        self._contents: dict[str, Any] = {}

    def names(self) -> set[str]:
        return set(self._places)

    def shape(self, name: str) -> KeyShape | None:
        content = self._content(name)
        return content.key if isinstance(content, KeyedContent) else None

    def read(self, name: str, keys: list[Any] | None) -> pa.Table:
        content = self._content(name)
        if keys is not None:
            rows = [row for key in dict.fromkeys(keys) for row in content.rows_of(key)]
            return pa.Table.from_pylist(rows, schema=content.schema)
        try:
            return pa.Table.from_batches([b for part in content.parts() for b in content.batches(part)], content.schema)
        except MixedKeys:
            content = self._contents[name] = content.with_text_keys()
            return pa.Table.from_batches([b for part in content.parts() for b in content.batches(part)], content.schema)

    def _content(self, name: str) -> Any:
        if name not in self._contents:
            self._contents[name] = self._snapshot.state(*self._places[name]).content
        return self._contents[name]


def _registry(snapshot: Snapshot) -> dict[str, Any]:
    if isinstance(snapshot, Savepoint):
        return snapshot.metadata.queryable
    return snapshot.manifest.queryable if isinstance(snapshot, Checkpoint) else {}


@contextmanager
def connect_duckdb(
    source: QueryableStateClient | Snapshot, job: str = "", checkpoint: int | None = None
) -> Iterator[StateDatabase]:
    """Return the states of a job as tables of one checkpoint, for SQL.

    Of a running job, the tables are its queryable states. Of a savepoint or checkpoint, all states are tables: by
    queryable name, as ``"uid.state"``, and by the name of the state if only one operator has it.

    Args:
        source: A client of the job's host, a ``Savepoint``, or a ``Checkpoint``.
        job: The id of the job, or its name, for a client.
        checkpoint: The checkpoint, for a client; the newest one by default.

    Raises:
        SqlUnavailable: DuckDB is not installed.

    Example:
        >>> with connect_duckdb(client, "orders") as database:
        ...     database.sql("select key from totals where value > 100").fetchall()
    """
    connection = _duckdb().connect()
    if isinstance(source, Snapshot):
        with closing(StateDatabase(connection, _StoredStates(source))) as database:
            yield database
        return
    states = source.describe(job).states
    with (
        source.pinned(job, checkpoint) as pinned,
        closing(StateDatabase(connection, _LiveStates(pinned, states))) as database,
    ):
        yield database


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise SqlUnavailable(
            "SQL over state needs DuckDB.", fix="Install it with pip install 'penstock[sql]'."
        ) from None
    return duckdb
