"""Names that users give: to jobs, operators, states, side outputs."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError


def check_name(name: Any, what: str, error: type[PenstockError] = PenstockError) -> str:
    """Return `name` if it is a string that files and other processes can hold. `what`: what it names.

    Raises:
        error: It is empty, not a string, or holds half of a surrogate pair, which no encoding has.
    """
    if not isinstance(name, str) or not name:
        raise error(f"{what} is a non-empty string, not {name!r}.", fix="Give such a name.")
    if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name):
        raise error(
            f"{what} cannot be {name!a}: it holds half of a surrogate pair, which no encoding has.",
            fix="Decode the name with errors='replace', or write another one.",
        )
    return name


def check_job_name(name: Any, error: type[PenstockError] = PenstockError) -> str:
    """As `check_name`. The name is also printed in lines of text and made the name of a directory."""
    check_name(name, "The name of a job", error)
    if any(character < " " or "\x7f" <= character <= "\x9f" for character in name):
        raise error(
            f"The name of a job cannot be {name!a}: it holds a control character.",
            fix="Write a name of printable characters.",
        )
    return str(name)
