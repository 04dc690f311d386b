"""Decides which requests the service answers. Upload and run is code execution, so every request is checked:

1. `Host` names the service: a loopback name, `rest.address`, the address that the service listens on or that the
   connection arrived at, the name of the host if it listens on all addresses, or a name in `rest.allowed-hosts`. A page
   that rebinds its own name to this address is refused (403).
2. `Origin`, if there is one, equals `Host`. `Sec-Fetch-Site`, if there is one, is `same-origin` or `none`; a link on a
   foreign page that opens a read in a browser is the only exception (403).
3. `Authorization: Bearer <token>` has the token of the service (401). `/health` and `/ready` need none.
4. Without tokens (`rest.auth.enabled: false`), an action of a browser needs `Content-Type: application/json` or the
   header `X-Penstock-Request`, which a form cannot send (403). A request comes from a browser if it has `Origin`,
   `Referer`, `Cookie` or a `Sec-Fetch-` header, or if its `User-Agent` starts with `Mozilla/`. Flink's clients send
   none of them. `GET /jobs/:jobid/yarn-cancel` always needs the header.

An action is a request whose method is not GET or HEAD, and a GET that cancels a job or runs a program to plan it.
The same rules apply to websockets.
"""

from __future__ import annotations

import hmac
import socket
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.common.addresses import WILDCARDS
from penstock.common.options.service import REST_ADDRESS, REST_ALLOWED_HOSTS, REST_BIND_ADDRESS
from penstock.rest.audit import AuditLog
from penstock.rest.errors import error_body
from penstock.rest.masking import Masking

REQUEST_HEADER = "X-Penstock-Request"

_OPEN_PATHS = frozenset({"/health", "/ready"})
_READING = frozenset({"GET", "HEAD"})
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_NO_MASKING = Masking({})
_MAX_REFUSALS = 20
"""Refused actions per second that are logged."""


class Refusal(NamedTuple):
    """Why a request is refused."""

    status: int
    text: str


class _Headers(NamedTuple):
    hosts: int = 0
    host: bytes = b""
    origin: bytes | None = None
    site: bytes | None = None
    mode: bytes = b""
    authorization: bytes = b""
    json: bool = False
    custom: bool = False
    browser: bool = False


class AccessRules:
    """The rules with the settings of a service. An empty token: requests need none."""

    def __init__(self, settings: Mapping[str, str], token: str) -> None:
        self._hosts = frozenset(
            name.lower().encode("idna" if not name.isascii() else "ascii") for name in _names(settings)
        )
        self._token = token.encode()

    def refusal(self, scope: Scope) -> Refusal | None:
        """Return why a request or websocket is refused, or None."""
        headers = _read(scope["headers"])
        method = scope.get("method", "GET")
        path = scope["path"]
        acts = _acts(method, path)
        if headers.hosts != 1:
            return Refusal(400, "A request needs one Host header.")
        if not self._is_own(headers.host, scope):
            return Refusal(
                403, "The Host header does not name this service. Add the name to rest.allowed-hosts if it should."
            )
        if headers.origin is not None and headers.origin.lower().partition(b"://")[2] != headers.host:
            return Refusal(403, "Pages of another origin cannot use this service.")
        links = headers.mode == b"navigate" and scope["type"] == "http" and not acts
        if headers.site not in (None, b"same-origin", b"none") and not links:
            return Refusal(403, "Pages of another site cannot use this service.")
        if path in _OPEN_PATHS and not acts:
            return None
        if self._token:
            return None if self._authorized(headers.authorization) else _UNAUTHORIZED
        if headers.custom or not acts:
            return None
        if method in _READING and path.rstrip("/").endswith("/yarn-cancel"):
            return Refusal(403, f"To cancel a job with GET, send the header {REQUEST_HEADER}, or use PATCH.")
        if headers.browser and not headers.json:
            return Refusal(
                403, f"A browser needs the header {REQUEST_HEADER} or the content type application/json for actions."
            )
        return None

    def _is_own(self, host: bytes, scope: Scope) -> bool:
        name = _without_port(host)
        if name in self._hosts:
            return True
        server = scope.get("server")
        return server is not None and name == _bracketed(server[0]).encode()

    def _authorized(self, value: bytes) -> bool:
        return value[:7].lower() == b"bearer " and hmac.compare_digest(value[7:].strip(), self._token)


_UNAUTHORIZED = Refusal(
    401, "The request needs the header 'Authorization: Bearer <token>' with the token in rest.auth.token-file."
)


class AccessControl:
    """ASGI middleware that answers refused requests itself. It covers websockets too."""

    def __init__(self, app: ASGIApp, rules: AccessRules, audit: AuditLog | None = None) -> None:
        self._app = app
        self._rules = rules
        self._audit = audit
        self._second = self._refused = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._rules.refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
            return
        self._write_audit(scope, refusal.status)
        if scope["type"] == "websocket":
            # Before the handshake is accepted, closing it is an answer with status 403.
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.text})
            return
        body = error_body(_NO_MASKING, refusal.text)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            # The body of a refused request is not read.
            (b"connection", b"close"),
        ]
        if refusal.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _write_audit(self, scope: Scope, status: int) -> None:
        """Log a refused action. A client without a token must not rotate the actions of others away."""
        method = scope.get("method", "GET")
        if self._audit is None or not _acts(method, scope["path"]):
            return
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._refused = second, 0
        self._refused += 1
        if self._refused <= _MAX_REFUSALS:
            self._audit.write(scope.get("client"), f"{method} {scope['path'][:200]}", "", status)


def _acts(method: str, path: str) -> bool:
    if method not in _READING:
        return True
    # Routes ignore a slash at the end.
    path = path.rstrip("/")
    return path.endswith("/yarn-cancel") or (path.endswith("/plan") and "/jars/" in path)


def _read(raw: Iterable[tuple[bytes, bytes]]) -> _Headers:
    hosts = 0
    host = authorization = mode = b""
    origin = site = None
    json = custom = browser = False
    for name, value in raw:
        if name == b"host":
            hosts += 1
            host = value.lower()
        elif name == b"authorization":
            authorization = value
        elif name == b"origin":
            origin = value
            browser = True
        elif name == b"content-type":
            json = value.partition(b";")[0].strip().lower() == b"application/json"
        elif name == b"x-penstock-request":
            custom = True
        elif name == b"user-agent":
            browser = browser or value.startswith(b"Mozilla/")
        elif name in (b"referer", b"cookie"):
            browser = True
        elif name.startswith(b"sec-fetch-"):
            browser = True
            if name == b"sec-fetch-site":
                site = value
            elif name == b"sec-fetch-mode":
                mode = value
    return _Headers(hosts, host, origin, site, mode, authorization, json, custom, browser)


def _names(settings: Mapping[str, str]) -> list[str]:
    bound = REST_BIND_ADDRESS.read(settings)
    allowed = [name for each in REST_ALLOWED_HOSTS.read(settings).split(",") if (name := each.strip())]
    # A service that listens on all addresses is advertised to other Dispatchers by the name of its host.
    own = [socket.gethostname(), socket.getfqdn()] if bound in WILDCARDS else []
    names = [*_LOOPBACK_NAMES, bound, REST_ADDRESS.read(settings), *own, *allowed]
    return [_bracketed(name) for name in names if name]


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def _without_port(host: bytes) -> bytes:
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() else host
