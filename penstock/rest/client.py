"""A synchronous client of the REST interface, for commands."""

from __future__ import annotations

import http.client
import secrets
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock.common.addresses import is_loopback
from penstock.common.options.service import (
    REST_ADDRESS,
    REST_AUTH,
    REST_PORT,
    REST_TIMEOUT,
    REST_TLS_CA,
    REST_TLS_CERTIFICATE,
)
from penstock.common.tokens import UnusableToken, read_token
from penstock.errors import PenstockError
from penstock.rest.contract import JarUploadResponseBody
from penstock.rest.errors import ErrorBody
from penstock.rest.listeners import foreign_user
from penstock.rest.service import longest_s
from penstock.rest.token_file import token_file

T = TypeVar("T")

_CHUNK = 256 << 10
_SLACK_S = 5.0
"""How much longer a command waits than the service and its standbys."""


class ServiceUnreachable(PenstockError):
    """The service does not accept connections, or ended before it answered.

    Operator action: check that it runs with `penstock cluster status`, and that `rest.address` and `rest.port` are
    those of the service.
    """


class ForeignService(PenstockError):
    """Another user of this host listens on the port of the service, so the token is not sent there.

    Operator action: start your service. To use the service of another user of this host, let it use TLS, and set
    `rest.ssl.ca`.
    """

    retryable = False


