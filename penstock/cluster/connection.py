"""A connection to the control point of a JobManager on this host."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from penstock.cluster.order import socket_name
from penstock.control.place import SUFFIX, address, opened
from penstock.driver.control_messages import Request, encode

LINE_BYTES = 64 << 20
"""The longest snapshot: a job with thousands of subtasks."""


class Connection(Protocol):
    """An open connection to a JobManager."""

    def send(self, request: Request) -> None:
        """Send the only request of this connection."""
        ...

    async def receive(self) -> bytes:
        """Return the next answer, encoded. Raises EOFError at the end, OSError."""
        ...


Connecting = AbstractAsyncContextManager[Connection]


class LocalConnection:
    """A connection to a control point in a directory of this host, as a context manager."""

    def __init__(self, directory: str, job_id: str, attempt: int) -> None:
        self._directory, self._name = directory, socket_name(job_id, attempt)

    async def __aenter__(self) -> LocalConnection:
        with opened(self._directory) as folder:
            path = address(folder, self._name + SUFFIX)
            self._reader, self._writer = await asyncio.open_unix_connection(path, limit=LINE_BYTES)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._writer.close()

    def send(self, request: Request) -> None:
        self._writer.write(encode(request) + b"\n")

    async def receive(self) -> bytes:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the connection was closed")
        return line
