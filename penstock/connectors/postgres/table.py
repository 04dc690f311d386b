"""Definition of a table from the server's catalog: columns, types and persistence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.connectors.postgres.connection import PostgresRefused, driver
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import psycopg

_TABLE = """
SELECT c.oid, n.nspname, c.relname, c.relkind, c.relpersistence
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typname, t.typtype, a.atttypmod, a.attnotnull,
       a.attidentity = 'a' OR a.attgenerated <> '', a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL,
       a.attnum, ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_VISIBLE = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND pg_table_is_visible(oid) AND relname !~ '^pg_'"


class Column(NamedTuple):
    name: str
    described: str
    """Type as written in SQL, such as `numeric(10,2)`."""
    type: str
    """Bare type name, such as `numeric`."""
    kind: str
    """b for a base type, d for a domain, e for an enum, and so on."""
    modifier: int
    """Length or precision as stored in the catalog; -1 if unset."""
    not_null: bool
    generated: bool
    """Whether only the server can set the value."""
    filled: bool
    """Whether the server sets a value if an insert omits the column."""
    number: int
    labels: list[str]
    """Allowed values of an enum."""


class Table(NamedTuple):
    oid: int
    names: tuple[str, str]
    """Schema and name."""
    kind: str
    """r for a table, p for a partitioned table."""
    persistence: str
    columns: list[Column]
    where: str
    """The table and its server, for messages."""

    def column(self, name: str, who: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        known = [column.name for column in self.columns]
        raise PostgresRefused(
            f"{who}: {self.where} has no column '{name}'; it has {_listed(known)}.",
            fix=_closest(name, known) or f"ALTER TABLE {'.'.join(self.names)} ADD COLUMN ..., or use another column.",
        )


def find_table(connection: psycopg.Connection[Any], name: str, who: str, where: str) -> Table:
    """Return a table by its SQL name, with schema and quotes if necessary. PostgresRefused if it does not exist."""
    try:
        found = connection.execute(_TABLE, [name]).fetchone()
    except driver().errors.InvalidName:
        found = None
    if found is None:
        known = [each for (each,) in connection.execute(_VISIBLE)]
        hint = _closest(name, known) or f"Create it, or qualify it with its schema: 'schema.{name}'."
        raise PostgresRefused(f"{who}: table '{name}' does not exist in PostgreSQL at {where}.", fix=hint)
    oid, schema, relation, kind, persistence = found
    table = f"table '{schema}.{relation}' in PostgreSQL at {where}"
    if kind not in ("r", "p"):
        raise PostgresRefused(f"{who}: {table} is not a table but a view or similar.", fix="Use a table.")
    columns = [Column(*row) for row in connection.execute(_COLUMNS, [oid])]
    return Table(oid, (schema, relation), kind, persistence, columns, table)


def check_names(names: Iterable[str] | None, what: str) -> list[str] | None:
    """Return a user's column names as a list of distinct names, or None."""
    if names is None:
        return None
    listed = [names] if isinstance(names, str) else list(names)
    if not listed or not all(isinstance(name, str) and name for name in listed) or len(set(listed)) < len(listed):
        raise PenstockError(f"{what} must be distinct column names, not {names!r}.")
    return listed


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _closest(name: str, known: list[str]) -> str:
    close = get_close_matches(name.split(".")[-1], known, n=1)
    return f"Did you mean '{close[0]}'?" if close else ""
