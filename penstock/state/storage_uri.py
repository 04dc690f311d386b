"""Open a storage by its URI."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from penstock.state.driver_storage import RemoteDriverStorage
from penstock.state.local_storage import UNSYNCED_SCHEME, LocalStorage
from penstock.state.storage import Storage, StorageError

__all__ = ["open_storage"]


def open_storage(uri: str) -> Storage:
    """Open the storage with this `uri`, in any process. Opening accesses neither disk nor network."""
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
    # Show only the scheme: the rest of a mistyped driver URI contains a secret.
    raise StorageError(f"Unknown scheme '{parts.scheme}' in a storage URI.", fix="Use an absolute file:///... URI.")
