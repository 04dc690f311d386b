"""Compare a state in two checkpoints or savepoints: the keys that were added, removed or changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.tables.contents import KeyedContent
from penstock.tables.key_history import value_of
from penstock.tables.keys import decode_key
from penstock.tables.layouts import Entry
from penstock.tables.table import StateTable

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
_CLOCKS = ("last_access", "expires")


class CannotCompare(PenstockError):
    """Two states cannot be compared key by key.

    Operator action: compare snapshots of the same job, or read both states as tables.
    """


class KeyDifference(NamedTuple):
    """A key whose state differs between two snapshots."""

    key: Any
    kind: str
    """added, removed or changed."""
    before: Any
    """The key's value (see ``value_of``), or None if it was added."""
    after: Any
    """None if it was removed."""


def no_progress(keys: int, share: float) -> None:
    """Ignore the progress of a comparison."""


def key_differences(
    before: StateTable | None, after: StateTable | None, progress: Callable[[int, float], None] = no_progress
) -> Iterator[KeyDifference]:
    """Yield the keys that differ, in the order of their key groups.

    Values whose time to live was only renewed are equal. Keeps one key group of each state in memory.

    Args:
        before: The earlier state; None if the operator or the state did not exist yet.
        after: The later state; None if it no longer exists.
        progress: Called after each key group with the number of keys compared, and the share of key groups that have
            been visited. It can raise an exception to end the comparison.

    Raises:
        CannotCompare: The states are of different kinds, or have different numbers of key groups.
    """
    known = [each for each in (before, after) if each is not None]
    if not known:
        return
    contents = [each.content for each in known]
    keyed = [each for each in contents if isinstance(each, KeyedContent)]
    if not keyed:
        yield from _element_differences(before, after)
        return
    if len(keyed) < len(contents) or len({(each.timers, each.type.kind) for each in keyed}) > 1:
        raise CannotCompare(
            f"State '{known[0].info.name}' of operator '{known[0].info.uid}' is of kind {known[0].info.kind} in one "
            f"snapshot and {known[-1].info.kind} in the other.",
            fix="Compare snapshots that the same version of the program made.",
        )
    groups = {each.max_parallelism for each in keyed}
    if len(groups) > 1:
        raise CannotCompare(
            f"State '{known[0].info.name}' of operator '{known[0].info.uid}' has {min(groups)} key groups in one "
            f"snapshot and {max(groups)} in the other.",
            fix="Read both states as tables, and join them by key.",
        )
    yield from _keyed_differences(before, after, groups.pop(), progress)


def _keyed_differences(
    before: StateTable | None, after: StateTable | None, groups: int, progress: Callable[[int, float], None]
) -> Iterator[KeyDifference]:
    older, newer = _Groups(before), _Groups(after)
    same_type = before is None or after is None or before.info.type == after.info.type
    plain = same_type and older.comparable and newer.comparable
    keys = 0
    while (group := min(older.group, newer.group)) < groups:
        was, now = older.take(group), newer.take(group)
        for key in was | now:
            keys += 1
            if plain and was.get(key) == now.get(key):
                continue
            had, has = older.rows(was.get(key)), newer.rows(now.get(key))
            if had == has:
                continue
            kind = ADDED if key not in was else REMOVED if key not in now else CHANGED
            yield KeyDifference(decode_key(key), kind, older.value(had), newer.value(has))
        progress(keys, (group + 1) / groups)
    progress(keys, 1.0)


class _Groups:
    """The key groups of one state in ascending order, with the entries of each key."""

    def __init__(self, table: StateTable | None) -> None:
        self._table = table
        self._groups: Iterator[tuple[int, list[Entry]]] = iter(())
        self._entries: list[Entry] = []
        self.group = 1 << 32
        self.comparable = True
        if table is not None:
            assert isinstance(table.content, KeyedContent)
            # Keys of several types do not fit into one column.
            content = table.content.with_text_keys()
            self._content = content
            # The same value is stored in different bytes before and after a migration.
            self.comparable = not content.migrations
            self._groups = (each for part in content.parts() for each in content.entries(part))
            self._table = StateTable(table.info, content)
            self._next()

    def _next(self) -> None:
        self.group, self._entries = next(self._groups, (1 << 32, []))

    def take(self, group: int) -> dict[bytes, list[Entry]]:
        """Return the entries of a key group by key."""
        found: dict[bytes, list[Entry]] = {}
        while self.group == group:
            for entry in self._entries:
                found.setdefault(self._content.key_of(entry[0]), []).append(entry)
            self._next()
        return found

    def rows(self, entries: list[Entry] | None) -> list[dict[str, Any]]:
        """Return the rows of a key, without the times of its last access and expiry."""
        rows = self._content.batch(entries).to_pylist() if entries else []
        return [{name: value for name, value in row.items() if name not in _CLOCKS} for row in rows]

    def value(self, rows: list[dict[str, Any]]) -> Any:
        """Combine the rows of a key."""
        return None if self._table is None else value_of(self._table, rows)


def _element_differences(before: StateTable | None, after: StateTable | None) -> Iterator[KeyDifference]:
    """Compare operator state. Elements move between subtasks; only a broadcast state has keys."""
    rows = [[] if each is None else [*each.rows()] for each in (before, after)]
    named = next((each for each in (before, after) if each is not None and "map_key" in each.schema.names), None)
    if named is not None:
        old, new = ({repr(row["map_key"]): row for row in each} for each in rows)
        for name in old | new:
            was, now = (each.get(name) for each in (old, new))
            if was is None or now is None or was["value"] != now["value"]:
                kind = ADDED if was is None else REMOVED if now is None else CHANGED
                key = (now or was or {})["map_key"]
                yield KeyDifference(key, kind, was and was["value"], now and now["value"])
        return
    values: dict[str, Any] = {repr(row["value"]): row["value"] for each in rows for row in each}
    had, has = (Counter(repr(row["value"]) for row in each) for each in rows)
    for name in (had - has).elements():
        yield KeyDifference(None, REMOVED, values[name], None)
    for name in (has - had).elements():
        yield KeyDifference(None, ADDED, None, values[name])
