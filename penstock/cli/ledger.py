"""The ledger: every count that the demo's job gave, written as its epochs complete, and the audit of it.

For one URL the job must give 1, 2, 3, … n, each once, where n is how often the log has it. A number that is missing
was lost. A number that comes twice, or is larger than n, was counted double.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.datastream.connectors import Commit, CommitContext, Sink, SinkWriter
from penstock.datastream.functions import RuntimeContext

Run = tuple[int, int]
"""Counts given one after the other: the first and the last of them."""


Page = dict[str, list[Run]]
"""What one subtask of the sink got in one epoch: by URL, in the order they came."""


class LedgerSink(Sink):
    """Takes (url, count). A page is a file in `folder`, there once its epoch is complete.

    After a recovery the last pages are committed again: same epoch and subtask, so the same file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _PageWriter()

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        for commit in commits:
            name = f"{commit.epoch:06d}-{commit.subtask}"
            temporary = self._folder / f".{name}"
            with temporary.open("wb") as file:
                file.write(commit.payload)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._folder / f"{name}.json")


class _PageWriter(SinkWriter):
    def __init__(self) -> None:
        self._runs: dict[str, list[Run]] = {}

    def write(self, value: tuple[str, int]) -> None:
        url, count = value
        runs = self._runs.get(url)
        if runs is None:
            self._runs[url] = [(count, count)]
        elif runs[-1][1] == count - 1:
            runs[-1] = (runs[-1][0], count)
        else:
            runs.append((count, count))

    def prepare_commit(self) -> bytes | None:
        runs, self._runs = self._runs, {}
        return msgspec.json.encode(runs) if runs else None


def read_ledger(folder: Path) -> dict[str, list[Run]]:
    """All runs of every page, by URL."""
    ledger: defaultdict[str, list[Run]] = defaultdict(list)
    for path in folder.glob("*.json"):
        for url, runs in msgspec.json.decode(path.read_bytes(), type=Page).items():
            ledger[url] += runs
    return dict(ledger)


@dataclass(frozen=True)
class Audit:
    """What the ledger holds against what the log holds."""

    counted: int
    lost: Counter[str]
    doubled: Counter[str]
    final: Counter[str]
    """The last count of each URL."""


def audit(expected: Mapping[str, int], ledger: Mapping[str, list[Run]]) -> Audit:
    counted = 0
    lost: Counter[str] = Counter()
    doubled: Counter[str] = Counter()
    final: Counter[str] = Counter()
    for url in expected.keys() | ledger.keys():
        runs = sorted(ledger.get(url, []))
        given = sum(last - first + 1 for first, last in runs)
        right = _distinct_up_to(expected.get(url, 0), runs)
        counted += given
        lost[url] = expected.get(url, 0) - right
        doubled[url] = given - right
        final[url] = max((last for _, last in runs), default=0)
    return Audit(counted, +lost, +doubled, final)


def _distinct_up_to(limit: int, runs: list[Run]) -> int:
    """How many of 1 … limit are in these sorted runs."""
    distinct = reached = 0
    for first, last in runs:
        last = min(last, limit)
        distinct += max(0, last - max(first - 1, reached))
        reached = max(reached, last)
    return distinct
