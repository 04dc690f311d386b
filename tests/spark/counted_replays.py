"""The FileSystem backend, which also notes how many bytes of which checkpoint each replica applies."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from penstock.checkpoint.manifest import decode_version
from penstock.state.backends import EngineFactory
from penstock.state.engines.base import Engine
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.files import GroupChanges


def size_of(changes: Iterable[GroupChanges]) -> int:
    return sum(len(key) + len(value or b"") for change in changes for key, value in change.entries)


class CountingEngine(LmdbEngine):
    def __init__(self, directory: str, notes: str) -> None:
        super().__init__(directory)
        self._notes = notes

    def apply(self, expect: bytes | None, changes: Iterable[GroupChanges], position: bytes) -> bool:
        changes = [GroupChanges(each.group, [*each.cleared], [*each.entries]) for each in changes]
        applied = super().apply(expect, changes, position)
        if applied:
            with Path(self._notes, str(os.getpid())).open("a") as notes:
                notes.write(f"{decode_version(position).id} {size_of(changes)}\n")
        return applied


class CountingFactory(EngineFactory):
    """Selected with `state.backend: counted_replays:CountingFactory`. `state.backend.custom.notes`: a directory."""

    def open(self, directory: str) -> Engine:
        return CountingEngine(directory, self.options["custom.notes"])


def replayed(notes: Path) -> Counter[int]:
    """Return the bytes that all replicas applied, by checkpoint."""
    found: Counter[int] = Counter()
    for file in notes.iterdir():
        for line in file.read_text().splitlines():
            checkpoint, size = map(int, line.split())
            found[checkpoint] += size
    return found
