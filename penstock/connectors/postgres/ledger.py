"""Ledger of committed epochs: a row that is updated in the same transaction that writes the epoch's rows.

There is one row per lineage and sink. A job that starts over, or from a savepoint, has a new lineage: its epochs hold
different records than earlier epochs of the same number. The row of a finished lineage is kept, because a driver that
was presumed dead can still try to commit an epoch.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from penstock.connectors.postgres.connection import PostgresRefused, driver, sql

if TYPE_CHECKING:
    import psycopg

NAME = "penstock_ledger"
STALLED_SECONDS = 10
"""Lock timeout. A commit enters its epoch within milliseconds, so a session that holds the lock for this long and waits
for its client belongs to a driver that was stopped or cut off."""
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
    """Ledger of one sink, in the schema of its target table."""

    def __init__(self, schema: str, target: str) -> None:
        self._names = (schema, NAME)
        self._target = target

    def create(self, connection: psycopg.Connection[Any], who: str) -> None:
        """Create the table if it does not exist."""
        errors = driver().errors
        quoted = sql("{ledger}", ledger=self._names).as_string(connection)
        if connection.execute("SELECT to_regclass(%s)", [quoted]).fetchone() != (None,):
            return
        try:
            connection.execute(sql(_CREATE, ledger=self._names))
        except (errors.DuplicateTable, errors.UniqueViolation):
            # Another sink has just created it.
            pass
        except errors.InsufficientPrivilege:
            raise PostgresRefused(
                f"{who}: the user is not allowed to create the table {quoted}, in which the sink records its epochs.",
                fix=f"Create it as a privileged user, and grant SELECT, INSERT and UPDATE on it:"
                f"{sql(_CREATE, ledger=self._names).as_string(connection)}",
            ) from None

    def enter(self, connection: psycopg.Connection[Any], lineage: str, sink: str, epoch: int) -> bool:
        """Within a transaction: return whether to write this epoch. If not, it or a later one is already written.

        If two drivers commit concurrently, one waits for the other. If the other was stopped or cut off before its
        commit, this method terminates its session; should that driver return, it finds the epoch written.
        """
        # synchronous_commit: the server must not lose an acknowledged commit in a crash.
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
