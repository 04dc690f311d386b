"""Storage in the driver's memory, which the driver serves to its tasks."""

from __future__ import annotations

import threading
import weakref
from urllib.parse import urlsplit

from penstock.state.serving import ObjectServer, client_for
from penstock.state.storage import (
    AlreadyPublished,
    MissingObject,
    Storage,
    StorageError,
    StorageUnreachable,
    checked,
    checked_prefix,
)

__all__ = ["DriverStorage", "RemoteDriverStorage"]

_HERE = "the driver's memory"


class DriverStorage(Storage):
    """The memory of the driver process: versions live as long as it does. Tasks read through its `uri`.

    Nothing listens until `uri` is asked for. The uri holds the secret that lets a client in: hand it to tasks, show
    it to nobody. `close` ends the serving; the driver itself goes on using the objects.
    """

    in_memory = True

    def __init__(self, host: str = "127.0.0.1") -> None:
        """`host` is where tasks reach the driver, and the only address it listens on."""
        self._objects: dict[str, bytes] = {}
        self._server = ObjectServer(self._objects, host)
        # One that nobody closed has a thread that would listen to the end of the process.
        weakref.finalize(self, self._server.close)
        self._publishing = threading.Lock()

    def __repr__(self) -> str:
        return f"DriverStorage({len(self._objects)} objects)"

    @property
    def uri(self) -> str:
        try:
            host, port = self._server.address()
        except OSError as error:
            raise StorageError(
                f"Tasks cannot be given the driver's memory: {error}. If the host is wrong, set the address "
                f"under which executors reach the driver."
            ) from error
        return f"driver://{host}:{port}/{self._server.secret}"

    @property
    def where(self) -> str:
        return _HERE

    def publish(self, name: str, data: bytes) -> None:
        with self._publishing:
            if checked(name) in self._objects:
                raise AlreadyPublished(name, _HERE)
            self._objects[name] = data

    def write(self, name: str, data: bytes) -> None:
        self._objects[checked(name)] = data

    def read(self, name: str, at_most: int | None = None) -> bytes:
        try:
            return self._objects[checked(name)]
        except KeyError:
            raise MissingObject(name, _HERE) from None

    def exists(self, name: str) -> bool:
        return checked(name) in self._objects

    def list(self, prefix: str) -> list[str]:
        checked_prefix(prefix)
        return sorted(name for name in self._objects.copy() if name.startswith(prefix))

    def delete(self, name: str) -> None:
        self._objects.pop(checked(name), None)

    def close(self) -> None:
        """Stop serving and hang up on clients. May be called again."""
        self._server.close()


class RemoteDriverStorage(Storage):
    """A driver's memory as tasks in other processes see it: they read, everything else is a StorageError."""

    in_memory = True

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        secret = parts.path.removeprefix("/")
        if parts.scheme != "driver" or host is None or port is None or not secret:
            raise StorageError("Not the uri of a driver's memory. Pass on DriverStorage.uri as it is.")
        self._uri = uri
        self._address = (host, port)
        self._secret = secret
        self._where = f"the memory of the driver at {host}:{port}"

    def __repr__(self) -> str:
        return f"RemoteDriverStorage({self._address[0]}:{self._address[1]})"

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def where(self) -> str:
        return self._where

    def read(self, name: str, at_most: int | None = None) -> bytes:
        checked(name)
        try:
            data = client_for(self._address, self._secret).read(name)
        except OSError as error:
            raise StorageUnreachable(
                f"Cannot read '{name}' from {self._where}: {error}. Is it running, and reachable from here?"
            ) from None
        if data is None:
            raise MissingObject(name, self._where)
        return data

    def publish(self, name: str, data: bytes) -> None:
        raise self._read_only()

    def write(self, name: str, data: bytes) -> None:
        raise self._read_only()

    def exists(self, name: str) -> bool:
        raise self._read_only()

    def list(self, prefix: str) -> list[str]:
        raise self._read_only()

    def delete(self, name: str) -> None:
        raise self._read_only()

    def _read_only(self) -> StorageError:
        return StorageError(f"Tasks only read from {self._where}. Set a checkpoint directory to write files.")
