"""The token of the service: a file that only this user can read. Commands read it, and the service creates it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from penstock.checkpoint.lineages import SharedStorage
from penstock.cluster.credentials import shared_secret
from penstock.cluster.directory import ClusterDirectory
from penstock.common.options.service import HA_TYPE, REST_AUTH, REST_TOKEN_FILE
from penstock.common.private_directory import NotPrivate
from penstock.common.private_file import create_private, read_private, replace_private
from penstock.errors import PenstockError

_BYTES = 32
_SHARED = "rest-token"
"""The name of the token in the storage of a cluster with several Dispatchers."""
_LONGEST = 4096
_SHORTEST = 16


class UnusableToken(PenstockError):
    """The token file is missing, empty, or accessible to other users.

    Operator action: remove the file, so that the service creates another one, or correct its permissions.
    """

    retryable = False


def token_file(settings: Mapping[str, str]) -> Path:
    """Return the path of the token file: the configured one, or `token` in `cluster.dir`."""
    configured = REST_TOKEN_FILE.read(settings)
    if configured:
        return Path(configured).expanduser()
    return ClusterDirectory.configured(settings).token


def service_token(settings: Mapping[str, str]) -> str:
    """Return the token that requests need, and create its file if it does not exist; empty if they need none.

    Raises UnusableToken.
    """
    if not REST_AUTH.read(settings):
        return ""
    path = token_file(settings)
    try:
        return read_token(path)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The first of several services wins.
        create_private(path, f"{secrets.token_urlsafe(_BYTES)}\n".encode())
        return read_token(path)


def cluster_token(settings: Mapping[str, str], storage: SharedStorage) -> str:
    """Return the token of a Dispatcher. Those of one cluster have the same: a standby passes requests on to the leader.

    The token is kept in the storage of the cluster, and a copy for the commands of this host in the token file.
    Raises UnusableToken, BadSecretFile, StorageError.
    """
    if not REST_AUTH.read(settings) or HA_TYPE.read(settings) == "none" or REST_TOKEN_FILE.read(settings):
        return service_token(settings)
    token = shared_secret(storage, _SHARED)
    path = token_file(settings)
    try:
        known = read_token(path)
    except (FileNotFoundError, UnusableToken):
        known = ""
    if known != token:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_private(path, f"{token}\n".encode())
    return token


def read_token(path: Path) -> str:
    """Read a token. Raises FileNotFoundError, UnusableToken."""
    try:
        content = read_private(path, _LONGEST).strip()
    except NotPrivate as error:
        raise _unusable(path, str(error)) from None
    if len(content) < _SHORTEST or not content.isascii() or len(content.split()) != 1:
        raise _unusable(path, f"does not contain one token of at least {_SHORTEST} ASCII characters")
    return content.decode()


def _unusable(path: Path, why: str) -> UnusableToken:
    return UnusableToken(
        f"The token file {path} {why}.",
        fix="Remove it, so that the service creates another one, or set its permissions to 0600 for the user of the "
        "service.",
    )
