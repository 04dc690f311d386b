"""Resolve local paths and file: URIs."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlparse

from penstock.common.options import BadSetting


def local_path(key: str, uri: str) -> str:
    """Return the absolute path of a local path or file: URI. `key` names the setting in error messages."""
    parsed = urlparse(uri)
    if parsed.scheme not in ("", "file"):
        raise BadSetting(
            f"{key} is '{uri}', but only local paths and file: URIs are supported.",
            fix="Mount the storage on every host and set the path, e.g. file:///mnt/checkpoints.",
        )
    return os.path.abspath(unquote(parsed.path) if parsed.scheme else uri)
