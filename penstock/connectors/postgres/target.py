"""The table that a sink writes to, checked before the first record: what of it the records fill, and by which key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from penstock.common.arrow_schema import schema_of
from penstock.connectors.postgres.connection import PostgresRefused
from penstock.connectors.postgres.table import Column, Table, find_table
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import psycopg

_KEYS = """
SELECT ARRAY(
    SELECT attname::text FROM pg_attribute WHERE attrelid = indrelid AND attnum = ANY(indkey[:indnkeyatts - 1])
), CASE WHEN NOT indimmediate THEN indexrelid::regclass::text END
FROM pg_index WHERE indrelid = %s AND indisunique AND indisvalid AND indpred IS NULL AND indexprs IS NULL
  AND NOT indisexclusion
"""
"""The columns of unique indexes; of the index of a deferrable constraint also its name, which is the constraint's."""
_RIGHTS = "SELECT has_column_privilege(%(table)s::oid, %(column)s, %(right)s)"
_TAKES: dict[str, Any] = {
    "int2": pa.types.is_integer,
    "int4": pa.types.is_integer,
    "int8": pa.types.is_integer,
    "float4": lambda kind: pa.types.is_floating(kind) or pa.types.is_integer(kind),
    "float8": lambda kind: pa.types.is_floating(kind) or pa.types.is_integer(kind),
    "numeric": lambda kind: pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind),
    "bool": pa.types.is_boolean,
    "text": pa.types.is_string,
    "varchar": pa.types.is_string,
    "bpchar": pa.types.is_string,
    "bytea": pa.types.is_binary,
    "date": pa.types.is_date,
    "time": pa.types.is_time,
    "timestamp": pa.types.is_timestamp,
    "timestamptz": pa.types.is_timestamp,
}
"""By type of a column: which declared types of records are of any use for it. Others are not looked at."""


class PostgresTarget(NamedTuple):
    table: Table
    columns: list[Column]
    """That records fill, in the order in which they are sent."""
    key: list[str] | None

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def find_target(
    connection: psycopg.Connection[Any],
    name: str,
    columns: list[str] | None,
    key: list[str] | None,
    value_type: Any,
    who: str,
    where: str,
) -> PostgresTarget:
    """Raises PostgresRefused if records with these columns could not be written. `columns` None: those of the declared
    type of the records, or all that the server does not fill alone."""
    table = find_table(connection, name, who, where)
    declared = _declared(value_type)
    if columns is None:
        columns = list(declared) or [column.name for column in table.columns if not column.generated]
    filled = [table.column(each, who) for each in columns]
    for column in filled:
        if column.generated:
            raise PostgresRefused(
                f"{who}: column '{column.name}' of {table.where} is filled by the server alone.",
                fix=f"Leave it out: columns={[each for each in columns if each != column.name]!r}.",
            )
        takes = _TAKES.get(column.type) if column.kind == "b" else None
        if takes is not None and column.name in declared and not takes(declared[column.name]):
            raise PostgresRefused(
                f"{who}: column '{column.name}' of {table.where} is {column.described}, and the records are declared "
                f"to hold {declared[column.name]} there.",
                fix="Change the column, or map the records to another type before the sink.",
            )
    for column in table.columns:
        if column.not_null and not column.filled and not column.generated and column.name not in columns:
            raise PostgresRefused(
                f"{who}: column '{column.name}' of {table.where} is NOT NULL and has no default, and the records do "
                f"not fill it.",
                fix=f"Add it: columns={[*columns, column.name]!r}, or give it a default in the table.",
            )
    for right in ("INSERT",) if key is None else ("INSERT", "UPDATE", "SELECT"):
        for name_of in columns:
            asked = {"table": table.oid, "column": name_of, "right": right}
            if connection.execute(_RIGHTS, asked).fetchone() != (True,):
                raise PostgresRefused(
                    f"{who}: the user may not {right} column '{name_of}' of {table.where}.",
                    fix=f"GRANT {right} ON {'.'.join(table.names)} TO {connection.info.user}.",
                )
    if key is not None:
        _check_key(connection, table, columns, key, who)
    return PostgresTarget(table, filled, key)


def _check_key(connection: psycopg.Connection[Any], table: Table, columns: list[str], key: list[str], who: str) -> None:
    for name in key:
        column = table.column(name, who)
        if not column.not_null:
            raise PostgresRefused(
                f"{who}: column '{name}' of {table.where} is in the key and may be NULL, which equals nothing.",
                fix=f"ALTER TABLE {'.'.join(table.names)} ALTER COLUMN {name} SET NOT NULL.",
            )
        if name not in columns:
            raise PostgresRefused(
                f"{who}: column '{name}' is in the key, and the records do not fill it.",
                fix=f"Add it: columns={[*columns, name]!r}.",
            )
    named = ", ".join(key)
    unique = [deferred for found, deferred in connection.execute(_KEYS, [table.oid]) if set(found) == set(key)]
    # One is enough: PostgreSQL takes all unique indexes on these columns together.
    for constraint in unique:
        if constraint is not None:
            raise PostgresRefused(
                f"{who}: the key ({named}) of {table.where} has the constraint '{constraint}', which is DEFERRABLE: "
                f"PostgreSQL cannot replace rows by it.",
                fix=f"ALTER TABLE {'.'.join(table.names)} DROP CONSTRAINT {constraint}, ADD UNIQUE ({named}).",
            )
    if not unique:
        raise PostgresRefused(
            f"{who}: {table.where} may have several rows of one key: it has no unique index on ({named}).",
            fix=f"ALTER TABLE {'.'.join(table.names)} ADD UNIQUE ({named}), or give the key it has.",
        )


def _declared(value_type: Any) -> dict[str, pa.DataType]:
    """The fields of a declared type of records, as far as it has any."""
    if value_type is None:
        return {}
    try:
        schema = schema_of(value_type)
    except PenstockError:
        return {}
    return dict(zip(schema.names, schema.types))
