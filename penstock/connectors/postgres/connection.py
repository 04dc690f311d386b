"""Connections to PostgreSQL: settings that hide the password, and sessions that survive a server restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.connectors.postgres.sqlstates import fix_for, is_brief, passes
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composed

Result = TypeVar("Result")
Conninfo = str | Mapping[str, Any]
"""libpq connection settings: ``host=db dbname=shop user=flow``, ``postgresql://flow@db/shop``, or a dict of them."""

RETRY_SECONDS = 60.0
"""How long to retry an unavailable server: longer than a restart after a crash takes."""
_LAST_PAUSE = 1.0
_REFUSED = ("password authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry",
            "authentication failed", "not permitted to log in", "invalid connection option")  # fmt: skip
"""Messages of the server or libpq that are permanent. libpq returns no SQLSTATE for a refused connection."""


class PostgresError(PenstockError):
    """PostgreSQL is unavailable, or rejected a request. Operator action: apply the fix in the message."""


class PostgresRefused(PostgresError):
    """PostgreSQL rejects a request permanently: a wrong password, a missing table or column, a mismatched value.

    Operator action: correct what the message names in the database or in the program, and start the job again.
    """

    retryable = False


def driver() -> Any:
    """Import and return psycopg, which is an optional dependency."""
    try:
        import psycopg
    except ImportError:
        raise PenstockError(
            "PostgreSQL needs the package psycopg, which is not installed.", fix="pip install 'penstock[postgres]'"
        ) from None
    return psycopg


class PostgresEndpoint:
    """A database and its credentials. Pickled into the job. Its repr omits the password."""

    def __init__(self, connection: Conninfo, whose: str, retry_seconds: float = RETRY_SECONDS) -> None:
        """`whose`: the class that takes `connection` as an argument, for error messages."""
        psycopg = driver()
        if isinstance(retry_seconds, bool) or not isinstance(retry_seconds, (int, float)) or retry_seconds < 0:
            raise PenstockError(f"{whose}: retry_seconds must be a number of seconds, not {retry_seconds!r}.")
        try:
            words = dict(connection) if isinstance(connection, Mapping) else {"conninfo": connection}
            self._conninfo: str = psycopg.conninfo.make_conninfo(**words)
            known = psycopg.conninfo.conninfo_to_dict(self._conninfo)
        except Exception:  # the message can contain the password
            raise PenstockError(
                f"{whose}: the connection settings are invalid.",
                fix="Use 'host=... port=... dbname=... user=... password=...', "
                "'postgresql://user:password@host:port/dbname', or a dict of these settings.",
            ) from None
        self._whose = whose
        self.retry_seconds = float(retry_seconds)
        defaults = {each.keyword.decode(): each.val.decode() for each in psycopg.pq.Conninfo.get_defaults() if each.val}
        host = str(known.get("host") or known.get("hostaddr") or defaults.get("host") or "the local socket")
        port = known.get("port") or defaults.get("port")
        self.user = str(known.get("user") or defaults.get("user") or "")
        database = known.get("dbname") or defaults.get("dbname") or self.user
        self.where = f"{host}:{port}, database '{database}'"
        """Location of the database, for messages."""

    def __repr__(self) -> str:
        return f"PostgreSQL at {self.where}"

    def connect(self, name: str) -> psycopg.Connection[Any]:
        """Connect once, without retries; `Session` retries. `name` is the application name that the server shows."""
        try:
            connection: psycopg.Connection[Any] = driver().connect(
                self._conninfo, autocommit=True, fallback_application_name=name, client_encoding="utf8"
            )
        except driver().OperationalError as error:
            text = said(error)
            if any(words in text for words in _REFUSED):
                raise PostgresRefused(
                    f"{self._whose}: PostgreSQL at {self.where} rejects the user '{self.user}': {text}",
                    fix=f"Correct the connection settings of {self._whose}, or the privileges of that user.",
                ) from None
            raise
        return connection


class Session:
    """A connection that is opened on first use, and reopened after it is lost."""

    def __init__(self, server: PostgresEndpoint, name: str) -> None:
        self._server = server
        self._name = name
        self._connection: psycopg.Connection[Any] | None = None

    def run(self, work: Callable[[psycopg.Connection[Any]], Result], doing: str) -> Result:
        """Return the result of `work`, which must be idempotent: after a transient error it is called again.

        Retries use a new connection and end after `retry_seconds`. `doing` describes the work in the error message.
        """
        errors = driver()
        until = time.monotonic() + self._server.retry_seconds
        pause = 0.02
        while True:
            try:
                if self._connection is None:
                    self._connection = self._server.connect(self._name)
                return work(self._connection)
            except errors.Error as error:
                lost = self._connection is None or self._connection.broken or self._connection.closed
                away = lost and isinstance(error, errors.OperationalError)
                if not away and not is_brief(error.sqlstate):
                    self.close()
                    raise
                # Reconnect even if the connection is usable: after a failover another server can be the primary.
                self.close()
                left = until - time.monotonic()
                if left <= 0:
                    raise self._not_in_time(error, doing) from None
                time.sleep(min(pause, left))
                pause = min(2 * pause, _LAST_PAUSE)
            except BaseException:
                # The connection can be in the middle of a protocol exchange.
                self.close()
                raise

    def _not_in_time(self, error: Any, doing: str) -> PostgresError:
        server, code = self._server, error.sqlstate
        long = f"for {server.retry_seconds:g} s"
        what = f"did not succeed {long}" if code else f"was unavailable {long}"
        return PostgresError(
            f"{server._whose}: {doing} failed: PostgreSQL at {server.where} {what}: {said(error)}"
            f"{(code and f' (SQLSTATE {code})') or ''}.",
            fix=fix_for(code),
        )

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def failure(error: Any, who: str, doing: str, fix: str) -> PostgresError:
    """Return the error to raise for a server error; it ends the job unless the error is transient."""
    code = f" (SQLSTATE {error.sqlstate})" if error.sqlstate else ""
    return (PostgresError if passes(error.sqlstate) else PostgresRefused)(
        f"{who}: {doing} failed: {said(error)}{code}.", fix=fix
    )


def said(error: Exception) -> str:
    """Return the message of the server or of libpq, in one line."""
    diagnosis = getattr(error, "diag", None)
    text = (diagnosis and diagnosis.message_primary) or str(error)
    return " ".join(text.split()).removeprefix("connection failed: ")


def sql(template: str, **names: Any) -> Composed:
    """Return SQL with quoted identifiers: {table} for the names of a `Table`, {columns} for a list of names."""
    from psycopg import sql as parts

    def quoted(name: Any) -> Any:
        if isinstance(name, list):
            return parts.SQL(", ").join(map(parts.Identifier, name))
        return parts.Identifier(*name) if isinstance(name, tuple) else parts.Identifier(name)

    return parts.SQL(template).format(**{key: quoted(name) for key, name in names.items()})
