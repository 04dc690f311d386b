"""The directory with the control points of one user's jobs on this host: one `<job id>.sock` per job.

Any user who can write to it could impersonate a job, and any user who can connect could end one. It is therefore
created for this user only, and a directory that another user created or can write to is not used.
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
    """Other users have access to the control directory. Operator action: use another one, or find out who made it."""


def control_directory(settings: Mapping[str, str]) -> str:
    """Return the configured directory, or the default below the temporary directory.

    The default is not below XDG_RUNTIME_DIR: cron jobs have none, and it disappears when the user logs out.
    """
    return CONTROL_DIRECTORY.read(settings) or os.path.join(tempfile.gettempdir(), f"penstock-control-{os.getuid()}")


@contextmanager
def opened(directory: str, create: bool = False) -> Iterator[int]:
    """Open the directory and check it. The descriptor stays valid even if the path changes.

    Raises FileNotFoundError if it does not exist and `create` is False, UnusableDirectory if it is not private.
    """
    try:
        with opened_private(directory, create=create) as descriptor:
            yield descriptor
    except NotPrivate as error:
        raise _unusable(directory, str(error)) from None


def address(descriptor: int, name: str) -> str:
    """Return the address of a socket in an opened directory. A socket path is limited to 107 bytes."""
    return f"/proc/self/fd/{descriptor}/{name}"


def _unusable(directory: str, why: str) -> UnusableDirectory:
    return UnusableDirectory(
        f"Commands cannot reach jobs through {directory}: it {why}.",
        fix=f"Set {CONTROL_DIRECTORY.key} to a directory that only you can write to, for both jobs and commands.",
    )
