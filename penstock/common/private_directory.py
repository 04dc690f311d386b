"""Directories at predictable paths that only this user can access, such as those below the temporary directory.

In a world-writable directory, another user can create a directory or a symbolic link at such a path first.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class NotPrivate(Exception):
    """A directory or file is not private. The text continues a sentence: 'belongs to another user (uid 1001)'."""


@contextmanager
def opened_private(directory: str, *, create: bool = False, tighten: bool = False) -> Iterator[int]:
    """Open the directory, check that it is private, and yield its descriptor, which stays valid if the path changes.

    With `tighten`, remove other users' permissions on a directory of this user instead of refusing it.
    Raises FileNotFoundError if the directory is missing and `create` is not set, NotPrivate if it is not private.
    """
    if create:
        os.makedirs(os.path.dirname(directory) or ".", exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(directory, mode=0o700)
    try:
        # O_NOFOLLOW: in a world-writable directory, any user can create a symbolic link.
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NotPrivate(f"cannot be opened as a directory ({error.strerror})") from None
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid():
            raise NotPrivate(f"belongs to another user (uid {found.st_uid})")
        if tighten and stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(descriptor, 0o700)
        elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise NotPrivate(f"is writable by other users (mode {stat.S_IMODE(found.st_mode):o})")
        yield descriptor
    finally:
        os.close(descriptor)


def can_be_replaced(directory: str) -> bool:
    """Return whether another user can replace this directory, although it belongs to the current user."""
    parent = os.stat(os.path.dirname(directory) or ".")
    by_others = parent.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not parent.st_mode & stat.S_ISVTX
    return bool(by_others) or parent.st_uid not in (0, os.getuid())
