"""The settled number of an append-only table: no row with a smaller or equal number can appear any more.

Numbers are assigned in order, but rows become visible when their transactions commit, in any order. A reader that goes
by the largest visible number skips rows that appear below it later. However, a transaction that has a number and is
still open holds a lock on the table, and locks are visible to everyone. The algorithm is:

1. Read m, the largest visible number. All smaller numbers were assigned before this moment.
2. List the transactions that hold a writer's lock on the table. All others with a number below m have ended.
3. Once all listed transactions have ended, m is settled.

The pair (m, transactions) is kept between calls; forgetting it is harmless. Writers never wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.postgres.connection import PostgresRefused, sql
from penstock.connectors.postgres.table import Table

if TYPE_CHECKING:
    import psycopg

_LARGEST = "SELECT max({key}) FROM {table}"
_WRITERS = """
WITH RECURSIVE family(oid) AS (
    SELECT %s::regclass::oid UNION SELECT inhrelid FROM pg_inherits JOIN family ON inhparent = family.oid
)
SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND relation IN (SELECT oid FROM family)
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_PREPARED = "-1/"
"""Prefix of the id of a prepared transaction. Its id changes when it is prepared."""
_SEQUENCES = """
SELECT s.seqrelid::regclass::text, s.seqcache, s.seqincrement, s.seqcycle
FROM pg_sequence s JOIN pg_depend d ON (
    d.classid = 'pg_attrdef'::regclass AND d.refobjid = s.seqrelid
    AND d.objid IN (SELECT oid FROM pg_attrdef WHERE adrelid = %(table)s AND adnum = %(column)s)
) OR (d.classid = 'pg_class'::regclass AND d.objid = s.seqrelid AND d.deptype = 'i'
      AND d.refobjid = %(table)s AND d.refobjsubid = %(column)s)
"""
_INDEXED = """
SELECT EXISTS (SELECT FROM pg_index WHERE indrelid = %s AND indkey[0] = %s AND indisvalid AND indpred IS NULL)
"""


class Settling:
    """State of one planner between calls."""

    def __init__(self, table: Table, key: str) -> None:
        self._largest = sql(_LARGEST, key=key, table=table.names)
        # By name, like the query for the largest number: the name can move to another table.
        self._name = sql("{table}", table=table.names).as_string()
        self._settled: int | None = None
        self._candidate: int | None = None
        self._awaited: set[str] = set()

    def look(self, connection: psycopg.Connection[Any]) -> int | None:
        """Return the largest settled number, or None if no number is settled yet."""
        if self._candidate is not None:
            self._check(self._writers(connection))
        if self._candidate is None:
            (largest,) = connection.execute(self._largest).fetchone() or (None,)
            # While no rows are added, this is the only query.
            if largest is not None and (self._settled is None or largest > self._settled):
                self._candidate, self._awaited = largest, self._writers(connection)
                self._check(self._awaited)
        return self._settled

    def awaits(self) -> set[str]:
        """Return the transactions that must end before the next number is settled."""
        return self._awaited

    def _check(self, now: set[str]) -> None:
        still = self._awaited & now
        if any(not name.startswith(_PREPARED) for name in self._awaited - still):
            # A transaction that is gone might have been prepared: it then has a different id and can still commit.
            still |= {name for name in now if name.startswith(_PREPARED)}
        self._awaited = still
        if not still:
            self._settled, self._candidate = self._candidate, None

    def _writers(self, connection: psycopg.Connection[Any]) -> set[str]:
        return {name for (name,) in connection.execute(_WRITERS, [self._name])}


def check_settles(connection: psycopg.Connection[Any], table: Table, key: str, who: str, trusted: bool) -> None:
    """Raise PostgresRefused if the numbers of `key` do not meet the requirements of `Settling`, as far as detectable.

    `trusted`: the user guarantees that the numbers are assigned correctly.
    """
    column = table.column(key, who)
    said = f"{who}: column '{key}' of {table.where}"
    if column.type not in ("int2", "int4", "int8"):
        raise PostgresRefused(
            f"{said} is {column.described}, but a table is read in the order of an integer column.",
            fix=f"Add one: ALTER TABLE {'.'.join(table.names)} ADD COLUMN ... bigint GENERATED ALWAYS AS IDENTITY.",
        )
    if table.persistence != "p":
        raise PostgresRefused(
            f"{who}: {table.where} is unlogged or temporary: its rows are lost if the server crashes.",
            fix=f"ALTER TABLE {'.'.join(table.names)} SET LOGGED.",
        )
    if connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
        raise PostgresRefused(
            f"{who}: PostgreSQL at {table.where.split(' at ', 1)[1]} is a standby: it does not show which transactions "
            f"are in progress, so rows could be skipped.",
            fix="Connect to the primary.",
        )
    if connection.execute(_INDEXED, [table.oid, column.number]).fetchone() != (True,):
        raise PostgresRefused(
            f"{said} has no index, so each epoch would scan the complete table.",
            fix=f"CREATE INDEX ON {'.'.join(table.names)} ({key}).",
        )
    if trusted:
        return
    sequences = connection.execute(_SEQUENCES, {"table": table.oid, "column": column.number}).fetchall()
    if not sequences:
        raise PostgresRefused(
            f"{said} is numbered by its writers, so a smaller number could appear later.",
            fix="Let the table number its rows (GENERATED ALWAYS AS IDENTITY). If each writer takes a larger number "
            "than all before it, while it holds a lock on the table, set trust_numbers=True.",
        )
    for name, cache, increment, cycles in sequences:
        wrong = f"has CACHE {cache}" if cache > 1 else "is descending" if increment < 0 else "has CYCLE"
        if cache > 1 or increment < 0 or cycles:
            raise PostgresRefused(
                f"{said} is numbered by the sequence '{name}', which {wrong}: smaller numbers could appear later.",
                fix=f"ALTER SEQUENCE {name} CACHE 1 NO CYCLE, and end the sessions that have used it.",
            )
