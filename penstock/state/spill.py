"""Spill space of an overlay: a private database on local disk, on top of the replicas.

A spill resembles the end of an epoch that is not reported: the contents of the states go to the `Run`, and the states
start over on top of it. However often an overlay spills, there is only one run, so a read looks in at most three
places.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from penstock.errors import PenstockError
from penstock.state.engines.base import Reader
from penstock.state.files import GroupChanges, prefix_end

# SQLite reads and writes through this cache and maps nothing, so it bounds a run's memory, whatever the run's size.
_CACHE_KIB = 32 * 1024
_PAGE_BYTES = 8192


class CannotSpill(PenstockError):
    """The changes of an epoch exceed the memory limit, and cannot be written to local disk.

    Operator action: free space in the directory for temporary files (environment variable TMPDIR of the workers), or
    raise penstock.state.overlay.memory. No committed state is lost.
    """


class Run:
    """The spilled changes of one subtask in one epoch.

    The file is unlinked from the start, so it disappears when the process ends for any reason.
    """

    # On one core of a 2-core VM, with 500,000 entries (keys of 17 bytes, values of 8 or 100 bytes): 2.1 (2.4) µs per
    # put, 3.5 (5.0) µs per random get, 0.4 µs per entry of a scan; at most 45 MB of memory. LMDB takes 1 µs per get,
    # but keeps changed pages in memory, maps the whole database, and limits keys to 511 bytes.

    def __init__(self) -> None:
        # An empty name opens a database private to this connection, in a file that is unlinked when created.
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in (
            f"page_size={_PAGE_BYTES}",
            f"cache_size=-{_CACHE_KIB}",
            "journal_mode=OFF",
            "synchronous=OFF",
            "locking_mode=EXCLUSIVE",
        ):
            self._db.execute(f"PRAGMA {setting}")
        # A NULL value marks a deleted entry.
        self._db.execute("CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        self._db.execute("CREATE TABLE cleared (prefix BLOB PRIMARY KEY) WITHOUT ROWID")
        self._any_cleared = False

    def put(self, changes: Iterable[GroupChanges]) -> None:
        """Add changes that are newer than all changes added before."""
        with _naming_the_setting():
            self._db.execute("BEGIN")
            for change in changes:
                for prefix in change.cleared:
                    self._clear(prefix)
                self._db.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?)", change.entries)
            self._db.execute("COMMIT")

    def _clear(self, prefix: bytes) -> None:
        self._delete("entries", "key", prefix)
        # No prefix covers another, so only the nearest one before a key can cover it.
        if not self.covers(prefix):
            self._delete("cleared", "prefix", prefix)
            self._db.execute("INSERT INTO cleared VALUES (?)", (prefix,))
            self._any_cleared = True

    def _delete(self, table: str, column: str, prefix: bytes) -> None:
        bounds = _bounds(column, prefix, prefix_end(prefix))
        self._db.execute(f"DELETE FROM {table} WHERE {bounds[0]}", bounds[1])

    def find(self, key: bytes) -> tuple[bytes | None] | None:
        """Return a tuple with the entry's value, or with None if it is deleted; None if the run lacks the entry."""
        found: tuple[bytes | None] | None = self._db.execute(
            "SELECT value FROM entries WHERE key = ?", (key,)
        ).fetchone()
        return found

    def between(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the entries with `start` <= key < `end`, including deleted ones, sorted by key. A `put` invalidates the
        iterator."""
        where, bounds = _bounds("key", start, end)
        return self._db.execute(f"SELECT key, value FROM entries WHERE {where} ORDER BY key", bounds)

    def covers(self, key: bytes) -> bool:
        """Return whether the run clears this key in the layers below."""
        prefix = self._cleared_before(key) if self._any_cleared else None
        return prefix is not None and key.startswith(prefix)

    def cleared(self, start: bytes, end: bytes | None) -> bool | None:
        """Return True if the run clears the complete range in the layers below, False if it clears none of it, and
        None if it depends on the key."""
        if not self._any_cleared:
            return False
        before = self._cleared_before(start)
        if before is not None and start.startswith(before):
            last = prefix_end(before)
            return True if last is None or (end is not None and end <= last) else None
        return None if any(self._prefixes(start, end)) else False

    def _cleared_before(self, key: bytes) -> bytes | None:
        found = self._db.execute(
            "SELECT prefix FROM cleared WHERE prefix <= ? ORDER BY prefix DESC LIMIT 1", (key,)
        ).fetchone()
        return None if found is None else found[0]

    def _prefixes(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes]]:
        where, bounds = _bounds("prefix", start, end)
        return self._db.execute(f"SELECT prefix FROM cleared WHERE {where} ORDER BY prefix", bounds)

    def changes(self) -> Iterator[GroupChanges]:
        """Yield all changes sorted by key group, with one key group at a time in memory."""
        group = -1
        while (following := self._group_after(group)) is not None:
            group = following
            start = group.to_bytes(2, "big")
            end = prefix_end(start)
            cleared = [prefix for (prefix,) in self._prefixes(start, end)]
            yield GroupChanges(group, cleared, list(self.between(start, end)))

    def holds_anything(self) -> bool:
        """Return whether the run contains any changes."""
        return self._group_after(-1) is not None

    def _group_after(self, group: int) -> int | None:
        start = (group + 1).to_bytes(2, "big")
        firsts = [next(self.between(start, None), None), next(self._prefixes(start, None), None)]
        return min((int.from_bytes(first[0][:2], "big") for first in firsts if first is not None), default=None)

    def above(self, below: Reader | None) -> Reader:
        """Return a reader of the current state: the run on top of the replica."""
        return _Layered(self, below)

    def close(self) -> None:
        """Close the database, which deletes it."""
        self._db.close()


class _Layered(Reader):
    """Reader of a run on top of another reader."""

    def __init__(self, run: Run, below: Reader | None) -> None:
        self._run = run
        self._below = below
        self.position = None if below is None else below.position

    def get(self, key: bytes) -> bytes | None:
        found = self._run.find(key)
        if found is not None:
            return found[0]
        if self._below is None or self._run.covers(key):
            return None
        return self._below.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        end = prefix_end(prefix)
        hidden = self._run.cleared(prefix, end)
        below = iter(()) if self._below is None or hidden else self._below.scan(prefix)
        return self._merged(self._run.between(prefix, end), below, hidden is None)

    def between(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        hidden = self._run.cleared(start, end)
        below = iter(()) if self._below is None or hidden else self._below.between(start, end)
        return self._merged(self._run.between(start, end), below, hidden is None)

    def _merged(
        self, above: Iterator[tuple[bytes, bytes | None]], below: Iterator[tuple[bytes, bytes]], some_hidden: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        head = next(above, None)
        for key, value in below:
            while head is not None and head[0] < key:
                if head[1] is not None:
                    yield head[0], head[1]
                head = next(above, None)
            if head is not None and head[0] == key:
                if head[1] is not None:
                    yield key, head[1]
                head = next(above, None)
            elif not some_hidden or not self._run.covers(key):
                yield key, value
        while head is not None:
            if head[1] is not None:
                yield head[0], head[1]
            head = next(above, None)


def _bounds(column: str, start: bytes, end: bytes | None) -> tuple[str, tuple[bytes, ...]]:
    if end is None:
        return f"{column} >= ?", (start,)
    return f"{column} >= ? AND {column} < ?", (start, end)


@contextmanager
def _naming_the_setting() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise CannotSpill(
            f"The changes of this epoch exceed penstock.state.overlay.memory, and cannot be spilled to local disk: "
            f"{error}.",
            fix="Free space in the workers' temporary directory (TMPDIR), or raise penstock.state.overlay.memory.",
        ) from error
