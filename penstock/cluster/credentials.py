"""Secrets that all Dispatchers of a cluster share: ZooKeeper's credentials, and the token of the REST interface.

They are kept in files that only this user can read. ZooKeeper gets a hash of the credentials and never a token: all its
administrators and backups see its content, and the Dispatchers, which run as one user, can read the storage anyway.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from penstock.checkpoint.lineages import SharedStorage
from penstock.common.options.service import HA_CREDENTIALS
from penstock.common.private_directory import NotPrivate
from penstock.common.private_file import create_private, read_private
from penstock.errors import PenstockError
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import AlreadyPublished, StorageError

_CREDENTIALS = re.compile(r"[^\s:]+:\S+")
_MOST_BYTES = 4096


class BadSecretFile(PenstockError):
    """A file with a secret cannot be read, is accessible to other users, or does not contain a secret.

    Operator action: correct the content, the owner or the mode of the file that the message names. If other users were
    able to read it, replace the secret.
    """

    retryable = False


def zookeeper_credentials(settings: Mapping[str, str], storage: SharedStorage) -> str:
    """Return `user:password` from the configured file, or the one in the storage, which is created if needed."""
    configured = HA_CREDENTIALS.read(settings)
    if configured:
        text, where = read_secret(Path(configured)), configured
    else:
        text, where = shared_secret(storage, "zookeeper-credentials", prefix="penstock:"), storage.where
    if not _CREDENTIALS.fullmatch(text):
        raise BadSecretFile(
            f"The credentials for ZooKeeper in {where} do not have the form user:password.",
            fix="Write one line with a user, a colon and a password without white space.",
        )
    return text


def shared_secret(storage: SharedStorage, name: str, *, prefix: str = "") -> str:
    """Return the secret with this name, the same for all processes that use the storage. Create it if needed."""
    if isinstance(storage, LocalStorage):
        path = storage.root / name
        if not os.path.lexists(path):
            _create(path, prefix + secrets.token_urlsafe(32))
        return read_secret(path)
    if not storage.exists(name):
        with suppress(AlreadyPublished):
            storage.publish(name, (prefix + secrets.token_urlsafe(32)).encode())
    return storage.read(name, _MOST_BYTES).decode().strip()


def read_secret(path: Path) -> str:
    """Return the content of a file that only this user can read. Raise BadSecretFile if it is another one."""
    try:
        text = read_private(path, _MOST_BYTES).decode(errors="replace").strip()
    except FileNotFoundError:
        raise BadSecretFile(f"The file {path} does not exist.", fix="Create it with mode 600.") from None
    except NotPrivate as error:
        raise BadSecretFile(
            f"The file {path} cannot hold a secret: it {error}.",
            fix=f"Make it a file of user {os.getuid()} with mode 600, and replace the secret if others could read it.",
        ) from None
    if not text:
        raise BadSecretFile(f"The file {path} is empty.", fix="Write the secret into it, or remove the file.")
    return text


def _create(path: Path, text: str) -> None:
    """Create a private file with this content, unless it exists."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        create_private(path, f"{text}\n".encode())
    except OSError as error:
        raise StorageError(
            f"Cannot write the secret {path}: {error.strerror}.",
            fix="Make sure that the directory is writable and has free space (high-availability.storageDir).",
        ) from None
