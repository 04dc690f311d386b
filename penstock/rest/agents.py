"""Requests of the leader to the Dispatchers of other hosts, which are the agents of their hosts.

All Dispatchers of a cluster have the same token.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TypeVar
from urllib.parse import quote

import msgspec

from penstock.cluster.connection import LINE_BYTES
from penstock.cluster.gateway import AttemptProcess, LogFile
from penstock.cluster.other_hosts import NoAgent
from penstock.driver.control_messages import Follow, Request, encode
from penstock.rest.agent_types import PREFIX, Killed, ReadRequest
from penstock.rest.contract import LogListInfo
from penstock.rest.errors import ErrorBody
from penstock.rest.exchange import Exchange

_SILENT_S = 8.0
"""A followed JobManager sends something every 5 s. A silent connection is replaced: its host might have gone."""
_AT_ONCE = 500
"""Attempts in one request."""

T = TypeVar("T")


class HttpAgents:
    """Implements `penstock.cluster.other_hosts.Agents`, without state."""

    def __init__(self, token: str, trusted: str) -> None:
        """`trusted`: the file with the authorities of the Dispatchers' certificates; empty: the system's."""
        self._token, self._trusted = token, trusted

    def connection(self, address: str, job_id: str, attempt: int) -> RelayedConnection:
        return RelayedConnection(self, address, f"{_path(job_id, attempt)}/control")

    async def processes(self, address: str, attempts: Sequence[tuple[str, int]]) -> list[AttemptProcess]:
        found: list[AttemptProcess] = []
        for start in range(0, len(attempts), _AT_ONCE):
            names = ",".join(f"{job_id}-{attempt}" for job_id, attempt in attempts[start : start + _AT_ONCE])
            found += await self._ask("GET", address, f"{PREFIX}/processes?attempts={names}", list[AttemptProcess])
        return found

    async def kill(self, address: str, job_id: str, attempt: int) -> bool:
        return (await self._ask("POST", address, f"{_path(job_id, attempt)}/kill", Killed)).gone

    async def logs(self, address: str, job_id: str) -> list[LogFile]:
        listed = await self._ask("GET", address, f"{PREFIX}/jobs/{quote(job_id)}/logs", LogListInfo)
        return [
            LogFile(
                name=each.name,
                size=each.size,
                modified_ms=each.mtime,
                url=f"{address}{PREFIX}/jobs/{quote(job_id)}/logs/{quote(each.name)}",
            )
            for each in listed.logs
        ]

    async def log(self, url: str, *, follow: bool, part: str) -> Exchange:
        """Return the answer with the text of a log. `part` is the value of a Range header. Raises NoAgent."""
        address, _, path = url.partition(PREFIX)
        target = f"{PREFIX}{path}?follow={str(follow).lower()}"
        return await self.open("GET", address, target, headers={"Range": part} if part else {})

    async def open(
        self, method: str, address: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Exchange:
        """Send a request. Raises NoAgent."""
        authorization = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        return await Exchange.open(method, address, target, {**authorization, **(headers or {})}, body, self._tls)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._trusted or None)
        except OSError as error:
            raise NoAgent(f"the authorities in {self._trusted} cannot be loaded ({error})") from None

    async def _ask(self, method: str, address: str, target: str, kind: type[T]) -> T:
        exchange = await self.open(method, address, target)
        try:
            body = b"".join(await _parts(exchange))
            if exchange.status != 200:
                raise NoAgent(refusal(exchange.status, body))
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise NoAgent(f"the answer of the Dispatcher at {address} is not one of this version: {error}") from None
        except OSError as error:
            raise NoAgent(str(error)) from None
        finally:
            exchange.close()


class RelayedConnection:
    """A connection to a JobManager through the agent of its host, as a context manager."""

    def __init__(self, agents: HttpAgents, address: str, path: str) -> None:
        self._agents, self._address, self._path = agents, address, path
        self._request: Request | None = None
        self._exchange: Exchange | None = None
        self._received = bytearray()

    async def __aenter__(self) -> RelayedConnection:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._exchange is not None:
            self._exchange.close()

    def send(self, request: Request) -> None:
        self._request = request

    async def receive(self) -> bytes:
        if self._exchange is None:
            self._exchange = await self._open()
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            async with asyncio.timeout(_SILENT_S if isinstance(self._request, Follow) else None):
                part = await self._exchange.read()
            if not part or searched > LINE_BYTES:
                raise EOFError("the connection was closed")
            self._received += part
        line = bytes(self._received[: end + 1])
        del self._received[: end + 1]
        return line

    async def _open(self) -> Exchange:
        assert self._request is not None
        # Only actions are written to the audit log.
        method = "GET" if isinstance(self._request, ReadRequest) else "POST"
        body = encode(self._request)
        exchange = await self._agents.open(method, self._address, self._path, body)
        if exchange.status == 200:
            return exchange
        text = refusal(exchange.status, b"".join(await _parts(exchange)))
        exchange.close()
        # With 409 the agent answers, and the JobManager does not.
        raise ConnectionRefusedError(text) if exchange.status == 409 else NoAgent(text)


def refusal(status: int, body: bytes) -> str:
    """Return the text of an answer that reports an error."""
    try:
        return " ".join(msgspec.json.decode(body, type=ErrorBody).errors)
    except msgspec.MsgspecError:
        return f"the Dispatcher answered with status {status}"


async def _parts(exchange: Exchange) -> list[bytes]:
    parts = []
    while part := await exchange.read():
        parts.append(part)
    return parts


def _path(job_id: str, attempt: int) -> str:
    return f"{PREFIX}/jobs/{quote(job_id)}/attempts/{attempt}"
