"""Credits on their way from the driver to the planners of its sources, and backlogs on their way back: small files.

A planner is a process that Spark starts on the driver's host and calls whenever it likes; it is not reached otherwise.
Nothing depends on them: without its file a source gives what it has, and what an epoch reads is in Spark's log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


class CreditFiles:
    """The driver's end. In a directory of the driver's own."""

    def __init__(self, directory: Path, sources: Iterable[str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        # A uid is any text.
        self._paths = {uid: str(directory / f"source-{number}") for number, uid in enumerate(sources)}

    def path(self, uid: str) -> str | None:
        """What the planner of this source is given; None for a source without credits."""
        return self._paths.get(uid)

    def grant(self, uid: str, records: int) -> None:
        _write(_credits(self._paths[uid]), records)

    def backlog(self, uid: str) -> int | None:
        return _read(_backlog(self._paths[uid]))


class CreditsOfSource:
    """The planner's end."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._told: int | None = None

    def limit(self, most: int | None) -> int | None:
        """The records that the next epoch may have, at most `most`."""
        granted = _read(_credits(self._path))
        return most if granted is None else granted if most is None else min(granted, most)

    def tell(self, backlog: int | None) -> None:
        if backlog is not None and backlog != self._told:
            self._told = backlog
            _write(_backlog(self._path), backlog)


def _credits(path: str) -> str:
    return f"{path}.credits"


def _backlog(path: str) -> str:
    return f"{path}.backlog"


def _read(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _write(path: str, number: int) -> None:
    """Whole or not at all: the other end may read at any moment."""
    try:
        with open(f"{path}.new", "wb") as file:
            file.write(b"%d" % number)
        os.replace(f"{path}.new", path)
    except OSError:
        # A full disk must not end the job: credits then stay what they were.
        return
