"""Steps of a write that survives a crash of the host: write a temporary file, sync it, name it, sync its directory."""

from __future__ import annotations

import os

TEMPORARY = ".tmp-"
"""Prefix of files that are still being written. A crash can leave them behind. Names of objects cannot contain it."""


def sync_directory(directory: str | os.PathLike[str]) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
