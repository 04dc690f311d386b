"""The few things this package asks of a file system, and the words for what it refuses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import PenstockError
from penstock.state.storage import StorageError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//([^/]*))?")


def local_path(path: str | os.PathLike[str], whose: str) -> str:
    """The absolute local path of a path or file: URI. Percent signs stand for themselves, as in Hadoop's paths."""
    text = os.fspath(path)
    if not isinstance(text, str) or not text:
        raise PenstockError(f"{whose} needs a path, not {text!r}.")
    scheme = _SCHEME.match(text)
    if scheme is not None:
        if scheme[1].lower() != "file" or scheme[3] not in (None, "", "localhost"):
            raise PenstockError(
                f"{whose} cannot use '{text}': only local paths and mounts shared by all hosts. Mount the storage on "
                f"the driver and on every executor, under the same path, and give that."
            )
        text = text[scheme.end() :]
    return os.path.abspath(text)


def is_hidden(name: str) -> bool:
    """Whether readers of directories (Spark, Hadoop, pyarrow, ours) skip a file or directory of this name."""
    return name.startswith((".", "_"))


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """An error of the file system becomes one that says what it was about; another attempt may go better."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise StorageError(
            f"{doing} failed: {error.strerror or error}{where}. See that the path is there, writable and not full, "
            f"on every host of the job."
        ) from error


def make_directories(directory: str) -> None:
    """Like makedirs, and what it makes is still there after a power failure."""
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    if parent != directory:
        make_directories(parent)
    try:
        os.mkdir(directory)
    except FileExistsError:
        # Another task was faster; if it is no directory, the error is the caller's to see.
        if not os.path.isdir(directory):
            raise
    sync_directory(parent)


def sync_directory(directory: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Delete a file that may be gone already."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def remove_if_empty(directory: str) -> None:
    try:
        os.rmdir(directory)
    except OSError:
        # Not empty, or gone: both are fine.
        pass
