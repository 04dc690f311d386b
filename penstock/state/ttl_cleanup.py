"""Incremental cleanup: scan a state's stored entries, a few per epoch.

The number of entries depends on how often the state was accessed in the epoch, and the position of the scan is stored
as an entry of the state. An epoch that runs again, in any process, therefore removes the same entries. A completed scan
records the oldest entry it left, and the next scan starts only when that entry expires: if nothing can have expired,
nothing is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.state.entries import HEADER, state_id
from penstock.state.files import prefix_end
from penstock.state.ttl import UNKNOWN
from penstock.state.ttl_reader import with_time

if TYPE_CHECKING:
    from penstock.state.overlay import Overlay
    from penstock.state.ttl_states import TimedState

_CURSOR = struct.Struct(">?qI")
"""Whether the clock is event time, the time of the oldest remaining entry, and the end of the subtask's key groups;
followed by the entry at which the scan continues, or nothing if it is complete."""


class Cleaner:
    """Incremental cleanup of one state of one operator subtask."""

    def __init__(self, state: TimedState, name: str, size: int, every_record: bool) -> None:
        self.state = state
        self._cursor = state_id(cursor_name(name))
        self._size = size
        self._every_record = every_record

    def clean(self, overlay: Overlay, groups: range) -> None:
        """Continue the scan at the end of an epoch."""
        state = self.state
        steps = self._size * (state.accesses + (overlay.records if self._every_record else 0))
        now = state.now()
        reader = overlay.reader(groups.start) if steps and groups and now != UNKNOWN else None
        if reader is None:
            return
        at = HEADER.pack(groups.start, self._cursor, 0)
        before = reader.get(at)
        oldest, start = now, b""
        if before is not None:
            by_event_time, time, stop = _CURSOR.unpack_from(before)
            if by_event_time is state.form.event_time and stop == groups.stop:
                start = before[_CURSOR.size :]
                if start:
                    oldest = time
                elif not state.is_expired_at(time, now):
                    return
        # Entries written during the scan are not older than its start.
        oldest, stopped = self._walk(overlay, self._ranges(groups, start), steps, min(oldest, now))
        after = _CURSOR.pack(state.form.event_time, oldest, groups.stop) + stopped
        if after != before:
            state.cursor = groups.start, at, after

    def _walk(
        self, overlay: Overlay, ranges: Iterator[tuple[bytes, bytes]], steps: int, oldest: int
    ) -> tuple[int, bytes]:
        """Return the time of the oldest remaining entry, at most `oldest`, and the entry at which the scan stopped, or
        nothing if it is complete."""
        state = self.state
        now = state.now()
        for start, end in ranges:
            # An empty range counts as a step, because it has to be looked up.
            if not steps:
                return oldest, start
            steps -= 1
            reader = overlay.reader(int.from_bytes(start[:2], "big"))
            if reader is None:
                continue
            unstamped = start[2:6] == state.unstamped
            for entry, data in reader.between(start, end):
                if not steps:
                    return oldest, entry
                steps -= 1
                stamped = with_time(data, state.form) if unstamped else data
                expired = False
                for time in state.times_of(stamped):
                    if state.is_expired_at(time, now):
                        expired = True
                    elif UNKNOWN != time < oldest:
                        oldest = time
                if expired:
                    key_end = HEADER.size + HEADER.unpack_from(entry)[2]
                    state.look_at(entry[HEADER.size : key_end], entry[key_end:], stamped)
        return oldest, b""

    def _ranges(self, groups: range, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the ranges of the state's entries in the subtask's key groups, from `start` on."""
        numbers = [self.state.number.to_bytes(4, "big")]
        if self.state.form.since is not None:
            numbers.append(self.state.unstamped)
        for prefix in sorted(group.to_bytes(2, "big") + number for group in groups for number in numbers):
            end = prefix_end(prefix)
            # The first of the two bytes of a key group is never 255.
            assert end is not None
            if end > start:
                yield max(prefix, start), end


def cursor_name(name: str) -> str:
    """Return the name from which the state id of the cleanup position is derived."""
    return f"{name}\0ttl cursor"
