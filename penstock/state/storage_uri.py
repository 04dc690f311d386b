"""From the uri of a storage to the storage, in any process."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from penstock.state.driver_storage import RemoteDriverStorage
from penstock.state.local_storage import UNSYNCED_SCHEME, LocalStorage
from penstock.state.storage import Storage, StorageError

__all__ = ["open_storage"]


def open_storage(uri: str) -> Storage:
    """Open, in any process, the storage whose `uri` this is. Opening touches neither disk nor network."""
    parts = urlsplit(uri)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return LocalStorage(unquote(parts.path))
    if parts.scheme == UNSYNCED_SCHEME and not parts.netloc and parts.path.startswith("/"):
        return LocalStorage(unquote(parts.path), synced=False)
    if parts.scheme == "driver":
        return RemoteDriverStorage(uri)
    if "://" in uri and parts.scheme not in ("", "file"):
        from penstock.state.object_storage import ObjectStorage

        return ObjectStorage.from_uri(uri)
    # Only the scheme: the rest of a mistyped driver uri holds a secret.
    raise StorageError(f"No storage for a uri with scheme '{parts.scheme}'.", fix="Use an absolute file:///... uri.")
