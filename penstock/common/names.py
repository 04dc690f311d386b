"""Validate names that users choose for jobs, operators, states and side outputs."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError


def check_name(name: Any, what: str, error: type[PenstockError] = PenstockError) -> str:
    """Return `name` if it is a string that can be stored in files and sent to other processes.

    Args:
        name: The name to check.
        what: The named thing, as the subject of error messages.
        error: The exception class to raise.

    Raises:
        error: The name is empty, not a string, or contains an unpaired surrogate, which cannot be encoded.
    """
    if not isinstance(name, str) or not name:
        raise error(f"{what} must be a non-empty string, not {name!r}.", fix="Pass a non-empty string.")
    if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name):
        raise error(
            f"{what} cannot be {name!a}: it contains an unpaired surrogate, which cannot be encoded.",
            fix="Decode the name with errors='replace', or choose another one.",
        )
    return name


def check_job_name(name: Any, error: type[PenstockError] = PenstockError) -> str:
    """Like `check_name`, and also reject control characters: job names appear in log lines and directory names."""
    check_name(name, "The name of a job", error)
    if any(character < " " or "\x7f" <= character <= "\x9f" for character in name):
        raise error(
            f"The name of a job cannot be {name!a}: it contains a control character.",
            fix="Use printable characters only.",
        )
    return str(name)
