"""What the server says a table is: its columns with their types, and where its numbers come from."""

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
    """Its type as SQL has it: `numeric(10,2)`."""
    type: str
    """The type's own name: `numeric`."""
    kind: str
    """b for a base type, d for a domain, e for an enum, and so on."""
    modifier: int
    """A length or precision as the catalog keeps it; -1 for none."""
    not_null: bool
    generated: bool
    """Whether the server alone gives it values."""
    filled: bool
    """Whether the server gives it a value where a row brings none."""
    number: int
    labels: list[str]
    """Of an enum, what it may be."""


class Table(NamedTuple):
    oid: int
    names: tuple[str, str]
    """Schema and name."""
    kind: str
    """r for a table, p for a partitioned one; else it is none."""
    persistence: str
    columns: list[Column]
    where: str
    """For messages: the table, and where it is."""

    def column(self, name: str, who: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        known = [column.name for column in self.columns]
        raise PostgresRefused(
            f"{who}: {self.where} has no column '{name}'; it has {_listed(known)}.",
            fix=_closest(name, known) or f"ALTER TABLE {'.'.join(self.names)} ADD COLUMN ..., or name another one.",
        )


def find_table(connection: psycopg.Connection[Any], name: str, who: str, where: str) -> Table:
    """`name` as SQL has it, with a schema and quotes if need be. PostgresRefused if there is no such table."""
    try:
        found = connection.execute(_TABLE, [name]).fetchone()
    except driver().errors.InvalidName:
        found = None
    if found is None:
        known = [each for (each,) in connection.execute(_VISIBLE)]
        hint = _closest(name, known) or f"Create it, or write its schema before it: 'schema.{name}'."
        raise PostgresRefused(f"{who}: there is no table '{name}' in PostgreSQL at {where}.", fix=hint)
    oid, schema, relation, kind, persistence = found
    table = f"table '{schema}.{relation}' in PostgreSQL at {where}"
    if kind not in ("r", "p"):
        raise PostgresRefused(f"{who}: {table} is no table but a view or the like.", fix="Name a table.")
    columns = [Column(*row) for row in connection.execute(_COLUMNS, [oid])]
    return Table(oid, (schema, relation), kind, persistence, columns, table)


def check_names(names: Iterable[str] | None, what: str) -> list[str] | None:
    """A list of different column names as a user gave it, or None."""
    if names is None:
        return None
    listed = [names] if isinstance(names, str) else list(names)
    if not listed or not all(isinstance(name, str) and name for name in listed) or len(set(listed)) < len(listed):
        raise PenstockError(f"{what} must be different names of columns, not {names!r}.")
    return listed


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _closest(name: str, known: list[str]) -> str:
    close = get_close_matches(name.split(".")[-1], known, n=1)
    return f"Did you mean '{close[0]}'?" if close else ""
