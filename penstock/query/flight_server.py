"""Listens with Arrow Flight: checks the token, decodes requests, and turns errors into answers."""

from __future__ import annotations

import hmac
import logging
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import flight

from penstock.common.addresses import WILDCARDS, is_loopback
from penstock.common.options.query import (
    ADVERTISED_ADDRESS,
    MAX_REQUEST,
    QUERY_ADDRESS,
    QUERY_TLS_CERTIFICATE,
    QUERY_TLS_KEY,
    QUERY_TOKEN_FILE,
)
from penstock.common.tokens import read_or_create_token, state_directory
from penstock.errors import PenstockError
from penstock.query.connection import ACTION, location
from penstock.query.errors import BadRequest, NotAllowed
from penstock.query.limits import check_request
from penstock.query.protocol import AnyRequest, Changes, Scan, decode_request, encode_failure

_log = logging.getLogger(__name__)


class CannotServeState(PenstockError):
    """A proxy or state server cannot listen: no port is free, the address does not exist, or TLS is required.

    Operator action: set other ports or another address, or the certificate that the message names.
    """

    retryable = False


class Answers(Protocol):
    """What a proxy and a state server have in common."""

    def answer(self, request: AnyRequest) -> bytes:
        """Return the encoded answer to a request."""

    def stream(self, request: Scan | Changes) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the answer to a request as a stream."""


def query_token(settings: Mapping[str, str]) -> str:
    """Return the token of this user's proxies and state servers, and create its file if it does not exist."""
    configured = QUERY_TOKEN_FILE.read(settings)
    return read_or_create_token(Path(configured).expanduser() if configured else state_directory() / "query-token")


class QueryListener:
    """Listens from construction on, in threads of gRPC, until it is closed."""

    def __init__(self, answers: Answers, settings: Mapping[str, str], ports: Sequence[int], token: str) -> None:
        """Take the first free of these ports. Raises CannotServeState."""
        host = QUERY_ADDRESS.read(settings).strip("[]")
        certificate, key = QUERY_TLS_CERTIFICATE.read(settings), QUERY_TLS_KEY.read(settings)
        if not certificate and not is_loopback(host):
            raise CannotServeState(
                f"{QUERY_ADDRESS.key} is '{host}', which other hosts can reach, but {QUERY_TLS_CERTIFICATE.key} is "
                f"not set.",
                fix=f"Set {QUERY_TLS_CERTIFICATE.key} and {QUERY_TLS_KEY.key}, or listen on 127.0.0.1.",
            )
        try:
            pair = [(Path(certificate).read_bytes(), Path(key).read_bytes())] if certificate else None
        except OSError as error:
            raise CannotServeState(
                f"The certificate {certificate} or its key {key or '(none)'} cannot be read: {error.strerror}.",
                fix=f"Set {QUERY_TLS_CERTIFICATE.key} and {QUERY_TLS_KEY.key} to PEM files that belong together.",
            ) from None
        self._server = _listening(answers, host, ports, pair, token, MAX_REQUEST.read(settings))
        self.host, self.port, self.tls = host, int(self._server.port), bool(pair)
        self.local = is_loopback(host)
        """Whether only this host can reach it."""
        self.advertised = _advertised(host, ADVERTISED_ADDRESS.read(settings))
        # It answers from construction on. `serve` would only wait, and handle the signals of the process.

    @property
    def address(self) -> str:
        """The URI for connections, from other hosts too unless it is local."""
        return location(self.advertised, self.port, self.tls)

    def close(self) -> None:
        """Stop listening. Open requests fail."""
        self._server.shutdown()


def _advertised(host: str, configured: str) -> str:
    if configured:
        return configured.strip("[]")
    return socket.getfqdn() if host in WILDCARDS else host


def _listening(
    answers: Answers,
    host: str,
    ports: Sequence[int],
    pair: list[tuple[bytes, bytes]] | None,
    token: str,
    max_request: int,
) -> _FlightServer:
    problem = "no port is configured"
    for port in ports:
        try:
            family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            # gRPC writes to standard error if it cannot bind, so try first.
            socket.create_server(target[:2], family=family).close()
            return _FlightServer(answers, location(host, port, pair is not None), pair, token, max_request)
        except (OSError, pa.ArrowException) as error:
            problem = getattr(error, "strerror", None) or str(error)
    shown = ", ".join(map(str, ports[:5])) + (", …" if len(ports) > 5 else "")
    raise CannotServeState(
        f"Queryable state cannot be served on {host}, port {shown}: {problem}.",
        fix="Set queryable-state.server.ports and queryable-state.proxy.ports to more ports, or stop the processes "
        "that use them.",
    )


class _FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(
        self,
        answers: Answers,
        at: str,
        pair: list[tuple[bytes, bytes]] | None,
        token: str,
        max_request: int,
    ) -> None:
        super().__init__(at, tls_certificates=pair, middleware={"token": _TokenCheck(token)})
        self._answers = answers
        self._max_request = max_request

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        with _telling():
            if action.type != ACTION:
                raise _unknown(action.type)
            return iter([self._answers.answer(self._request(action.body))])

    def do_get(self, context: Any, ticket: Any) -> Any:
        with _telling():
            request = self._request(ticket.ticket)
            if not isinstance(request, (Scan, Changes)):
                raise _unknown(type(request).__name__)
            schema, batches = self._answers.stream(request)
            return flight.GeneratorStream(schema, _told(batches))

    def _request(self, data: Any) -> AnyRequest:
        check_request(len(data), self._max_request)
        return decode_request(data)


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def start_call(self, info: Any, headers: Mapping[str, list[str | bytes]]) -> None:
        for given in headers.get("authorization", []):
            data = given if isinstance(given, bytes) else given.encode("utf-8", "surrogateescape")
            if hmac.compare_digest(data, b"Bearer " + self._token):
                return
        error = NotAllowed(
            "The token is missing or wrong.",
            fix="Pass the content of the token file: queryable-state.auth.token-file of the server, or by default "
            "penstock/query-token below the state directory of its user.",
        )
        raise flight.FlightUnauthenticatedError(error.statement(), extra_info=encode_failure(error))


class _telling:
    """Turns the errors of a block into errors that Flight sends."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, flight.FlightError):
            raise _sent(error) from None


def _told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with _telling():
        yield from batches


def _sent(error: Exception) -> Exception:
    if not isinstance(error, PenstockError):
        _log.error("A read of queryable state failed.", exc_info=error)
    sent: Exception = flight.FlightServerError(type(error).__name__, extra_info=encode_failure(error))
    return sent


def _unknown(kind: str) -> BadRequest:
    return BadRequest(f"A request of kind '{kind[:50]}' is unknown.", fix="Use a client of the version of the server.")
