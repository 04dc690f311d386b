"""Storage in the driver's memory, served to the tasks over a socket."""

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
    """Storage in the memory of the driver process; its objects live as long as the process.

    The driver starts listening at the first use of `uri`. The URI contains the secret that authenticates clients:
    pass it to tasks, and never log or display it. `close` stops serving; the driver can still use the objects.

    Args:
        host: The address at which tasks reach the driver, and the only one it listens on.
    """

    in_memory = True

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._objects: dict[str, bytes] = {}
        self._server = ObjectServer(self._objects, host)
        # A storage that is never closed would leave a thread listening until the process ends.
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
                f"The driver cannot serve its memory to tasks: {error}. If the host is wrong, set the address at "
                f"which executors reach the driver."
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
        """Stop serving and disconnect clients. Calling it again has no effect."""
        self._server.close()


class RemoteDriverStorage(Storage):
    """A driver's memory as seen by tasks in other processes. Only `read` works; all else raises StorageError."""

    in_memory = True

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        secret = parts.path.removeprefix("/")
        if parts.scheme != "driver" or host is None or port is None or not secret:
            raise StorageError("Not the URI of a driver's memory. Pass DriverStorage.uri on unchanged.")
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
                f"Cannot read '{name}' from {self._where}: {error}. Check that the driver is running and reachable "
                f"from this host."
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
        return StorageError(f"Tasks can only read from {self._where}. Set a checkpoint directory to write files.")
