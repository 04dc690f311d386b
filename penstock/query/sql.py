"""SQL over the queryable state of a job, at one checkpoint.

DuckDB runs in this process, so a query costs the server only the scans of the states that it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.query.client import QueryableStateClient
from penstock.query.errors import BadRequest, QueryError
from penstock.query.pinned import PinnedReads


class SqlUnavailable(QueryError):
    """DuckDB is not installed.

    Operator action: install the package that the message names.
    """

    code = "sql-unavailable"


class StateDatabase:
    """The queryable states of a job as tables, all of one checkpoint. ``connect_duckdb`` returns it."""

    def __init__(self, connection: Any, pinned: PinnedReads, names: set[str]) -> None:
        self._connection = connection
        self._pinned = pinned
        self._names = names
        self._loaded: set[str] = set()
        self.checkpoint = pinned.checkpoint
        """The checkpoint that all tables show."""

    @property
    def names(self) -> list[str]:
        """The names of the tables."""
        return sorted(self._names)

    def sql(self, query: str) -> Any:
        """Run a query, and return DuckDB's relation: call ``fetchall()``, ``df()`` or ``to_arrow_table()`` on it.

        The states that the query names are read first, each once. Quote a name with spaces: ``"last order"``.

        Args:
            query: One SELECT statement.

        Raises:
            BadRequest: DuckDB cannot parse or run the query.
        """
        duckdb = _duckdb()
        for name in sorted(self._names - self._loaded):
            # DuckDB would have to know the columns before it tells the tables of a query.
            if name.lower() in query.lower():
                self._connection.register(name, self._pinned.scan(name).read_all())
                self._loaded.add(name)
        try:
            return self._connection.sql(query)
        except duckdb.Error as error:
            raise BadRequest(
                f"DuckDB cannot run the query: {error}", fix=f"The tables are {', '.join(self.names)}."
            ) from None


@contextmanager
def connect_duckdb(client: QueryableStateClient, job: str, checkpoint: int | None = None) -> Iterator[StateDatabase]:
    """Return the queryable states of a job as tables of one checkpoint, for SQL.

    Args:
        client: A client of the job's host.
        job: The id of the job, or its name.
        checkpoint: The checkpoint; the newest one by default.

    Raises:
        SqlUnavailable: DuckDB is not installed.

    Example:
        >>> with connect_duckdb(client, "orders") as database:
        ...     database.sql("select key from totals where value > 100").fetchall()
    """
    connection = _duckdb().connect()
    names = {state.name for state in client.describe(job).states}
    try:
        with client.pinned(job, checkpoint) as pinned:
            yield StateDatabase(connection, pinned, names)
    finally:
        connection.close()


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise SqlUnavailable(
            "SQL over state needs DuckDB.", fix="Install it with pip install 'penstock[sql]'."
        ) from None
    return duckdb
