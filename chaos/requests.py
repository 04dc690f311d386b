"""Requests to the running job through a file that the job polls: take a savepoint, stop with one, drain, or rescale."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.errors import PenstockError

RESCALE, SAVE, STOP, DRAIN = "rescale", "savepoint", "stop", "drain"
WIDTHS = (1, 2, 3, 5)
"""The parallelisms that are requested."""


@dataclass(frozen=True)
class Request:
    what: str
    parallelism: int = 0


def ask(work: Path, request: Request) -> None:
    (work / ".request").write_text(json.dumps(asdict(request)))
    os.replace(work / ".request", work / "request")


def take_back(work: Path) -> None:
    """Withdraw a request, which must not reach a later driver."""
    (work / "request").unlink(missing_ok=True)


def asked(work: Path) -> Request | None:
    """Return the pending request once, and remove it."""
    try:
        request = Request(**json.loads((work / "request").read_text()))
    except FileNotFoundError:
        return None
    take_back(work)
    return request


def answered(work: Callable[[], str], say: Callable[[str, str], None], word: str) -> str | None:
    """Make a savepoint and report it. If it fails, because the disk is full for instance, the job continues."""
    try:
        path = work()
    except PenstockError as error:
        say("refused", str(error).replace("\n", " "))
        return None
    say(word, path)
    return path
