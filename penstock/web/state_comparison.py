"""Compares a state at two moments, for the page."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from penstock.driver.job_snapshot import JobSnapshot
from penstock.tables.key_differences import ADDED, CHANGED, REMOVED, KeyDifference, key_differences
from penstock.tables.snapshot import NoSuchState, Snapshot
from penstock.tables.table import StateTable
from penstock.web.reading import Reading
from penstock.web.state_reader import read_moment

KINDS = (CHANGED, ADDED, REMOVED)
MOST_COMPARED = 1_000_000
"""Keys that one comparison reads."""
_KEPT = 1000
"""Differences of each kind that the page can show."""


class Compared(NamedTuple):
    """The differences between two moments."""

    before: str
    after: str
    counts: dict[str, int]
    """The number of differences of each kind."""
    kept: list[KeyDifference]
    """The first ones of each kind: changed, added, removed."""
    keys: int
    """The number of keys compared."""
    limited: bool
    """Whether the comparison ended at its limit."""


class _Enough(Exception):
    """The comparison has reached its limit."""


def compare_moments(job: JobSnapshot, before: str, after: str, uid: str, state: str, reading: Reading) -> Compared:
    """Compare a state at two moments. Raises PenstockError."""
    return read_moment(
        job,
        before,
        lambda one: read_moment(job, after, lambda other: compare_snapshots(one, other, uid, state, reading)),
    )


def compare_snapshots(before: Snapshot, after: Snapshot, uid: str, state: str, reading: Reading) -> Compared:
    """Compare a state in two snapshots. A state that only one of them has is added or removed. Raises PenstockError."""
    one, other = _table(before, uid, state), _table(after, uid, state)
    if one is None and other is None:
        # Raises the error that lists the states that there are.
        after.state(uid, state)
    counts: Counter[str] = Counter()
    kept: dict[str, list[KeyDifference]] = {kind: [] for kind in KINDS}
    keys = 0

    def progress(compared: int, share: float) -> None:
        nonlocal keys
        keys = compared
        reading.step(compared, share)
        if compared >= MOST_COMPARED and share < 1:
            raise _Enough

    limited = False
    try:
        for each in key_differences(one, other, progress):
            counts[each.kind] += 1
            if len(kept[each.kind]) < _KEPT:
                kept[each.kind].append(each)
    except _Enough:
        limited = True
    found = [each for kind in KINDS for each in kept[kind]]
    return Compared(before.path, after.path, {kind: counts[kind] for kind in KINDS}, found, keys, limited)


def _table(snapshot: Snapshot, uid: str, state: str) -> StateTable | None:
    try:
        return snapshot.state(uid, state)
    except NoSuchState:
        return None
