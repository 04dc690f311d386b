"""Serve bytes from one process's memory to other processes over an authenticated socket.

The client sends a frame with the secret and receives one byte. Then it can send any number of frames with a name each,
and receives one byte and, if that was YES, a frame with the object. A frame is a length followed by that many bytes.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import BinaryIO

__all__ = ["ObjectClient", "ObjectServer", "client_for"]

_LENGTH = struct.Struct(">Q")
_YES, _NO = b"\1", b"\0"

# No secret or name is longer, and unauthenticated clients must not make the driver allocate memory.
_REQUEST_LIMIT = 8192

# How long an unauthenticated client that sends nothing can occupy a thread.
_SECRET_SECONDS = 10.0

# The server answers from memory; only a dead or stopped server takes longer.
_CLIENT_SECONDS = 60.0


class ObjectServer:
    """Serve `objects`, which the owner can keep changing, to clients that know the secret.

    The server listens from the first `address()` until `close()`, in daemon threads: one that accepts, one per client.
    """

    def __init__(self, objects: Mapping[str, bytes], host: str) -> None:
        self.secret = secrets.token_urlsafe(32)
        self._objects = objects
        self._host = host
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._closed = False

    def address(self) -> tuple[str, int]:
        """Start listening if necessary, and return the address.

        Raises:
            OSError: The server is closed, or the host is not an address of this machine.
        """
        with self._lock:
            if self._closed:
                raise ConnectionError(f"the server at {self._host} is closed")
            if self._listener is None:
                self._listener = socket.create_server((self._host, 0))
                threading.Thread(
                    target=self._accept, args=(self._listener,), name="penstock-objects", daemon=True
                ).start()
            return self._host, self._listener.getsockname()[1]

    def close(self) -> None:
        """Stop listening and close all connections."""
        with self._lock:
            self._closed = True
            sockets = [*self._connections, *([self._listener] if self._listener else [])]
        for each in sockets:
            try:
                # Closing alone would leave a thread blocked in accept() or recv().
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def _accept(self, listener: socket.socket) -> None:
        while not self._closed:
            try:
                connection, _ = listener.accept()
            except OSError:
                if not self._closed:
                    # Possibly out of file descriptors: retry, so that tasks can connect when that has passed.
                    time.sleep(0.1)
                continue
            with self._lock:
                if self._closed:
                    connection.close()
                    return
                self._connections.add(connection)
            threading.Thread(
                target=self._serve, args=(connection,), name="penstock-objects-client", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as stream:
                _prepare(connection, _SECRET_SECONDS)
                if not hmac.compare_digest(_receive_request(stream), self.secret.encode()):
                    connection.sendall(_NO)
                    return
                connection.sendall(_YES)
                connection.settimeout(None)
                while True:
                    data = self._objects.get(_receive_request(stream).decode())
                    if data is None:
                        connection.sendall(_NO)
                    else:
                        connection.sendall(_YES + _LENGTH.pack(len(data)))
                        connection.sendall(data)
        except (OSError, ValueError):
            # The client disconnected or violated the protocol; the client reports the error.
            pass
        finally:
            with self._lock:
                self._connections.discard(connection)


class ObjectClient:
    """A connection to an ObjectServer, opened at the first read and reopened when it breaks. It is thread-safe."""

    def __init__(self, address: tuple[str, int], secret: str) -> None:
        self._address = address
        self._secret = secret
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._stream: BinaryIO | None = None

    def read(self, name: str) -> bytes | None:
        """Return the object, or None if the server does not have it.

        Raises:
            OSError: The server cannot be reached or rejects the secret.
        """
        with self._lock:
            try:
                return self._ask(name)
            except PermissionError:
                raise
            except OSError:
                # The connection was idle for too long, or the server restarted. Reading again is harmless.
                self.drop()
                return self._ask(name)

    def drop(self) -> None:
        """Close the connection; the next read opens another."""
        if self._connection is not None:
            self._connection.close()
        if self._stream is not None:
            self._stream.close()
        self._connection = self._stream = None

    def _ask(self, name: str) -> bytes | None:
        try:
            connection, stream = self._connect()
            _send(connection, name.encode())
            if _receive_exactly(stream, 1) == _NO:
                return None
            return _receive_exactly(stream, _receive_length(stream))
        except BaseException:
            # The rest of an interrupted answer would be mistaken for the next answer.
            self.drop()
            raise

    def _connect(self) -> tuple[socket.socket, BinaryIO]:
        if self._connection is None or self._stream is None:
            self._connection = socket.create_connection(self._address, timeout=_CLIENT_SECONDS)
            self._stream = self._connection.makefile("rb")
            _prepare(self._connection, _CLIENT_SECONDS)
            _send(self._connection, self._secret.encode())
            if _receive_exactly(self._stream, 1) != _YES:
                raise PermissionError("it rejected this client's secret, so it serves another job")
        return self._connection, self._stream


_clients: dict[tuple[int, tuple[str, int], str], ObjectClient] = {}


def client_for(address: tuple[str, int], secret: str) -> ObjectClient:
    """Return this process's client for a server. A forked child gets a separate one, to keep answers apart."""
    pid = os.getpid()
    key = (pid, address, secret)
    client = _clients.get(key)
    if client is None:
        for other in [other for other in _clients if other[0] != pid]:
            _clients.pop(other).drop()
        client = _clients.setdefault(key, ObjectClient(address, secret))
    return client


def _prepare(connection: socket.socket, timeout: float) -> None:
    connection.settimeout(timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Detects a host that disappeared without closing the connection.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(data)) + data)


def _receive_request(stream: BinaryIO) -> bytes:
    length = _receive_length(stream)
    if length > _REQUEST_LIMIT:
        raise ValueError(f"a request of {length} bytes")
    return _receive_exactly(stream, length)


def _receive_length(stream: BinaryIO) -> int:
    length: int = _LENGTH.unpack(_receive_exactly(stream, _LENGTH.size))[0]
    return length


def _receive_exactly(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise ConnectionError("the other side closed the connection")
    return data
