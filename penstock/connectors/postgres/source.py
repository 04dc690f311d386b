"""PostgresSource: an append-only table as a stream, in the order of a number column."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from penstock.common.row import Row
from penstock.connectors.postgres.connection import (
    RETRY_SECONDS,
    Conninfo,
    PostgresEndpoint,
    PostgresError,
    Result,
    Session,
    driver,
    failure,
    sql,
)
from penstock.connectors.postgres.settled import Settling, check_settles
from penstock.connectors.postgres.table import Table, check_names, find_table
from penstock.connectors.source import Positions, Source
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import psycopg

_WHO = "PostgresSource"
_FETCHED = 2000
"""Rows fetched at a time: 0.9 µs per row of four columns, including the server's work."""
_PAUSE = 0.02
_ROWS = """
SELECT {columns}, {key} FROM {table} WHERE {key} > %(after)s AND {key} <= %(upto)s
AND (%(splits)s = 1 OR (({key} %% %(splits)s) + %(splits)s) %% %(splits)s = %(number)s) ORDER BY {key}
"""
_AFTER_LIMIT = """
SELECT {key} FROM {table} WHERE {key} > %(after)s AND {key} <= %(upto)s ORDER BY {key} OFFSET %(limit)s - 1 LIMIT 1
"""
_BOUNDS = "SELECT min({key}), max({key}) FROM {table}"
_LEAST = -(2**63)


