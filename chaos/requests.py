"""What an operator asks of the running job, by a file that it looks for again and again: to be saved, stopped with a
savepoint, drained, or rescaled."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.errors import PenstockError

RESCALE, SAVE, STOP, DRAIN = "rescale", "savepoint", "stop", "drain"
WIDTHS = (1, 2, 3, 5)
"""The parallelisms that are asked for."""


@dataclass(frozen=True)
class Request:
    what: str
    parallelism: int = 0


def ask(work: Path, request: Request) -> None:
    (work / ".request").write_text(json.dumps(asdict(request)))
    os.replace(work / ".request", work / "request")


def take_back(work: Path) -> None:
    """A driver that comes later is not meant."""
    (work / "request").unlink(missing_ok=True)


def asked(work: Path) -> Request | None:
    """What is asked for, once."""
    try:
        request = Request(**json.loads((work / "request").read_text()))
    except FileNotFoundError:
        return None
    take_back(work)
    return request


def answered(work: Callable[[], str], say: Callable[[str, str], None], word: str) -> str | None:
    """Make a savepoint and tell of it. A disk may be full just then: the job goes on."""
    try:
        path = work()
    except PenstockError as error:
        say("refused", str(error).replace("\n", " "))
        return None
    say(word, path)
    return path
