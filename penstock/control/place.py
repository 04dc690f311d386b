"""The directory that holds the control points of one user's jobs on this host: `<job id>.sock` for each.

Who may write in it may answer for a job, and who may connect may end it. So it is made for this user alone, and one
that somebody else made, or may write in, is not used.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from penstock.common.options.running import CONTROL_DIRECTORY
from penstock.common.private_directory import NotPrivate, opened_private
from penstock.errors import PenstockError

SUFFIX = ".sock"


class UnusableDirectory(PenstockError):
    """The directory of control points is not this user's alone. Operator action: name another, or see who made it."""


def control_directory(settings: Mapping[str, str]) -> str:
    """As set, or one below the temporary directory.

    Not below XDG_RUNTIME_DIR: jobs that are started by cron have none, and it goes when the user logs out.
    """
    return CONTROL_DIRECTORY.read(settings) or os.path.join(tempfile.gettempdir(), f"penstock-control-{os.getuid()}")


@contextmanager
def opened(directory: str, create: bool = False) -> Iterator[int]:
    """The directory as a descriptor, checked: what is done through it is done there, whatever its path becomes.

    Raises FileNotFoundError if it is not there and not to be created, UnusableDirectory if it is not to be trusted.
    """
    try:
        with opened_private(directory, create=create) as descriptor:
            yield descriptor
    except NotPrivate as error:
        raise _unusable(directory, str(error)) from None


def address(descriptor: int, name: str) -> str:
    """Of a socket in an opened directory. The path of one has at most 107 bytes, and a directory may be deep."""
    return f"/proc/self/fd/{descriptor}/{name}"


def _unusable(directory: str, why: str) -> UnusableDirectory:
    return UnusableDirectory(
        f"Commands cannot reach jobs through {directory}: it {why}.",
        fix=f"Set {CONTROL_DIRECTORY.key} to a directory that only you may write in, for jobs and commands alike.",
    )
