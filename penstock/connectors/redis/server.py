"""Access to a Redis server, with retries while it is unavailable, and errors that name it without its password.

The client library comes with the extra `redis` and is imported only when a server is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from time import monotonic, sleep
from typing import Any, TypeAlias, TypeVar

from penstock.common.time import Duration, Time, to_millis
from penstock.errors import PenstockError

T = TypeVar("T")
RetryTime: TypeAlias = Duration | Time | timedelta | int

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0
_ANSWER_S = 10
"""Timeout of one request, after which it is retried."""
_SCRIPT = re.compile(r"^@user_script: ?\d+: -?")
_FOR_NOW = re.compile(
    r"(?:^|: -)(?:READONLY|OOM|NOREPLICAS|LOADING|MASTERDOWN|MISCONF|BUSY|CLUSTERDOWN|TRYAGAIN|UNBLOCKED|NOSCRIPT"
    r"|ERR max number of clients)\b"
)
"""Start of an error reply that can be transient, alone or after the prefix of a script error."""
DEFAULT_RETRY = Duration.of_seconds(30)


class RedisUnavailable(PenstockError):
    """Redis cannot be reached, or temporarily rejects requests.

    Operator action: start the server, or correct its address; the job retries.
    """


class RedisRefused(PenstockError):
    """Redis rejects a request permanently, until its configuration, its data or the program changes.

    Operator action: correct what the message names in the server or in the program, and start the job again.
    """

    retryable = False


class RedisEndpoint:
    """A server. Pickled into the job. Each process opens its own connections on first use."""

    def __init__(
        self, party: str, url: str, password: str | None, retry_for: Duration | Time | timedelta | int
    ) -> None:
        """`party`: who uses the server, for error messages."""
        client_library(party)
        from redis import connection

        self.party = party
        self._url = url
        self._password = password
        self._retry_s = to_millis(retry_for) / 1000
        self._client: Any = None
        try:
            parse: Any = connection.parse_url
            parsed = parse(url)
        except (ValueError, TypeError, AttributeError):
            # The cause can quote a part of the password.
            raise PenstockError(
                f"{party}: the server URL is invalid.",
                fix="Use redis://[user[:password]@]host[:port][/database], rediss://... for TLS, or unix:///path. "
                "Percent-encode / ? # @ : in a password as %2F %3F %23 %40 %3A, or pass it as password=.",
            ) from None
        place = parsed.get("path") or f"{parsed.get('host', 'localhost')}:{parsed.get('port', 6379)}"
        self.name = f"{place}/{parsed.get('db', 0)}"
        """Address without the password."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_client": None}

    def __repr__(self) -> str:
        return f"RedisEndpoint({self.name})"

    def ask(self, question: Callable[[Any], T], about: str) -> T:
        """Return the result of `question`, a function of the client. Retries while the server is unavailable.

        The question must be idempotent. `about`: the key, for error messages.
        """
        from redis import exceptions

        since, pause = monotonic(), _FIRST_PAUSE_S
        while True:
            try:
                return question(self._connected())
            except (exceptions.AuthenticationError, exceptions.AuthorizationError) as error:
                raise RedisRefused(
                    f"{self.party}: Redis at {self.name} rejects the login ({about}): {error}",
                    fix="Correct the user and the password, in the URL or in password=.",
                ) from None
            except (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ResponseError) as error:
                if isinstance(error, exceptions.ResponseError) and not is_for_now(str(error)):
                    raise self.refusal(str(error), about) from error
                tried = monotonic() - since
                if tried >= self._retry_s:
                    which, answer = getattr(error, "about", about), _SCRIPT.sub("", str(error)).rstrip(" .\r\n")
                    raise RedisUnavailable(
                        f"{self.party}: Redis at {self.name} was unavailable for {tried:.1f} s ({which}): {answer}.",
                        fix="Check that it is running, accepts writes and has free memory, and that the driver and the "
                        "tasks can reach it. Set retry_for= to retry longer; then the job's restart strategy decides.",
                    ) from None
                # After a failover the host name can resolve to another server.
                self.close()
            sleep(min(pause, self._retry_s - tried))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def refusal(self, answer: str, about: str) -> PenstockError:
        """Return the error for a permanent rejection."""
        answer = _SCRIPT.sub("", answer).rstrip(" .\r\n")
        problem = f"{self.party}: Redis at {self.name} rejects {about}: {answer}."
        fix = "A retry would fail in the same way: fix the cause that Redis reports."
        if "WRONGTYPE" in answer:
            fix = "The key holds a value of another type: use another key, or remove it (DEL)."
        elif "NOPERM" in answer:
            fix = "Grant the user the required commands and keys (ACL SETUSER), including EVALSHA and SCRIPT LOAD."
        return RedisRefused(problem, fix=fix)

    def _connected(self) -> Any:
        if self._client is None:
            from redis import Redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry

            options: dict[str, Any] = {"socket_connect_timeout": _ANSWER_S, "socket_timeout": _ANSWER_S, "protocol": 2}
            if self._password is not None:
                options["password"] = self._password
            # `ask` retries, and limits the time.
            self._client = Redis.from_url(self._url, retry=Retry(NoBackoff(), 0), **options)
        return self._client


def is_for_now(answer: str) -> bool:
    """Return whether an error reply of Redis can be transient."""
    return _FOR_NOW.search(answer) is not None


def client_library(party: str) -> Any:
    try:
        import redis
    except ImportError:
        raise PenstockError(
            f"{party} needs the Python client of Redis, which is not installed.", fix="pip install 'penstock[redis]'"
        ) from None
    return redis
