"""Files that only this user can access, such as those with secrets.

Other processes see such a file with its complete content or not at all, also after a crash of the host.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.common.durable_files import TEMPORARY, sync_directory
from penstock.common.private_directory import NotPrivate


def read_private(path: Path, most_bytes: int) -> bytes:
    """Return the first `most_bytes` of a file. Raises FileNotFoundError, or NotPrivate if others can access it."""
    try:
        # O_NONBLOCK: opening a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NotPrivate(
            "is a symbolic link" if path.is_symlink() else f"cannot be opened ({error.strerror})"
        ) from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotPrivate("is not a regular file")
        if found.st_uid != os.getuid():
            raise NotPrivate(f"belongs to another user (uid {found.st_uid})")
        if found.st_mode & 0o077:
            raise NotPrivate(f"is accessible to other users (mode {stat.S_IMODE(found.st_mode):o})")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most_bytes)
    finally:
        os.close(descriptor)


def create_private(path: Path, content: bytes) -> None:
    """Create a file with this content, unless it exists: the first of several creators wins. Raises OSError."""
    with _written(path, content) as temporary, suppress(FileExistsError):
        os.link(temporary, path)


def replace_private(path: Path, content: bytes) -> None:
    """Create a file with this content, or replace the existing one. Raises OSError."""
    with _written(path, content) as temporary:
        os.replace(temporary, path)


@contextmanager
def _written(path: Path, content: bytes) -> Iterator[Path]:
    """Yield a durable temporary file with this content in the directory of the path. Then make the names durable."""
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)
