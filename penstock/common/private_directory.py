"""Directories at predictable paths that only this user may use, such as those below the temporary directory.

In a directory that everybody can write in, another user can put a directory or a link at such a path first.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class NotPrivate(Exception):
    """A directory is not this user's alone. The text continues a sentence: 'belongs to another user (number 1001)'."""


@contextmanager
def opened_private(directory: str, *, create: bool = False, tighten: bool = False) -> Iterator[int]:
    """The directory as a descriptor, checked. Whatever its path leads to later, the descriptor leads to this one.

    `tighten`: where others may write in a directory of this user, take that from them instead of refusing it.
    Raises FileNotFoundError if it is missing and not to be created, NotPrivate if it is not to be trusted.
    """
    if create:
        os.makedirs(os.path.dirname(directory) or ".", exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(directory, mode=0o700)
    try:
        # O_NOFOLLOW: in a directory that everybody can write in, anybody can put a link.
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NotPrivate(f"cannot be opened as a directory ({error.strerror})") from None
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid():
            raise NotPrivate(f"belongs to another user (number {found.st_uid})")
        if tighten and stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(descriptor, 0o700)
        elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise NotPrivate(f"may be written in by others (mode {stat.S_IMODE(found.st_mode):o})")
        yield descriptor
    finally:
        os.close(descriptor)


def can_be_replaced(directory: str) -> bool:
    """Whether another user can put another directory at this path, though this one belongs to this user."""
    parent = os.stat(os.path.dirname(directory) or ".")
    by_others = parent.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not parent.st_mode & stat.S_ISVTX
    return bool(by_others) or parent.st_uid not in (0, os.getuid())
