"""Serves an ASGI application with uvicorn, in the loop of the caller or in its own thread."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.common.addresses import is_loopback
from penstock.common.options.service import REST_BIND_ADDRESS, REST_PORT, REST_TLS_CERTIFICATE, REST_TLS_KEY
from penstock.errors import PenstockError

_MAX_HEADERS = 64 << 10
_HEADERS_S = 20.0
"""Time for a client to send the headers of a request."""
_KEEP_ALIVE_S = 75
_STOP_S = 5
"""Time for open requests to complete when the server stops."""
_MAX_CONNECTIONS = 800
"""More are answered with 503, and above twice as many closed without an answer. See `connection_limit`."""
_DESCRIPTORS = 8192
"""What a service asks for. It needs them for its connections, its records and its children."""


def raise_descriptor_limit() -> None:
    """Raise the limit of file descriptors of this process as far as it can: the usual one is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connection_limit() -> int:
    """Return how many connections are answered. Twice as many take at most half of the file descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(_MAX_CONNECTIONS, soft // 4)


class CannotListen(PenstockError):
    """The service cannot listen on its address: it is in use, does not exist, or its certificate is unusable.

    Operator action: set another `rest.port` or `rest.bind-address`, or stop the process that uses the address. If the
    message names a certificate, correct `rest.ssl.certificate` and `rest.ssl.private-key`.
    """

    retryable = False


class TlsRequired(PenstockError):
    """The service would listen beyond this host without TLS, so that its token and programs would travel in clear.

    Operator action: set `rest.ssl.certificate` and `rest.ssl.private-key`, or listen on 127.0.0.1.
    """

    retryable = False


class RestServer:
    """Listens from construction on. Requests wait until `serve` or `start` is called."""

    def __init__(self, app: ASGIApp, settings: Mapping[str, str], on_stop: Callable[[], None] | None = None) -> None:
        """Bind the configured address. `on_stop` is called when the server stops, before it waits for open requests.

        Raises TlsRequired, CannotListen, BadSetting.
        """
        address, port = REST_BIND_ADDRESS.read(settings), REST_PORT.read(settings)
        certificate, key = REST_TLS_CERTIFICATE.read(settings), REST_TLS_KEY.read(settings)
        self.tls = bool(certificate)
        _check_tls(certificate, key)
        self._socket = _listening(address, port, self.tls)
        self.host, self.port = self._socket.getsockname()[:2]
        config = uvicorn.Config(
            app,
            loop="uvloop",
            http=_BoundedProtocol,
            ws="none",
            log_config=None,
            # Less would log every malformed request of every client.
            log_level="error",
            access_log=False,
            # The peer in the audit log is the peer of the connection.
            proxy_headers=False,
            server_header=False,
            limit_concurrency=connection_limit(),
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_S,
            ssl_certfile=certificate or None,
            ssl_keyfile=key or None,
        )
        self._server = _Server(config, on_stop or (lambda: None))
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The address for clients, such as http://127.0.0.1:8081."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    async def serve(self) -> None:
        """Serve in the running loop until `stop` is called."""
        await self._server.serve(sockets=[self._socket])

    def start(self) -> None:
        """Serve in a new thread with its own loop. Call `stop` to end it."""
        self._thread = threading.Thread(target=self._run, name="penstock-rest", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting connections and let open requests complete, for a few seconds. Thread-safe.

        If the server has its own thread, wait for its end.
        """
        self._server.should_exit = True
        if self._thread is None:
            return
        self._thread.join(2 * _STOP_S)

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stop = on_stop

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals are the concern of the process, not of its REST interface.
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)


class _BoundedProtocol(HttpToolsProtocol):
    """Limits the connections, the size of headers and the time to send them, which uvicorn leaves open."""

    _header_bytes = 0
    _awaits_headers = True
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > 2 * (self.limit_concurrency or _MAX_CONNECTIONS):
            # An answer needs a request, which an idle connection never sends.
            transport.abort()
        else:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._awaits_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._awaits_headers = False
        self._header_bytes = 0
        self._disarm()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._awaits_headers or self.transport.is_closing():
            return
        self._header_bytes += len(data)
        if self._header_bytes > _MAX_HEADERS:
            self.send_400_response("The headers are too long.")
        elif self._deadline is None:
            self._arm()

    def _arm(self) -> None:
        self._deadline = self.loop.call_later(_HEADERS_S, self.timeout_keep_alive_handler)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _check_tls(certificate: str, key: str) -> None:
    if not certificate:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        raise CannotListen(
            f"The certificate {certificate} or its private key cannot be loaded: {error}.",
            fix=f"Set {REST_TLS_CERTIFICATE.key} and {REST_TLS_KEY.key} to PEM files that belong together.",
        ) from None


def _listening(address: str, port: int, tls: bool) -> socket.socket:
    try:
        family, _, _, _, target = socket.getaddrinfo(address.strip("[]"), port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise CannotListen(
            f"{REST_BIND_ADDRESS.key} is '{address}', which cannot be resolved: {error.strerror}.",
            fix="Set it to an address of this host, such as 127.0.0.1.",
        ) from None
    if not tls and not is_loopback(str(target[0])):
        raise TlsRequired(
            f"{REST_BIND_ADDRESS.key} is '{address}', which other hosts can reach, but {REST_TLS_CERTIFICATE.key} is "
            "not set.",
            fix=f"Set {REST_TLS_CERTIFICATE.key} and {REST_TLS_KEY.key}, or listen on 127.0.0.1.",
        )
    try:
        return socket.create_server(target[:2], family=family)
    except OSError as error:
        raise CannotListen(
            f"The service cannot listen on {address}, port {port}: {error.strerror}.",
            fix=f"Set another {REST_PORT.key}, or stop the process that uses it.",
        ) from None
