"""Incremental clean-up: a walk through a state's stored entries, a few in each epoch.

How far it goes follows from how often the state was accessed in the epoch, and where it goes on is an entry of the
state, so an epoch that is run again, in whatever process, removes the same. A walk that got through knows the oldest
entry it left, and none is begun before that one expires: where nothing can have expired, nothing is read.
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
"""Whether by event time, the time of the oldest entry left, and where the subtask's key groups end; behind it the entry
where the walk goes on, or nothing if it got through."""


class Cleaner:
    """Of one state of one operator subtask."""

    def __init__(self, state: TimedState, name: str, size: int, every_record: bool) -> None:
        self.state = state
        self._cursor = state_id(cursor_name(name))
        self._size = size
        self._every_record = every_record

    def clean(self, overlay: Overlay, groups: range) -> None:
        """At the end of an epoch: go on from where the last one stopped."""
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
        # What is written while the walk is under way is not older than its beginning.
        oldest, stopped = self._walk(overlay, self._ranges(groups, start), steps, min(oldest, now))
        after = _CURSOR.pack(state.form.event_time, oldest, groups.stop) + stopped
        if after != before:
            state.cursor = groups.start, at, after

    def _walk(
        self, overlay: Overlay, ranges: Iterator[tuple[bytes, bytes]], steps: int, oldest: int
    ) -> tuple[int, bytes]:
        """The time of the oldest entry seen and left, or `oldest`; and where it stopped, nothing if it got through."""
        state = self.state
        now = state.now()
        for start, end in ranges:
            # An empty range is a step too: it has to be looked for.
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
        """The ranges of the state's entries in the subtask's key groups, from `start` on."""
        numbers = [self.state.number.to_bytes(4, "big")]
        if self.state.form.since is not None:
            numbers.append(self.state.unstamped)
        for prefix in sorted(group.to_bytes(2, "big") + number for group in groups for number in numbers):
            end = prefix_end(prefix)
            # A key group has two bytes of which the first is never 255.
            assert end is not None
            if end > start:
                yield max(prefix, start), end


def cursor_name(name: str) -> str:
    """What the number of the entry is made of that says where a state's clean-up goes on."""
    return f"{name}\0ttl cursor"
