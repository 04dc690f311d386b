"""The token of the service: a file that only this user can read. Commands read it, and the service creates it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.checkpoint.lineages import SharedStorage
from penstock.cluster.credentials import shared_secret
from penstock.cluster.directory import ClusterDirectory
from penstock.common.options.service import HA_TYPE, REST_AUTH, REST_TOKEN_FILE
from penstock.common.private_file import replace_private
from penstock.common.tokens import UnusableToken, read_or_create_token, read_token

_SHARED = "rest-token"
"""The name of the token in the storage of a cluster with several Dispatchers."""


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
    return read_or_create_token(token_file(settings))


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
