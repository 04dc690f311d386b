"""Which epoch of which sink is in the database: a row that is changed in the transaction that brings the epoch's rows.

A row for each lineage and sink. Of a job that begins anew, or with a savepoint, the lineage is another one: its epochs
hold other records than epochs of the same number before. A row stays behind when its lineage ends, for a driver that
was thought dead may still come with an epoch.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from penstock.connectors.postgres.connection import PostgresRefused, driver, sql

if TYPE_CHECKING:
    import psycopg

NAME = "penstock_ledger"
STALLED_SECONDS = 10
"""A commit takes milliseconds to say that it has begun. Who is waited for so long, and waits for its own client, is a
driver that was stopped or cut off in the middle of one."""
_CREATE = """
CREATE TABLE {ledger} (
    lineage text NOT NULL, sink text NOT NULL, epoch bigint NOT NULL, target text NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (lineage, sink)
) WITH (fillfactor = 50)
"""
_ENTER = """
INSERT INTO {ledger} AS held (lineage, sink, epoch, target) VALUES (%s, %s, %s, %s)
ON CONFLICT (lineage, sink) DO UPDATE
SET epoch = EXCLUDED.epoch, target = EXCLUDED.target, committed_at = DEFAULT WHERE held.epoch < EXCLUDED.epoch
RETURNING true
"""
_SETTINGS = """
SELECT set_config('application_name', %s, true), set_config('lock_timeout', %s, true),
       CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END
"""
_DISMISS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = %s AND pid <> pg_backend_pid() AND wait_event_type = 'Client'
"""


class Ledger:
    """Of one sink, in the schema of the table that it writes to."""

    def __init__(self, schema: str, target: str) -> None:
        self._names = (schema, NAME)
        self._target = target

    def create(self, connection: psycopg.Connection[Any], who: str) -> None:
        """If it is not there yet."""
        errors = driver().errors
        quoted = sql("{ledger}", ledger=self._names).as_string(connection)
        if connection.execute("SELECT to_regclass(%s)", [quoted]).fetchone() != (None,):
            return
        try:
            connection.execute(sql(_CREATE, ledger=self._names))
        except (errors.DuplicateTable, errors.UniqueViolation):
            # Another sink did, a moment ago.
            pass
        except errors.InsufficientPrivilege:
            raise PostgresRefused(
                f"{who}: the user may not create the table {quoted}, in which the sink keeps which epochs it wrote.",
                fix=f"Let somebody who may create it, and grant SELECT, INSERT and UPDATE on it:"
                f"{sql(_CREATE, ledger=self._names).as_string(connection)}",
            ) from None

    def enter(self, connection: psycopg.Connection[Any], lineage: str, sink: str, epoch: int) -> bool:
        """Within a transaction: whether this epoch is to be written now. If not, it or a later one has been.

        Of two drivers that come at the same time one waits for the other to commit. If that one does not come to it
        because its driver was stopped or cut off, its session is ended: it would find its epoch written.
        """
        # It must not be lost by a server that crashes after it said that it has it.
        name = f"penstock {hashlib.blake2b(f'{lineage} {sink}'.encode(), digest_size=16).hexdigest()}"
        enter = sql(_ENTER, ledger=self._names)
        connection.execute(_SETTINGS, [name, f"{STALLED_SECONDS}s"])
        while True:
            try:
                with connection.transaction():
                    entered = connection.execute(enter, [lineage, sink, epoch, self._target]).fetchone() is not None
                break
            except driver().errors.LockNotAvailable:
                connection.execute(_DISMISS, [name])
        connection.execute("SET LOCAL lock_timeout TO DEFAULT")
        return entered
