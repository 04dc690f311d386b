"""Incremental clean-up: a walk through a state's stored entries, a few in each epoch.

How far it goes follows from how often the state was accessed in the epoch, and where it goes on is an entry of the
state, so an epoch that is run again, in whatever process, removes the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.state.entries import HEADER, state_id
from penstock.state.files import GroupChanges, prefix_end
from penstock.state.ttl_reader import with_time

if TYPE_CHECKING:
    from penstock.state.overlay import Overlay
    from penstock.state.ttl_states import TimedState


class Cleaner:
    """Of one state of one operator subtask."""

    def __init__(self, state: TimedState, name: str, size: int, every_record: bool) -> None:
        self.state = state
        self._cursor = state_id(cursor_name(name))
        self._size = size
        self._every_record = every_record

    def clean(self, overlay: Overlay, groups: range, groups_changed: dict[int, GroupChanges]) -> None:
        """At the end of an epoch: go on from where the last walk stopped, at most once around."""
        state = self.state
        steps = self._size * (state.accesses + (overlay.records if self._every_record else 0))
        if not steps or not groups:
            return
        at = HEADER.pack(groups.start, self._cursor, 0)
        reader = overlay.reader(groups.start)
        if reader is None:
            return
        before = reader.get(at)
        stopped = self._walk(overlay, self._ranges(groups, before), steps)
        if stopped != before:
            changes = groups_changed.setdefault(groups.start, GroupChanges(groups.start, [], []))
            changes.entries.append((at, stopped))

    def _walk(self, overlay: Overlay, ranges: Iterator[tuple[bytes, bytes]], steps: int) -> bytes | None:
        """Where it stopped; None if it got through."""
        state = self.state
        for start, end in ranges:
            reader = overlay.reader(int.from_bytes(start[:2], "big"))
            # An empty range is a step too: it has to be looked for.
            if not steps:
                return start
            steps -= 1
            if reader is None or start >= end:
                continue
            unstamped = start[2:6] == state.unstamped
            for entry, data in reader.between(start, end):
                if not steps:
                    return entry
                steps -= 1
                key_end = HEADER.size + HEADER.unpack_from(entry)[2]
                stamped = with_time(data, state.form) if unstamped else data
                state.look_at(entry[HEADER.size : key_end], entry[key_end:], stamped)
        return None

    def _ranges(self, groups: range, start: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """The ranges of the state's entries in the subtask's key groups, once around from `start`."""
        numbers = [self.state.number.to_bytes(4, "big")]
        if self.state.form.since is not None:
            numbers.append(self.state.unstamped)
        prefixes = [group.to_bytes(2, "big") + number for group in groups for number in numbers]
        first = next((place for place, prefix in enumerate(prefixes) if start and start.startswith(prefix)), None)
        if first is None or start is None:
            yield from ((prefix, _end(prefix)) for prefix in prefixes)
            return
        yield start, _end(prefixes[first])
        yield from ((prefix, _end(prefix)) for prefix in prefixes[first + 1 :] + prefixes[:first])
        yield prefixes[first], start


def cursor_name(name: str) -> str:
    """What the number of the entry is made of that says where a state's clean-up goes on."""
    return f"{name}\0ttl cursor"


def _end(prefix: bytes) -> bytes:
    end = prefix_end(prefix)
    # A key group has two bytes of which the first is never 255.
    assert end is not None
    return end
