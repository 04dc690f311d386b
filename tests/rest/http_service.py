"""A real server on a free port in front of a fake cluster, and requests to it over real sockets."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_gateway import FakeGateway

from penstock.rest.assembly import rest_server
from penstock.rest.server import RestServer
from penstock.rest.token_file import service_token

OPEN = {"rest.auth.enabled": "false"}
"""Settings without a token, as the tests of Flink's clients use them."""


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The text of an error, in its expected form."""
        (text,) = self.json["errors"]
        assert list(self.json) == ["errors"]
        return str(text)


@dataclass
class Service:
    gateway: FakeGateway
    server: RestServer
    token: str
    folder: Path

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request as a program would: with the token, and JSON unless the body is bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        given = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            given["Content-Type"] = "application/json"
        try:
            try:
                connection.request(method, path, body, {**given, **(headers or {})})
            except (BrokenPipeError, ConnectionResetError):
                # The service answered before it read the whole body.
                pass
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def raw(self, data: bytes, *, ends: bool = False) -> bytes:
        """Send bytes and return all that comes until the service closes the connection.

        With `ends`, the client closes its side first. The service can then close without an answer.
        """
        return exchanged(self.server.port, data, ends=ends)

    def audit(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "audit.log").read_text().splitlines()]


def exchanged(port: int, data: bytes, *, ends: bool = False) -> bytes:
    """Send bytes to a port, as `Service.raw` does."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        received = b""
        try:
            connection.sendall(data)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                received += part
        except (ConnectionResetError, BrokenPipeError):
            pass
        return received


@contextmanager
def served(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Serve a fake cluster on 127.0.0.1 with a token in `folder`, unless the settings say otherwise."""
    (folder / "logs").mkdir(parents=True)
    chosen = {"rest.port": "0", "rest.auth.token-file": str(folder / "token"), **(settings or {})}
    gateway = FakeGateway(chosen, folder / "logs")
    server = rest_server(gateway, chosen, folder)
    server.start()
    try:
        yield Service(gateway, server, service_token(chosen), folder)
    finally:
        server.stop()


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Return the first true result of the condition."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.01)
    return found


def multipart(name: str, content: bytes, field: str = "jarfile") -> tuple[bytes, dict[str, str]]:
    """Return the body and headers of an upload."""
    head = f'--XX\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n\r\n'.encode()
    return head + content + b"\r\n--XX--\r\n", {"Content-Type": "multipart/form-data; boundary=XX"}
