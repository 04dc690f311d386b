"""The server: where it listens, TLS, its token file, limits of connections, and how it stops."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from certificates import self_signed
from http_service import OPEN, served, wait_for

from penstock.common.tokens import UnusableToken, read_token
from penstock.rest.audit import AuditLog
from penstock.rest.client import RestClient
from penstock.rest.server import CannotListen, RestServer, TlsRequired, connection_limit, raise_descriptor_limit
from penstock.rest.token_file import service_token, token_file


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the number of bytes that the path asks for."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return self_signed(tmp_path_factory.mktemp("tls"))


def test_a_free_port_is_chosen_and_reported() -> None:
    server = RestServer(app, {"rest.port": "0"})
    assert server.port > 0
    assert server.address == f"http://127.0.0.1:{server.port}"
    server.start()
    assert RestClient("127.0.0.1", server.port).get("/", dict) == {}
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_a_port_in_use_is_reported() -> None:
    server = RestServer(app, {"rest.port": "0"})
    with pytest.raises(CannotListen, match=f"port {server.port}: Address already in use.*rest.port"):
        RestServer(app, {"rest.port": str(server.port)})
    server.start()
    server.stop()


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_tls_is_required_beyond_loopback(address: str) -> None:
    with pytest.raises(TlsRequired, match=r"rest\.ssl\.certificate"):
        RestServer(app, {"rest.port": "0", "rest.bind-address": address})


def test_an_address_that_does_not_exist_is_reported() -> None:
    with pytest.raises(CannotListen, match="cannot be resolved"):
        RestServer(app, {"rest.port": "0", "rest.bind-address": "no-such-host.invalid"})


def test_a_missing_certificate_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CannotListen, match="cannot be loaded"):
        RestServer(app, {"rest.port": "0", "rest.ssl.certificate": str(tmp_path / "none.pem")})


def test_a_service_with_tls_talks_to_clients_that_trust_it(tmp_path: Path, certificate: tuple[str, str]) -> None:
    settings = {"rest.ssl.certificate": certificate[0], "rest.ssl.private-key": certificate[1]}
    with served(tmp_path, {**settings, "rest.bind-address": "0.0.0.0"}) as service:
        assert service.server.address.startswith("https://")
        trusting = {"rest.ssl.ca": certificate[0], "rest.address": "localhost", "rest.port": str(service.server.port)}
        client = RestClient.of_settings({**trusting, "rest.auth.token-file": str(tmp_path / "token")})
        assert client.get("/health", dict) == {}
        assert client.get("/jobs", dict)["jobs"]
        with pytest.raises(ssl.SSLError), socket.create_connection(("127.0.0.1", service.server.port)) as connection:
            ssl.create_default_context().wrap_socket(connection, server_hostname="localhost")


def test_a_server_in_the_loop_of_its_caller_stops_on_request() -> None:
    async def main() -> None:
        server = RestServer(app, {"rest.port": "0"})
        serving = asyncio.create_task(server.serve())
        assert await asyncio.to_thread(RestClient("127.0.0.1", server.port).get, "/", dict) == {}
        server.stop()
        await asyncio.wait_for(serving, 30)

    asyncio.run(main())


def test_an_open_request_completes_before_the_server_stops() -> None:
    entered, release = threading.Event(), threading.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            entered.set()
            while not release.is_set():
                await asyncio.sleep(0.01)
            await app(scope, receive, send)

    server = RestServer(slow, {"rest.port": "0"})
    server.start()
    answers: list[Any] = []
    client = threading.Thread(target=lambda: answers.append(RestClient("127.0.0.1", server.port).get("/", dict)))
    client.start()
    assert entered.wait(30)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    release.set()
    client.join(30)
    stopping.join(30)
    assert answers == [{}]


def test_endless_headers_are_refused(tmp_path: Path) -> None:
    with served(tmp_path, OPEN) as service:
        answer = service.raw(b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 500_000)
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"too long" in answer
        lines = b"".join(b"X-%d: y\r\n" % number for number in range(20_000))
        assert service.raw(b"GET /jobs HTTP/1.1\r\nHost: localhost\r\n" + lines).startswith(b"HTTP/1.1 400")
        assert service.get("/health").status == 200


def test_a_client_that_never_sends_its_headers_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.rest.server._HEADERS_S", 0.2)
    server = RestServer(app, {"rest.port": "0"})
    server.start()
    for data in (b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            connection.sendall(data)
            while connection.recv(65536):
                pass
    server.stop()


def test_idle_connections_leave_file_descriptors_for_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.rest.server._MAX_CONNECTIONS", 4)
    with served(tmp_path, OPEN) as service, ExitStack() as opened:
        address = ("127.0.0.1", service.server.port)
        idle = [opened.enter_context(socket.create_connection(address, timeout=30)) for _ in range(8)]
        more = [opened.enter_context(socket.create_connection(address, timeout=30)) for _ in range(20)]
        for connection in more:
            assert not received(connection)
        idle[-1].sendall(b"GET /jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 503 " in received(idle[-1])
        for connection in idle:
            connection.close()
        wait_for(lambda: received_status(address) == 200)


def received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionResetError:
        return b""


def received_status(address: tuple[str, int]) -> int:
    with socket.create_connection(address, timeout=30) as connection:
        try:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        except (ConnectionResetError, BrokenPipeError):
            return 0
        answer = received(connection)
        return int(answer.split()[1]) if answer else 0


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [
        (100, 4096, 4096, 800),
        (1024, 1 << 20, 8192, 800),
        (100, 100, 100, 25),
        (1 << 20, 1 << 20, 1 << 20, 800),
        (1024, -1, 8192, 800),
        (-1, -1, -1, 800),
    ],
)
def test_the_limit_of_connections_follows_that_of_file_descriptors(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int, connections: int
) -> None:
    limits = (soft, hard)

    def limit(kind: int, wanted: tuple[int, int]) -> None:
        nonlocal limits
        limits = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    monkeypatch.setattr(resource, "setrlimit", limit)
    raise_descriptor_limit()
    assert limits == (raised, hard)
    assert connection_limit() == connections


def test_the_token_file_is_created_once_and_for_this_user_only(tmp_path: Path) -> None:
    settings = {"cluster.dir": str(tmp_path / "cluster")}
    token = service_token(settings)
    path = token_file(settings)
    assert path == tmp_path / "cluster" / "token"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0
    assert len(token) >= 32
    assert service_token(settings) == token
    assert os.listdir(path.parent) == ["token"]


def test_concurrent_services_agree_on_one_token(tmp_path: Path) -> None:
    settings = {"rest.auth.token-file": str(tmp_path / "token")}
    tokens: list[str] = []
    threads = [threading.Thread(target=lambda: tokens.append(service_token(settings))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 16
    assert len(set(tokens)) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o622])
def test_a_token_that_other_users_can_access_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    path.write_text("x" * 40)
    path.chmod(mode)
    with pytest.raises(UnusableToken, match=f"mode {mode:o}"):
        read_token(path)


@pytest.mark.parametrize("content", ["", "short", "two words-that-are-long-enough", "é" * 40])
def test_a_token_that_a_header_cannot_carry_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(UnusableToken, match="does not contain one token"):
        read_token(path)


def test_a_symbolic_link_is_not_a_token(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x" * 40)
    (tmp_path / "token").symlink_to(tmp_path / "real")
    with pytest.raises(UnusableToken, match="is a symbolic link"):
        read_token(tmp_path / "token")


def test_a_service_without_tokens_creates_no_file(tmp_path: Path) -> None:
    assert service_token({**OPEN, "rest.auth.token-file": str(tmp_path / "token")}) == ""
    assert os.listdir(tmp_path) == []


def test_the_audit_log_rotates(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", 500, 2)
    for number in range(50):
        log.write(("127.0.0.1", number), "POST /x %s", "", 200)
    log.close()
    assert sorted(os.listdir(tmp_path)) == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all((tmp_path / name).stat().st_size <= 500 for name in os.listdir(tmp_path))
    assert all((tmp_path / name).stat().st_mode & 0o077 == 0 for name in os.listdir(tmp_path))
    assert '"peer":"127.0.0.1:49"' in (tmp_path / "audit.log").read_text()


def test_an_action_succeeds_although_its_audit_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    log = AuditLog(Path("/dev/full"), 0, 1)
    log.write(("127.0.0.1", 1), "POST /x", "", 200)
    assert "Could not write to the audit log" in caplog.text
