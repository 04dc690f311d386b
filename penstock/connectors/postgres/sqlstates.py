"""Classification of PostgreSQL errors by SQLSTATE (Appendix A of its documentation) into transient and permanent.

An error is transient if the same statement can succeed later without a change of the program or the schema: the server
restarts or fails over, a lock is held, a resource is exhausted. All other errors are caused by the records, the program
or the schema, and are permanent.
"""

from __future__ import annotations

RETRYABLE_CLASSES = {
    "08": "the connection failed",
    "53": "the server has exhausted a resource: disk, memory, connections",
    "58": "the server's operating system failed",
}
"""All codes of these classes are transient, except those in NOT_RETRYABLE."""

RETRYABLE = {
    "25006": "the server is temporarily read-only: a standby, a failover, a full disk",
    "25P02": "an earlier statement of the transaction failed",
    "25P03": "idle_in_transaction_session_timeout",
    "25P04": "transaction_timeout",
    "26000": "a pooler moved the session to another server connection, without its prepared statements",
    "34000": "a pooler moved the session to another server connection, without its cursors",
    "40000": "the transaction was rolled back",
    "40001": "serialization failure",
    "40003": "statement completion unknown; the ledger resolves it",
    "40P01": "deadlock",
    "42P05": "a pooler moved the session to another server connection, with prepared statements of another session",
    "55006": "another session uses the object",
    "55P03": "lock_timeout, or a lock that is not available immediately",
    "57000": "an operator intervened",
    "57014": "statement_timeout, or an operator cancelled the statement",
    "57P01": "the server is shutting down, or an operator terminated the session",
    "57P02": "another process of the server crashed",
    "57P03": "the server is starting",
    "57P05": "idle_session_timeout",
    "72000": "old_snapshot_threshold",
    "HV00N": "a foreign server could not be reached",
    "XX000": "an internal error, often caused by a lagging standby or a disk",
}
"""Transient codes, and their causes."""

NOT_RETRYABLE = {
    "53400": "a limit in the server's configuration is exceeded",
}
"""Permanent codes of RETRYABLE_CLASSES."""


def passes(sqlstate: str | None) -> bool:
    """Return whether an error is transient. Errors without a code come from the client library, mostly on connect."""
    if sqlstate is None:
        return True
    return sqlstate in RETRYABLE or (sqlstate[:2] in RETRYABLE_CLASSES and sqlstate not in NOT_RETRYABLE)


def is_brief(sqlstate: str | None) -> bool:
    """Return whether to retry within the same epoch, for as long as `retry_seconds`."""
    return sqlstate is not None and sqlstate != "XX000" and passes(sqlstate)


_LOCKED = (
    "Find the session that holds the lock in pg_stat_activity and pg_locks, and end it; or raise lock_timeout, "
    "statement_timeout and transaction_timeout of the sink's role."
)
_FIXES = {
    "25006": "Check that the server is the primary and accepts writes (default_transaction_read_only, a full disk). "
    "With several hosts in the connection, add target_session_attrs=read-write.",
    "55P03": _LOCKED,
    "55006": _LOCKED,
    "57014": _LOCKED,
    "25P04": _LOCKED,
    "25P03": _LOCKED,
    "40P01": _LOCKED,
    "53100": "Free space on the server's disk.",
    "53300": "Raise max_connections of the server, or close other sessions.",
}


def fix_for(sqlstate: str | None) -> str:
    """Return what an operator can do about a transient error that has lasted too long."""
    otherwise = "Start the server, or retry longer with retry_seconds=...; then restart the job."
    return _FIXES.get(sqlstate or "", otherwise)
