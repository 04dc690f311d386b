"""The ledger, which records every count that the demo's job emits, and its audit.

For a URL that the log contains n times, the job must emit 1, 2, 3, … n, each once. A missing number was lost. A number
that appears twice, or is larger than n, was counted twice.
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
"""A run of consecutive counts: the first and the last."""


Page = dict[str, list[Run]]
"""The runs that one subtask of the sink received in one epoch, by URL, in the order of arrival."""


class LedgerSink(Sink):
    """Writes (url, count) records. Each page is a file in `folder` that appears when its epoch completes.

    After a recovery the last pages are committed again under the same names, which makes the commit idempotent.
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
    """Return the runs of all pages, by URL."""
    ledger: defaultdict[str, list[Run]] = defaultdict(list)
    for path in folder.glob("*.json"):
        for url, runs in msgspec.json.decode(path.read_bytes(), type=Page).items():
            ledger[url] += runs
    return dict(ledger)


@dataclass(frozen=True)
class Audit:
    """The comparison of the ledger with the log."""

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
    """Return how many of 1 … limit occur in the sorted runs."""
    distinct = reached = 0
    for first, last in runs:
        last = min(last, limit)
        distinct += max(0, last - max(first - 1, reached))
        reached = max(reached, last)
    return distinct
