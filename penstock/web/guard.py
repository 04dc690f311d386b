"""Decides which requests reach the page, and logs browsers in. Other requests go to the REST interface.

The rules for `Host`, `Origin` and `Sec-Fetch-Site` are those of REST, for websockets too. Instead of the token, a
browser sends the cookie of its session, which scripts cannot read and which other sites cannot make it send.
"""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.rest.access import AccessRules
from penstock.rest.audit import AuditLog
from penstock.web.login import SESSION_S, Logins

PREFIX = "/web"
_LOGIN = f"{PREFIX}/login"
_COOKIE = "penstock_session"
SECURITY_HEADERS = {
    # The page consists of scripts and styles within its HTML. Nothing is loaded from, or sent to, another host.
    "content-security-policy": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Penstock: log in</title><style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;
max-width:40rem;margin:15vh auto;padding:0 1rem}</style><h1>Log in</h1><p>%s</p>
<p>Run <code>penstock web</code> as the user of the service. It prints a link that works once, within ten minutes.</p>
</html>"""


class Guard:
    """ASGI middleware in front of the page and the REST interface."""

    def __init__(self, page: ASGIApp, rest: ASGIApp, rules: AccessRules, token: str, audit: AuditLog | None) -> None:
        self._page = page
        self._rest = rest
        self._rules = rules
        self._token = token
        self._logins = Logins(token)
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._page(scope, receive, send)
            return
        path = scope["path"]
        if path != "/" and path != PREFIX and not path.startswith(f"{PREFIX}/"):
            await self._rest(scope, receive, send)
            return
        refusal = self._rules.foreign(scope)
        if refusal is not None:
            await self._refuse(
                scope, receive, send, HTMLResponse(refusal.text, refusal.status, media_type="text/plain")
            )
        elif scope["type"] == "http" and path in ("/", PREFIX):
            await RedirectResponse(f"{PREFIX}/", headers=SECURITY_HEADERS)(scope, receive, send)
        elif scope["type"] == "http" and path == _LOGIN:
            await self._log_in(scope)(scope, receive, send)
        elif self._token and not self._logins.is_session(_cookie(scope)):
            text = "This page needs a session, and this browser has none, or it has expired."
            await self._refuse(scope, receive, send, _login_page(text))
        else:
            await self._page(scope, receive, _with_headers(send))

    def _log_in(self, scope: Scope) -> Response:
        if not self._token:
            return RedirectResponse(f"{PREFIX}/", 303, headers=SECURITY_HEADERS)
        code = parse_qs(scope["query_string"].decode("latin-1")).get("code", [""])[0]
        session = self._logins.redeem(code) if scope["method"] == "GET" else None
        if self._audit is not None:
            self._audit.write(scope.get("client"), "log in to the page", "", 401 if session is None else 303)
        if session is None:
            return _login_page("This link has been used, or it has expired.")
        answer = RedirectResponse(f"{PREFIX}/", 303, headers=SECURITY_HEADERS)
        secure = scope.get("scheme") == "https"
        answer.set_cookie(
            _COOKIE, session, max_age=SESSION_S, path=PREFIX, secure=secure, httponly=True, samesite="strict"
        )
        return answer

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, answer: Response) -> None:
        if scope["type"] == "websocket":
            # Before the handshake is accepted, closing it is an answer with status 403.
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "Not allowed."})
            return
        answer.headers["connection"] = "close"
        await answer(scope, receive, send)


def _login_page(text: str) -> Response:
    return HTMLResponse(_PAGE % text, 401, headers={**SECURITY_HEADERS, "cache-control": "no-store"})


def _cookie(scope: Scope) -> str:
    found = SimpleCookie()
    for name, value in scope["headers"]:
        if name == b"cookie":
            try:
                found.load(value.decode("latin-1"))
            except CookieError:
                continue
    return found[_COOKIE].value if _COOKIE in found else ""


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            _add(headers, SECURITY_HEADERS)
        await send(message)

    return sending


def _add(headers: MutableHeaders, more: Mapping[str, str]) -> None:
    for name, value in more.items():
        headers[name] = value
