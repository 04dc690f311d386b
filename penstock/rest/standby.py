"""Passes the requests that a standby receives on to the leader, and the answers back, without reading them into memory.

All Dispatchers of a cluster have the same token, so the leader checks the request as if the client had sent it there.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import h11
from starlette.types import Receive, Scope, Send

from penstock.cluster.gateway import NotLeading
from penstock.rest.listeners import foreign_user
from penstock.rest.service import longest_s

_CONNECT_S = 5.0
_SLACK_S = 2.0
"""How much longer a standby waits than the leader, which answers within `web.timeout`. Commands wait even longer."""
_BYTES = 64 << 10
_OWN = frozenset({b"host", b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"expect"})
"""Headers that concern one connection only."""
_CHECKED = b"origin"
"""The standby compared it with its own address. It differs from the leader's, which would refuse the page."""
HOPS = b"x-penstock-forwarded"
"""Marks a forwarded request: two Dispatchers that each take the other for the leader must not pass it on forever."""


class Standby:
    """Forwards requests."""

    def __init__(self, trusted: str, timeout_s: float) -> None:
        """`trusted`: the file with the authorities of the leader's certificate; empty: the system's.

        `timeout_s`: `web.timeout` of the cluster.
        """
        self._trusted, self._timeout_s = trusted, timeout_s

    async def forward(self, leader: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a request to the leader at this address, and its answer to the client. Raises NotLeading."""
        headers = [(name, value) for name, value in scope["headers"] if name not in _OWN and name != _CHECKED]
        if any(name == HOPS for name, _ in headers):
            raise NotLeading("No Dispatcher leads at the moment.", fix="Try again in a few seconds.")
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await self._connected(leader)
        except (OSError, TimeoutError) as error:
            raise NotLeading(
                f"This Dispatcher does not lead, and the leader at {leader} does not answer: {error}.",
                fix="Try again in a few seconds. If it persists, check the network between the Dispatchers.",
            ) from None
        try:
            connection = writer.get_extra_info("socket")
            if leader.startswith("http:") and foreign_user(connection) is not None:
                raise NotLeading(
                    f"This Dispatcher does not lead, and the leader's address {leader} belongs to another user.",
                    fix="Try again in a few seconds. If it persists, look for the process that uses the port.",
                )
            patience = _Patience(longest_s(scope["path"], self._timeout_s) + _SLACK_S)
            await _exchange(leader, headers, scope, receive, send, reader, writer, patience)
        finally:
            writer.close()

    async def _connected(self, leader: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(leader)
        context = ssl.create_default_context(cafile=self._trusted or None) if parts.scheme == "https" else None
        return await asyncio.open_connection(parts.hostname, parts.port, ssl=context)


class _Patience:
    """Limits the time without progress until the answer begins: a stopped leader accepts connections. A context."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._timeout = asyncio.timeout(limit_s)
        self._ended = False

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._timeout.__aexit__(*error)

    def begin(self) -> None:
        """Note that the leader took a part of the request."""
        if not self._ended:
            self._timeout.reschedule(asyncio.get_running_loop().time() + self.limit_s)

    def end(self) -> None:
        """Note that the answer has begun. It can take any time: a log can be followed."""
        self._ended = True
        self._timeout.reschedule(None)


async def _exchange(
    leader: str,
    headers: list[tuple[bytes, bytes]],
    scope: Scope,
    receive: Receive,
    send: Send,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    patience: _Patience,
) -> None:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
    if has_body and not any(name == b"content-length" for name, _ in headers):
        headers = [*headers, (b"transfer-encoding", b"chunked")]
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    own = [(b"host", urlsplit(leader).netloc.encode()), (b"connection", b"close"), (HOPS, b"1")]
    writer.write(connection.send(h11.Request(method=scope["method"], target=target, headers=own + headers)) or b"")
    upload = asyncio.ensure_future(_upload(connection, receive, writer, has_body, patience))
    started = False
    try:
        async with patience:
            async for event in _events(connection, reader):
                patience.end()
                if isinstance(event, h11.Response):
                    answer = [(name, value) for name, value in event.headers if name not in _OWN]
                    await send({"type": "http.response.start", "status": event.status_code, "headers": answer})
                    started = True
                elif isinstance(event, h11.Data):
                    await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except TimeoutError:
        if started:
            raise
        raise NotLeading(
            f"The leader at {leader} did not answer within {patience.limit_s:g} s.",
            fix="Try again in a few seconds. Check whether the request took effect.",
        ) from None
    except (OSError, h11.RemoteProtocolError) as error:
        if started and upload.done():
            # The client ended the answer, such as a log that it followed.
            return
        if started:
            # The client notices the missing end of the answer.
            raise
        raise NotLeading(
            f"The leader at {leader} ended the connection: {error}.", fix="Check whether the request took effect."
        ) from None
    finally:
        upload.cancel()


async def _upload(
    connection: h11.Connection, receive: Receive, writer: asyncio.StreamWriter, has_body: bool, patience: _Patience
) -> None:
    more = has_body
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            writer.close()
            return
        more = message.get("more_body", False)
        if message.get("body"):
            writer.write(connection.send(h11.Data(data=message["body"])) or b"")
            await writer.drain()
        patience.begin()
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    # A client that disconnects while it follows a log or events ends the request to the leader.
    while (await receive())["type"] != "http.disconnect":
        pass
    writer.close()


async def _events(connection: h11.Connection, reader: asyncio.StreamReader) -> AsyncIterator[h11.Event]:
    """Yield the parts of the answer until its end."""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_BYTES))
        elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
            return
        elif isinstance(event, h11.Event):
            yield event
