"""Connections to PostgreSQL: settings that keep their password, and work that outlives a server that comes back."""

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
"""As libpq has it: `host=db dbname=shop user=flow`, `postgresql://flow@db/shop`, or the same words as a dict."""

RETRY_SECONDS = 60.0
"""How long a server may be away: longer than one needs to start again after a crash."""
_LAST_PAUSE = 1.0
_REFUSED = ("password authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry",
            "authentication failed", "not permitted to log in", "invalid connection option")  # fmt: skip
"""Words of a server, or of libpq, that say the same tomorrow. Libpq gives no SQLSTATE of a refused connection."""


class PostgresError(PenstockError):
    """PostgreSQL could not be reached, or refused. Operator action: what the message ends with."""


class PostgresRefused(PostgresError):
    """It will refuse again: a wrong password, a table or column that is missing, a value that does not fit."""

    retryable = False


def driver() -> Any:
    """psycopg, which is in an extra."""
    try:
        import psycopg
    except ImportError:
        raise PenstockError(
            "PostgreSQL needs the package psycopg, which is not installed.", fix="pip install 'penstock[postgres]'"
        ) from None
    return psycopg


class PostgresEndpoint:
    """Where a database is and how to get in. Pickled into the job; shows all but the password."""

    def __init__(self, connection: Conninfo, whose: str, retry_seconds: float = RETRY_SECONDS) -> None:
        """`whose`: the class whose argument `connection` is."""
        psycopg = driver()
        if isinstance(retry_seconds, bool) or not isinstance(retry_seconds, (int, float)) or retry_seconds < 0:
            raise PenstockError(f"{whose}: retry_seconds must be a number of seconds, not {retry_seconds!r}.")
        try:
            words = dict(connection) if isinstance(connection, Mapping) else {"conninfo": connection}
            self._conninfo: str = psycopg.conninfo.make_conninfo(**words)
            known = psycopg.conninfo.conninfo_to_dict(self._conninfo)
        except Exception:  # whatever it says, it may say the password
            raise PenstockError(
                f"{whose}: the connection cannot be understood.",
                fix="Write it as 'host=... port=... dbname=... user=... password=...', as "
                "'postgresql://user:password@host:port/dbname', or as a dict of these words.",
            ) from None
        self._whose = whose
        self.retry_seconds = float(retry_seconds)
        defaults = {each.keyword.decode(): each.val.decode() for each in psycopg.pq.Conninfo.get_defaults() if each.val}
        host = str(known.get("host") or known.get("hostaddr") or defaults.get("host") or "the local socket")
        port = known.get("port") or defaults.get("port")
        self.user = str(known.get("user") or defaults.get("user") or "")
        database = known.get("dbname") or defaults.get("dbname") or self.user
        self.where = f"{host}:{port}, database '{database}'"
        """For messages."""

    def __repr__(self) -> str:
        return f"PostgreSQL at {self.where}"

    def connect(self, name: str) -> psycopg.Connection[Any]:
        """`name` is what the server's administrator sees. Once: `Session` tries again."""
        try:
            connection: psycopg.Connection[Any] = driver().connect(
                self._conninfo, autocommit=True, fallback_application_name=name, client_encoding="utf8"
            )
        except driver().OperationalError as error:
            text = said(error)
            if any(words in text for words in _REFUSED):
                raise PostgresRefused(
                    f"{self._whose}: PostgreSQL at {self.where} refuses the user '{self.user}': {text}",
                    fix=f"Correct the connection of {self._whose}, or the rights of that user.",
                ) from None
            raise
        return connection


class Session:
    """A connection that is made when it is needed, and made again when it has been lost."""

    def __init__(self, server: PostgresEndpoint, name: str) -> None:
        self._server = server
        self._name = name
        self._connection: psycopg.Connection[Any] | None = None

    def run(self, work: Callable[[psycopg.Connection[Any]], Result], doing: str) -> Result:
        """What `work` gives. After an error that passes it is called again, with a new connection, for as long as the
        server may be away; so it must be right to call it again. `doing` is for the message if that does not help."""
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
                # Also where the connection is sound: after a failover another server may be the primary.
                self.close()
                left = until - time.monotonic()
                if left <= 0:
                    raise self._not_in_time(error, doing) from None
                time.sleep(min(pause, left))
                pause = min(2 * pause, _LAST_PAUSE)
            except BaseException:
                # The connection may be in the middle of something.
                self.close()
                raise

    def _not_in_time(self, error: Any, doing: str) -> PostgresError:
        server, code = self._server, error.sqlstate
        long = f"for {server.retry_seconds:g} s"
        what = f"did not do it {long}" if code else f"was not to be reached {long}"
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
    """What to raise for an error of the server: one that ends the job, unless it may pass."""
    code = f" (SQLSTATE {error.sqlstate})" if error.sqlstate else ""
    return (PostgresError if passes(error.sqlstate) else PostgresRefused)(
        f"{who}: {doing} failed: {said(error)}{code}.", fix=fix
    )


def said(error: Exception) -> str:
    """What the server or libpq said, in one line."""
    diagnosis = getattr(error, "diag", None)
    text = (diagnosis and diagnosis.message_primary) or str(error)
    return " ".join(text.split()).removeprefix("connection failed: ")


def sql(template: str, **names: Any) -> Composed:
    """SQL with identifiers put in place: {table} for a `Table`'s names, {columns} for a list of them."""
    from psycopg import sql as parts

    def quoted(name: Any) -> Any:
        if isinstance(name, list):
            return parts.SQL(", ").join(map(parts.Identifier, name))
        return parts.Identifier(*name) if isinstance(name, tuple) else parts.Identifier(name)

    return parts.SQL(template).format(**{key: quoted(name) for key, name in names.items()})