class RefusedByService(PenstockError):
    """The service refused the request. The message is the service's. Operator action: follow the message."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class NotAuthorized(RefusedByService):
    """The service does not accept the token or the origin of the request.

    Operator action: set `rest.auth.token-file` to a copy of the service's token file, readable by you only.
    """


class NotKnown(RefusedByService):
    """The service does not know the job, program or file. Operator action: look up its id with `penstock list`."""


class NotNow(RefusedByService):
    """The service or the job cannot do this in its present state. Operator action: follow the message, then retry."""


_KINDS: Mapping[int, type[RefusedByService]] = {
    401: NotAuthorized,
    403: NotAuthorized,
    404: NotKnown,
    409: NotNow,
    503: NotNow,
}


class RestClient:
    """Sends one request per connection. Raises ServiceUnreachable, and RefusedByService with the service's text."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        token: str = "",
        token_owner: int | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """`token_owner`: the user whose file has the token. `timeout_s`: `web.timeout` of the service."""
        self.host, self.port = host, port
        self._token = token
        self._knowing = () if token_owner is None else (token_owner,)
        self._tls = tls
        self._timeout_s = timeout_s

    @classmethod
    def of_settings(cls, settings: Mapping[str, str], *, tls: bool = False) -> RestClient:
        """Return the client of the configured service, with TLS if `tls` or a setting demands it, or beyond loopback.

        Raises UnusableToken, BadSetting.
        """
        host = REST_ADDRESS.read(settings) or "127.0.0.1"
        configured = REST_TLS_CA.read(settings) or REST_TLS_CERTIFICATE.read(settings)
        token, owner = _token(settings)
        return cls(
            host,
            REST_PORT.read(settings),
            token=token,
            token_owner=owner,
            tls=_trusting(REST_TLS_CA.read(settings)) if tls or configured or not is_loopback(host) else None,
            timeout_s=REST_TIMEOUT.read(settings) / 1000,
        )

    def get(self, path: str, kind: type[T], **query: str) -> T:
        """Send GET and decode the answer."""
        return self._call("GET", path, kind, query=query)

    def post(self, path: str, kind: type[T], body: Any = None, **query: str) -> T:
        """Send POST with a body, which is a struct or made of plain values, and decode the answer."""
        return self._call("POST", path, kind, body, query)

    def put(self, path: str, kind: type[T], body: Any = None) -> T:
        """Send PUT and decode the answer."""
        return self._call("PUT", path, kind, body)

    def patch(self, path: str, kind: type[T], body: Any = None, **query: str) -> T:
        """Send PATCH and decode the answer."""
        return self._call("PATCH", path, kind, body, query)

    def delete(self, path: str, kind: type[T]) -> T:
        """Send DELETE and decode the answer."""
        return self._call("DELETE", path, kind)

    def upload(self, file: Path) -> str:
        """Upload a program and return its id."""
        boundary = secrets.token_hex(16)
        name = file.name.replace("\\", "_").replace('"', "_")
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="jarfile"; filename="{name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        tail = f"\r\n--{boundary}--\r\n".encode()
        with open(file, "rb") as content:
            size = len(head) + file.stat().st_size + len(tail)
            headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", "Content-Length": str(size)}
            parts = _parts(head, content, tail)
            with self._answered("POST", "/jars/upload", self._patience_s("/jars/upload"), parts, headers) as response:
                answer = self._decoded(response, JarUploadResponseBody)
        return answer.filename.rpartition("/")[2]

    def text(self, path: str, last_bytes: int | None = None) -> Iterator[bytes]:
        """Yield a plain text, such as a log, part by part; with `last_bytes` at most its end."""
        return self._streamed(path, self._patience_s(path), last_bytes)

    def follow(self, path: str, last_bytes: int | None = None) -> Iterator[bytes]:
        """Yield a log as it grows, until its job ends; with `last_bytes` at most the end of its present content."""
        return self._streamed(f"{path}?follow=true", None, last_bytes)

    def _streamed(self, path: str, timeout_s: float | None, last_bytes: int | None) -> Iterator[bytes]:
        headers = {} if last_bytes is None else {"Range": f"bytes=-{last_bytes}"}
        with self._answered("GET", path, headers=headers, timeout_s=timeout_s) as response:
            try:
                while part := response.read1(_CHUNK):
                    yield part
            except (OSError, http.client.HTTPException) as error:
                raise self._unreachable(error) from None

    def _call(
        self, method: str, path: str, kind: type[T], body: Any = None, query: Mapping[str, str] | None = None
    ) -> T:
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else msgspec.json.encode(body)
        with self._answered(
            method, target, self._patience_s(path), data, {"Content-Type": "application/json"}
        ) as response:
            return self._decoded(response, kind)

    @contextmanager
    def _answered(
        self,
        method: str,
        target: str,
        timeout_s: float | None,
        body: bytes | Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request and yield its successful answer. `timeout_s` limits each wait for data."""
        connection = self._connection(timeout_s)
        try:
            yield self._response(connection, method, target, body, headers or {})
        finally:
            connection.close()

    def _response(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | Iterator[bytes] | None,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        authorization = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            connection.connect()
            self._check_user(connection)
            try:
                connection.request(method, target, body, {**headers, **authorization})
            except (BrokenPipeError, ConnectionResetError):
                # The service answered before it read the body, for example because the body is too large.
                pass
            response = connection.getresponse()
            if response.status >= 400:
                raise self._refused(response.status, response.read(1 << 20))
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        return response

    def _check_user(self, connection: http.client.HTTPConnection) -> None:
        """Raise ForeignService if the token would be sent to another user. TLS has checked the certificate."""
        if self._tls is not None or not self._token:
            return
        user = foreign_user(connection.sock, self._knowing)
        if user is not None:
            raise ForeignService(
                f"The port {self.port} of {self.host} belongs to another user, with id {user}, so your token was not "
                "sent there.",
                fix=f"Start your service with `penstock cluster start`, if necessary with another {REST_PORT.key}. To "
                f"use the service of another user, let it use TLS, and set {REST_TLS_CA.key}.",
            )

    def _patience_s(self, path: str) -> float:
        return longest_s(path, self._timeout_s) + _SLACK_S

    def _connection(self, timeout_s: float | None) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=self._tls)

    def _decoded(self, response: http.client.HTTPResponse, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(response.read(), type=kind)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        except ValueError as error:
            raise ServiceUnreachable(
                f"The answer of {self.host}:{self.port} is not one of this version: {error}.",
                fix="Check that rest.port leads to a service of Penstock, and that its version is yours.",
            ) from None

    def _refused(self, status: int, body: bytes) -> RefusedByService:
        try:
            text = " ".join(msgspec.json.decode(body, type=ErrorBody).errors)
        except ValueError:
            text = f"The service at {self.host}:{self.port} answered with status {status}."
        return _KINDS.get(status, RefusedByService)(status, text)

    def _unreachable(self, error: Exception) -> ServiceUnreachable:
        if isinstance(error, ssl.SSLCertVerificationError):
            return ServiceUnreachable(
                f"The certificate of the service at {self.host}:{self.port} is not trusted: "
                f"{error.verify_message.rstrip('.')}.",
                fix=f"Set {REST_TLS_CA.key} to a PEM file with the authority that issued the certificate, and "
                f"{REST_ADDRESS.key} to a name in the certificate.",
            )
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
        return ServiceUnreachable(
            f"The service at {self.host}:{self.port} cannot be reached: {reason}.",
            fix=f"Start it with `penstock cluster start`, or set {REST_ADDRESS.key} and {REST_PORT.key}.",
        )


def _token(settings: Mapping[str, str]) -> tuple[str, int | None]:
    """Return the token and the user who owns its file."""
    if not REST_AUTH.read(settings):
        return "", None
    path = token_file(settings)
    try:
        return read_token(path), path.stat().st_uid
    except FileNotFoundError:
        raise UnusableToken(
            f"The token file {path} does not exist.",
            fix="Start the service, which creates it, or set rest.auth.token-file to your copy of its token.",
        ) from None


def _trusting(authorities: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities or None)
    except (OSError, ssl.SSLError) as error:
        raise ServiceUnreachable(
            f"The authorities in {authorities} cannot be loaded: {error}.", fix=f"Set {REST_TLS_CA.key} to a PEM file."
        ) from None


def _parts(head: bytes, file: BinaryIO, tail: bytes) -> Iterator[bytes]:
    yield head
    while part := file.read(_CHUNK):
        yield part
    yield tail