class PostgresSource(Source):
    """Read each row of an append-only table once, including rows added while the job runs.

    Rows are read in the order of ``key``. They must not be updated, or deleted before they have been read.

    Args:
        connection: libpq connection settings, as a string or a dict.
        table: The table, with its schema and quotes if necessary.
        key: An indexed integer column that the table fills in ascending order (identity or serial).
        columns: Columns to read; all by default.
        records: Whether a record is a ``Row`` with named fields, a tuple or a dict.
        bounded: Read the rows that exist when the job starts, then end.
        splits: Number of tasks that read concurrently, each every n-th key. Fixed when the job first starts.
        trust_numbers: Accept numbers assigned by the writers; docs/connect/postgres.md lists the requirements.
        retry_seconds: How long to retry while the server is unavailable.
    """

    replayable = True
    why = "rows of an append-only table stay in place, and it reads them again by their numbers"

    def __init__(
        self,
        connection: Conninfo,
        table: str,
        key: str,
        *,
        columns: Iterable[str] | None = None,
        records: Literal["row", "tuple", "dict"] = "row",
        bounded: bool = False,
        splits: int = 1,
        trust_numbers: bool = False,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        if records not in _MAKERS:
            raise PenstockError(f"{_WHO}: records must be 'row', 'tuple' or 'dict', not {records!r}.")
        if type(splits) is not int or splits < 1:
            raise PenstockError(f"{_WHO}: splits must be an int of at least 1, not {splits!r}.")
        self._server = PostgresEndpoint(connection, _WHO, retry_seconds)
        self._name, self._key = table, key
        self._columns = check_names(columns, f"{_WHO}: columns")
        self._records = records
        self._splits = splits
        self._trust = trust_numbers
        self.bounded = bounded
        self._begin()

    def _begin(self) -> None:
        self._session = Session(self._server, "penstock source")
        self._table: Table | None = None
        self._settling: Settling | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_session", "_table", "_settling")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def __repr__(self) -> str:
        return f"PostgresSource(table '{self._name}' in {self._server!r})"

    # -- in the planner --------------------------------------------------------------------------------------------

    def start(self, parallelism: int) -> Positions:
        """Return the initial positions: the largest number read and, if bounded, the largest to read."""
        at = [None, self._goal()] if self.bounded else None
        return {f"{number}/{self._splits}": at for number in range(self._splits)}

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        """Advance all splits to the same number."""
        before = next(iter(positions.values()))
        at, goal = before if isinstance(before, list) else (before, None)
        if self.bounded:
            upto = goal = self._goal() if not isinstance(before, list) else goal
        else:
            upto = self._work(lambda connection: self._planning(connection).look(connection), "looking for new rows")
        if upto is not None and (at is None or upto > at):
            at = upto if limit is None else self._within(at, upto, limit)
        return dict.fromkeys(positions, [at, goal] if self.bounded else at)

    def backlog(self, positions: Positions) -> int | None:
        """Return an upper bound of the rows waiting: gaps in the numbers are counted too."""
        before = next(iter(positions.values()))
        at, goal = before if isinstance(before, list) else (before, None)

        def bounds(connection: psycopg.Connection[Any]) -> Any:
            query = sql(_BOUNDS, key=self._key, table=self._described(connection).names)
            return connection.execute(query).fetchone()

        least, largest = self._work(bounds, "counting waiting rows")
        if self.bounded and goal is not None and largest is not None:
            largest = min(goal, largest)
        if largest is None:
            return 0
        return max(0, int(largest) - int(least - 1 if at is None else max(at, least - 1)))

    def _within(self, at: int | None, upto: int, limit: int) -> int:
        """Return the number of the last of `limit` rows, or `upto` if there are fewer."""

        def find(connection: psycopg.Connection[Any]) -> Any:
            query = sql(_AFTER_LIMIT, key=self._key, table=self._described(connection).names)
            bounds = {"after": _LEAST if at is None else at, "upto": upto, "limit": max(limit, 1)}
            return connection.execute(query, bounds).fetchone()

        found = self._work(find, "looking for new rows")
        return upto if found is None else int(found[0])

    def _goal(self) -> int | None:
        """Return the largest existing number, settled. Waits for current transactions, but not for new ones."""
        until = time.monotonic() + self._server.retry_seconds
        settling: Settling | None = None

        def look(connection: psycopg.Connection[Any]) -> int | None:
            nonlocal settling
            if settling is None:
                settling = self._begin_settling(connection)
            return settling.look(connection)

        while True:
            goal = self._work(look, "looking for rows")
            assert settling is not None
            waits = settling.awaits()
            if not waits:
                return goal
            if time.monotonic() > until:
                raise PostgresError(
                    f"{_WHO}: table '{self._name}' in {self._server!r} has open transactions that wrote to it and have "
                    f"not ended for {self._server.retry_seconds:g} s: {', '.join(sorted(waits))} in "
                    f"pg_locks.virtualtransaction. Their rows would be interleaved with the existing ones.",
                    fix="End them, or wait longer with retry_seconds=...",
                )
            time.sleep(_PAUSE)

    def _planning(self, connection: psycopg.Connection[Any]) -> Settling:
        if self._settling is None:
            self._settling = self._begin_settling(connection)
        return self._settling

    def _begin_settling(self, connection: psycopg.Connection[Any]) -> Settling:
        table = self._described(connection)
        check_settles(connection, table, self._key, _WHO, self._trust)
        return Settling(table, self._key)

    # -- in the tasks ----------------------------------------------------------------------------------------------

    def read(self, split: str, start: Any, end: Any) -> Iterator[Any]:
        """Yield rows in batches. If the connection is lost in between, query the remaining rows again."""
        number, splits = map(int, split.split("/"))
        after, upto = (bound[0] if isinstance(bound, list) else bound for bound in (start, end))
        bounds = {"after": _LEAST if after is None else after, "upto": upto, "splits": splits, "number": number}
        rows: Generator[list[Any]] | None = None
        reading: psycopg.Connection[Any] | None = None

        def fetch(connection: psycopg.Connection[Any]) -> list[Any]:
            nonlocal rows, reading
            if rows is None or connection is not reading:
                rows, reading = self._fetch(connection, bounds), connection
            return next(rows, [])

        try:
            while fetched := self._work(fetch, f"reading the rows after {after}, up to {upto},"):
                bounds["after"] = fetched[-1][-1]
                assert self._table is not None
                yield from _MAKERS[self._records](tuple(self._wanted(self._table)), fetched)
        finally:
            # Close the transaction if the caller stops early.
            if rows is not None:
                rows.close()

    def _fetch(self, connection: psycopg.Connection[Any], bounds: dict[str, Any]) -> Generator[list[Any]]:
        table = self._described(connection)
        names = self._wanted(table)
        query = sql(_ROWS, columns=names, key=self._key, table=table.names)
        adapters = connection.adapters
        known = [table.column(name, _WHO).type for name in names]
        infos = [adapters.types.get(name) for name in known]
        # psycopg returns bytes for types that it can load only as text.
        binary = all(info and adapters.get_loader(info.oid, driver().pq.Format.BINARY) for info in infos)
        with connection.transaction(), connection.cursor("penstock") as cursor:
            cursor.execute(query, bounds, binary=binary)
            while rows := cursor.fetchmany(_FETCHED):
                yield rows

    def _wanted(self, table: Table) -> list[str]:
        return self._columns or [column.name for column in table.columns]

    def ends(self, split: str, position: Any) -> bool:
        return isinstance(position, list) and position[0] == position[1]

    def close(self) -> None:
        self._session.close()

    def _work(self, work: Callable[[psycopg.Connection[Any]], Result], doing: str) -> Result:
        try:
            return self._session.run(work, doing)
        except driver().Error as error:
            raise failure(
                error,
                _WHO,
                f"{doing} of table '{self._name}' in {self._server!r}",
                "Fix the problem that the server reports. No data is lost: the job resumes from its last checkpoint.",
            ) from None

    def _described(self, connection: psycopg.Connection[Any]) -> Table:
        if self._table is None:
            table = find_table(connection, self._name, _WHO, self._server.where)
            for name in [self._key, *(self._columns or [])]:
                table.column(name, _WHO)
            self._table = table
        return self._table


def _as_rows(names: tuple[str, ...], fetched: list[Any]) -> list[Any]:
    width = len(names)
    return Row.many(names, (list(row[:width]) for row in fetched))


def _as_tuples(names: tuple[str, ...], fetched: list[Any]) -> list[Any]:
    width = len(names)
    return [row[:width] for row in fetched]


def _as_dicts(names: tuple[str, ...], fetched: list[Any]) -> list[Any]:
    # The key, the last value, has no name.
    return [dict(zip(names, row)) for row in fetched]


_MAKERS = {"row": _as_rows, "tuple": _as_tuples, "dict": _as_dicts}

__all__ = ["PostgresSource"]
