"""Token files: secrets that authorize requests, readable by this user only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from penstock.common.private_directory import NotPrivate
from penstock.common.private_file import create_private, read_private
from penstock.errors import PenstockError

_BYTES = 32
_LONGEST = 4096
_SHORTEST = 16


class UnusableToken(PenstockError):
    """The token file is missing, empty, or accessible to other users.

    Operator action: remove the file, so that the service creates another one, or correct its permissions.
    """

    retryable = False


def read_token(path: Path) -> str:
    """Read a token.

    Raises:
        FileNotFoundError: The file does not exist.
        UnusableToken: The file contains no token, or other users can read it.
    """
    try:
        content = read_private(path, _LONGEST).strip()
    except NotPrivate as error:
        raise _unusable(path, str(error)) from None
    if len(content) < _SHORTEST or not content.isascii() or len(content.split()) != 1:
        raise _unusable(path, f"does not contain one token of at least {_SHORTEST} ASCII characters")
    return content.decode()


def read_or_create_token(path: Path) -> str:
    """Read a token, and create its file if it does not exist.

    Raises:
        UnusableToken: The file contains no token, or other users can read it.
    """
    try:
        return read_token(path)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The first of several services wins.
        create_private(path, f"{secrets.token_urlsafe(_BYTES)}\n".encode())
        return read_token(path)


def state_directory() -> Path:
    """Return the directory below the user's state directory where services keep their files."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(Path.home(), ".local", "state")
    return Path(state) / "penstock"


def _unusable(path: Path, why: str) -> UnusableToken:
    return UnusableToken(
        f"The token file {path} {why}.",
        fix="Remove it, so that the service creates another one, or set its permissions to 0600 for the user of the "
        "service.",
    )
