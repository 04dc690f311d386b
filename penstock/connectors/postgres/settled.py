"""Up to which number an append table is settled: no row at or below it will appear any more.

Numbers are handed out in order but rows appear when their transactions commit, in any order: a reader that goes by the
largest number it sees passes over rows that appear later below it. Whoever has taken a number and not committed yet
holds a lock on the table, though, and locks are seen by all. So, in this order:

1. m: the largest number that is visible. All smaller ones have been handed out before this moment.
2. Who holds a writer's lock on the table. Whoever has a number below m and is not in this list is over.
3. When all of them are over, m is settled.

Between two calls (m, those) is kept; nothing is lost if it is forgotten. Writers do not wait for anybody.
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
"""How the name of a prepared transaction begins; before it was prepared it had another."""
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
    """Called by one planner, again and again."""

    def __init__(self, table: Table, key: str) -> None:
        self._largest = sql(_LARGEST, key=key, table=table.names)
        # By its name, as the largest number is: another table may take the name.
        self._name = sql("{table}", table=table.names).as_string()
        self._settled: int | None = None
        self._candidate: int | None = None
        self._awaited: set[str] = set()

    def look(self, connection: psycopg.Connection[Any]) -> int | None:
        """The largest number known to be settled; None before the first."""
        if self._candidate is not None:
            self._check(self._writers(connection))
        if self._candidate is None:
            (largest,) = connection.execute(self._largest).fetchone() or (None,)
            # While nothing comes, this is all that is asked.
            if largest is not None and (self._settled is None or largest > self._settled):
                self._candidate, self._awaited = largest, self._writers(connection)
                self._check(self._awaited)
        return self._settled

    def awaits(self) -> set[str]:
        """The transactions that must be over before more is settled."""
        return self._awaited

    def _check(self, now: set[str]) -> None:
        still = self._awaited & now
        if any(not name.startswith(_PREPARED) for name in self._awaited - still):
            # One that is gone may have been prepared, and then it has another name and may yet commit.
            still |= {name for name in now if name.startswith(_PREPARED)}
        self._awaited = still
        if not still:
            self._settled, self._candidate = self._candidate, None

    def _writers(self, connection: psycopg.Connection[Any]) -> set[str]:
        return {name for (name,) in connection.execute(_WRITERS, [self._name])}


def check_settles(connection: psycopg.Connection[Any], table: Table, key: str, who: str, trusted: bool) -> None:
    """Raises PostgresRefused where the numbers of `key` are not what `Settling` needs, as far as the server knows.

    `trusted`: the user vouches for where the numbers come from.
    """
    column = table.column(key, who)
    said = f"{who}: column '{key}' of {table.where}"
    if column.type not in ("int2", "int4", "int8"):
        raise PostgresRefused(
            f"{said} is {column.described}, and a table is read in the order of a whole number.",
            fix=f"Add one: ALTER TABLE {'.'.join(table.names)} ADD COLUMN ... bigint GENERATED ALWAYS AS IDENTITY.",
        )
    if table.persistence != "p":
        raise PostgresRefused(
            f"{who}: {table.where} is unlogged or temporary: after a crash of the server its rows are gone.",
            fix=f"ALTER TABLE {'.'.join(table.names)} SET LOGGED.",
        )
    if connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
        raise PostgresRefused(
            f"{who}: PostgreSQL at {table.where.split(' at ', 1)[1]} is a standby: it does not know which transactions "
            f"are under way, so rows could be passed over.",
            fix="Connect to the primary.",
        )
    if connection.execute(_INDEXED, [table.oid, column.number]).fetchone() != (True,):
        raise PostgresRefused(
            f"{said} has no index, so each epoch would read the whole table.",
            fix=f"CREATE INDEX ON {'.'.join(table.names)} ({key}).",
        )
    if trusted:
        return
    sequences = connection.execute(_SEQUENCES, {"table": table.oid, "column": column.number}).fetchall()
    if not sequences:
        raise PostgresRefused(
            f"{said} gets its numbers from its writers, so nobody knows whether a smaller one may come later.",
            fix="Let the table number its rows (GENERATED ALWAYS AS IDENTITY). If each writer takes a larger number "
            "than all before it, and takes it while it holds a lock on the table, say so: trust_numbers=True.",
        )
    for name, cache, increment, cycles in sequences:
        wrong = f"has CACHE {cache}" if cache > 1 else "runs backwards" if increment < 0 else "has CYCLE"
        if cache > 1 or increment < 0 or cycles:
            raise PostgresRefused(
                f"{said} is numbered by the sequence '{name}', which {wrong}: smaller numbers may come later.",
                fix=f"ALTER SEQUENCE {name} CACHE 1 NO CYCLE, and let the sessions that have used it end.",
            )
