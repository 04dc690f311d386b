"""File system helpers of this package, with explanatory errors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.common.durable_files import sync_directory
from penstock.errors import PenstockError
from penstock.state.storage import StorageError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//([^/]*))?")


def local_path(path: str | os.PathLike[str], whose: str) -> str:
    """Return the absolute local path of a path or file: URI. Percent signs are literal, as in Hadoop paths."""
    text = os.fspath(path)
    if not isinstance(text, str) or not text:
        raise PenstockError(f"{whose} needs a path, not {text!r}.")
    scheme = _SCHEME.match(text)
    if scheme is not None:
        if scheme[1].lower() != "file" or scheme[3] not in (None, "", "localhost"):
            raise PenstockError(
                f"{whose} cannot use '{text}': it supports only local paths and shared mounts. Mount the storage under "
                f"the same path on the driver and every executor, and pass that path."
            )
        text = text[scheme.end() :]
    return os.path.abspath(text)


def is_hidden(name: str) -> bool:
    """Return whether directory readers (Spark, Hadoop, pyarrow, ours) skip this file or directory name."""
    return name.startswith((".", "_"))


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn an OSError into a retryable error that says what failed."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise StorageError(
            f"{doing} failed: {error.strerror or error}{where}. Check that the path exists, is writable and has free "
            f"space on every host of the job."
        ) from error


def make_directories(directory: str) -> None:
    """Create a directory and its parents durably: they survive a power failure."""
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    if parent != directory:
        make_directories(parent)
    try:
        os.mkdir(directory)
    except FileExistsError:
        # Another task created it first. If it is not a directory, the caller sees the error.
        if not os.path.isdir(directory):
            raise
    sync_directory(parent)


def remove(path: str) -> None:
    """Delete a file unless it is already gone."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def remove_if_empty(directory: str) -> None:
    try:
        os.rmdir(directory)
    except OSError:
        # Not empty, or already gone.
        pass
