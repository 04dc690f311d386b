"""A request from one Dispatcher to another, and its answer, which can be a stream."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import h11

from penstock.cluster.other_hosts import NoAgent
from penstock.rest.listeners import foreign_user

_CONNECT_S = 5.0
_ANSWER_S = 30.0
"""Maximum wait for the beginning of an answer."""
_BYTES = 256 << 10


class Exchange:
    """One connection with one request. `open` sends it; `close` ends it at any time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._connection = h11.Connection(h11.CLIENT)
        self.status = 0
        self.headers: Mapping[str, str] = {}

    @classmethod
    async def open(
        cls,
        method: str,
        address: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        tls: ssl.SSLContext,
    ) -> Exchange:
        """Send a request to the Dispatcher at an address, and return once its answer begins. Raises NoAgent."""
        parts = urlsplit(address)
        try:
            async with asyncio.timeout(_CONNECT_S):
                https = parts.scheme == "https"
                opened = await asyncio.open_connection(parts.hostname, parts.port, ssl=tls if https else None)
        except (OSError, TimeoutError) as error:
            raise NoAgent(f"the Dispatcher at {address} does not answer ({_described(error)})") from None
        exchange = cls(*opened)
        try:
            if not https and foreign_user(opened[1].get_extra_info("socket")) is not None:
                raise NoAgent(f"the address {address} belongs to another user")
            async with asyncio.timeout(_ANSWER_S):
                await exchange._begin(method, target, {**headers, "Host": parts.netloc}, body)
        except BaseException as error:
            exchange.close()
            if isinstance(error, (OSError, TimeoutError, EOFError)):
                raise NoAgent(f"the Dispatcher at {address} does not answer ({_described(error)})") from None
            raise
        return exchange

    async def _begin(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        own = {**headers, "Connection": "close", **({"Content-Length": str(len(body))} if body else {})}
        request = h11.Request(method=method, target=target, headers=list(own.items()))
        parts = [request, *([h11.Data(data=body)] if body else []), h11.EndOfMessage()]
        self._writer.write(b"".join(self._connection.send(part) or b"" for part in parts))
        while not isinstance(event := await self._next(), h11.Response):
            if event is None:
                raise EOFError("the connection was closed")
        self.status = event.status_code
        self.headers = {name.decode(): value.decode(errors="replace") for name, value in event.headers}

    async def read(self) -> bytes:
        """Return the next part of the body; empty at its end. Raises OSError if it ends too early."""
        while True:
            event = await self._next()
            if event is None:
                return b""
            if isinstance(event, h11.Data) and event.data:
                return bytes(event.data)

    async def _next(self) -> h11.Event | None:
        try:
            while (event := self._connection.next_event()) is h11.NEED_DATA:
                self._connection.receive_data(await self._reader.read(_BYTES))
        except h11.RemoteProtocolError as error:
            raise ConnectionError(str(error)) from None
        return event if isinstance(event, (h11.Response, h11.InformationalResponse, h11.Data)) else None

    def close(self) -> None:
        """End the connection."""
        self._writer.close()


def _described(error: BaseException) -> str:
    return str(error) or type(error).__name__
