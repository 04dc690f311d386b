"""Local paths, given as paths or as file: URIs."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlparse

from penstock.common.options import BadSetting


def local_path(key: str, uri: str) -> str:
    """Return the absolute path of a path or a file: URI; `key` names the setting in errors."""
    parsed = urlparse(uri)
    if parsed.scheme not in ("", "file"):
        raise BadSetting(
            f"{key} is '{uri}': only local paths and file: URIs can be used.",
            fix="Mount the storage on every host and give the path, e.g. file:///mnt/checkpoints.",
        )
    return os.path.abspath(unquote(parsed.path) if parsed.scheme else uri)
