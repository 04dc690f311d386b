"""A Redis server, as sources and sinks ask it: again while it cannot be reached, with errors that name it, no secret.

The client comes with the extra `redis` and is imported only where a server is named.
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
"""How long one answer may take before it is asked for again."""
_SCRIPT = re.compile(r"^@user_script: ?\d+: -?")
_FOR_NOW = re.compile(
    r"(?:^|: -)(?:READONLY|OOM|NOREPLICAS|LOADING|MASTERDOWN|MISCONF|BUSY|CLUSTERDOWN|TRYAGAIN|UNBLOCKED|NOSCRIPT"
    r"|ERR max number of clients)\b"
)
"""How such an answer begins as may be another one soon, by itself or behind what a script says of it."""
DEFAULT_RETRY = Duration.of_seconds(30)


class RedisUnavailable(PenstockError):
    """The server cannot be reached, or refuses for now."""


class RedisRefused(PenstockError):
    """The server will say the same again, until somebody changes it or the program."""

    retryable = False


class RedisEndpoint:
    """Pickled into the job. Each process has connections of its own, from its first question on."""

    def __init__(
        self, party: str, url: str, password: str | None, retry_for: Duration | Time | timedelta | int
    ) -> None:
        """`party` asks: it is named in errors."""
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
            # The cause may quote a part of the password.
            raise PenstockError(
                f"{party}: the address of the server cannot be read.",
                fix="Write redis://[user[:password]@]host[:port][/database], rediss://... for TLS, or unix:///path. "
                "Such signs as / ? # @ : in a password are written %2F %3F %23 %40 %3A; or give it by password=.",
            ) from None
        place = parsed.get("path") or f"{parsed.get('host', 'localhost')}:{parsed.get('port', 6379)}"
        self.name = f"{place}/{parsed.get('db', 0)}"
        """Where it is, without a secret."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_client": None}

    def __repr__(self) -> str:
        return f"RedisEndpoint({self.name})"

    def ask(self, question: Callable[[Any], T], about: str) -> T:
        """What the question, a function of the client, gives; asked again while the server cannot be reached.

        So it must be one that may be asked twice. `about`: the key, for errors.
        """
        from redis import exceptions

        since, pause = monotonic(), _FIRST_PAUSE_S
        while True:
            try:
                return question(self._connected())
            except (exceptions.AuthenticationError, exceptions.AuthorizationError) as error:
                raise RedisRefused(
                    f"{self.party}: Redis at {self.name} refuses the login, for {about}: {error}",
                    fix="Correct user and password: in the URL, or password=.",
                ) from None
            except (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ResponseError) as error:
                if isinstance(error, exceptions.ResponseError) and not is_for_now(str(error)):
                    raise self.refusal(str(error), about) from error
                tried = monotonic() - since
                if tried >= self._retry_s:
                    which, answer = getattr(error, "about", about), _SCRIPT.sub("", str(error)).rstrip(" .\r\n")
                    raise RedisUnavailable(
                        f"{self.party}: Redis at {self.name} did not serve for {tried:.1f} s, for {which}: {answer}.",
                        fix="See that it runs, takes writes and has memory, and that the hosts of driver and tasks can "
                        "reach it. How long it is tried is retry_for=; then the job's restart strategy decides.",
                    ) from None
                # After a failover the name may lead to another server.
                self.close()
            sleep(min(pause, self._retry_s - tried))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def refusal(self, answer: str, about: str) -> PenstockError:
        """The error for what Redis answered, and would answer again."""
        answer = _SCRIPT.sub("", answer).rstrip(" .\r\n")
        problem = f"{self.party}: Redis at {self.name} refuses {about}: {answer}."
        fix = "Redis says so, and would again: change what it names."
        if "WRONGTYPE" in answer:
            fix = "The key holds another kind of value than this needs: use another key, or remove it (DEL)."
        elif "NOPERM" in answer:
            fix = "Give the user the commands and keys that this needs (ACL SETUSER), EVALSHA and SCRIPT LOAD too."
        return RedisRefused(problem, fix=fix)

    def _connected(self) -> Any:
        if self._client is None:
            from redis import Redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry

            options: dict[str, Any] = {"socket_connect_timeout": _ANSWER_S, "socket_timeout": _ANSWER_S, "protocol": 2}
            if self._password is not None:
                options["password"] = self._password
            # `ask` tries again, and knows for how long.
            self._client = Redis.from_url(self._url, retry=Retry(NoBackoff(), 0), **options)
        return self._client


def is_for_now(answer: str) -> bool:
    """Whether an error that Redis answered may be gone when it is asked again."""
    return _FOR_NOW.search(answer) is not None


def client_library(party: str) -> Any:
    try:
        import redis
    except ImportError:
        raise PenstockError(
            f"{party} needs the Python client of Redis, which is not installed.", fix="pip install 'penstock[redis]'"
        ) from None
    return redis
