"""Logs a browser in: a one-time code in a link becomes a cookie.

Both are signed with the token of the service. A command that can read the token makes codes without asking the
service, and cookies survive a restart of the service, which has the same token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time

CODE_S = 600
"""How long a code can be used."""
SESSION_S = 12 * 3600
"""How long a cookie is valid."""


def login_code(token: str, now: float | None = None) -> str:
    """Return a code that logs one browser in, once, within ten minutes."""
    return _signed(token, "code", int(now if now is not None else time.time()))


def login_url(address: str, token: str) -> str:
    """Return the link that opens the page of the service at an address. Without a token it needs no code."""
    return f"{address}/web/login?code={login_code(token)}" if token else f"{address}/web/"


class Logins:
    """The codes that were used, and the sessions, of one service."""

    def __init__(self, token: str, started: float | None = None) -> None:
        """`started` is when the service started: codes that are older could have been used before."""
        self._token = token
        self._started = int(time.time() if started is None else started)
        self._used: dict[str, int] = {}

    def redeem(self, code: str, now: float | None = None) -> str | None:
        """Return a session for a code, or None if it is not valid, too old, or used."""
        now = time.time() if now is None else now
        made = _verified(self._token, "code", code)
        if made is None or not self._started <= made <= now < made + CODE_S or code in self._used:
            return None
        self._used = {each: at for each, at in self._used.items() if now < at + CODE_S} | {code: made}
        return _signed(self._token, "session", int(now))

    def is_session(self, value: str, now: float | None = None) -> bool:
        """Return whether a cookie is valid."""
        now = time.time() if now is None else now
        made = _verified(self._token, "session", value)
        return made is not None and now < made + SESSION_S


def _signed(token: str, kind: str, at: int) -> str:
    body = f"{at}.{secrets.token_urlsafe(16)}"
    return f"{body}.{_signature(token, kind, body)}"


def _verified(token: str, kind: str, value: str) -> int | None:
    """Return when a value was signed, or None if it was not signed with this token."""
    body, _, signature = value.rpartition(".")
    at = body.partition(".")[0]
    # compare_digest refuses text that is not ASCII.
    if not value.isascii() or not at.isdigit() or len(value) > 200:
        return None
    return int(at) if hmac.compare_digest(signature, _signature(token, kind, body)) else None


def _signature(token: str, kind: str, body: str) -> str:
    return hmac.new(token.encode(), f"penstock web {kind} {body}".encode(), hashlib.sha256).hexdigest()
