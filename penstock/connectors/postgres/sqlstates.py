"""Which errors of PostgreSQL pass by themselves, by their SQLSTATE: Appendix A of its documentation.

An error passes if the same statement may succeed later although neither the program nor the schema has changed: the
server restarts or fails over, a lock is held, a resource is used up. All others follow from the records, the program
or the schema, and come again.
"""

from __future__ import annotations

RETRYABLE_CLASSES = {
    "08": "the connection failed",
    "53": "the server has no more of a resource: disk, memory, connections",
    "58": "the server's operating system failed",
}
"""Every code of these classes passes, unless it is in NOT_RETRYABLE."""

RETRYABLE = {
    "25006": "the server is read-only for now: a standby, a failover, a full disk",
    "25P02": "an earlier statement of the transaction failed",
    "25P03": "idle_in_transaction_session_timeout",
    "25P04": "transaction_timeout",
    "26000": "a pooler gave the session to another server connection, without its prepared statements",
    "34000": "a pooler gave the session to another server connection, without its cursors",
    "40000": "the transaction was rolled back",
    "40001": "serialization failure",
    "40003": "it is not known whether the statement completed; the ledger knows",
    "40P01": "deadlock",
    "42P05": "a pooler gave the session to another server connection, with prepared statements of another session",
    "55006": "another session uses the object",
    "55P03": "lock_timeout, or a lock that is not to be had at once",
    "57000": "an operator intervened",
    "57014": "statement_timeout, or an operator cancelled the statement",
    "57P01": "the server is shutting down, or an operator ended the session",
    "57P02": "another process of the server crashed",
    "57P03": "the server is starting",
    "57P05": "idle_session_timeout",
    "72000": "old_snapshot_threshold",
    "HV00N": "a foreign server could not be reached",
    "XX000": "an internal error; many of them come from a standby that is behind, or a disk",
}
"""Codes that pass, and why."""

NOT_RETRYABLE = {
    "53400": "a limit of the server's configuration is exceeded",
}
"""Codes of RETRYABLE_CLASSES that come again."""


def passes(sqlstate: str | None) -> bool:
    """Whether to try again. Errors without a code are those of the client library, about a connection mostly."""
    if sqlstate is None:
        return True
    return sqlstate in RETRYABLE or (sqlstate[:2] in RETRYABLE_CLASSES and sqlstate not in NOT_RETRYABLE)


def is_brief(sqlstate: str | None) -> bool:
    """Whether it is worth trying again within the same epoch, for as long as the server may be away."""
    return sqlstate is not None and sqlstate != "XX000" and passes(sqlstate)


_LOCKED = (
    "See in pg_stat_activity and pg_locks which session holds the lock, and end it; or raise lock_timeout, "
    "statement_timeout and transaction_timeout of the sink's role."
)
_FIXES = {
    "25006": "See that the server is the primary and takes writes (default_transaction_read_only, a full disk). With "
    "several hosts in the connection, add target_session_attrs=read-write.",
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
    """What an operator can do about an error that passes, but has not passed in time."""
    otherwise = "Start the server, or give it longer with retry_seconds=...; then start the job again."
    return _FIXES.get(sqlstate or "", otherwise)
