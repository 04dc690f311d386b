"""Timers as state: entries ordered by time, in the same deltas, replicas and bases as all other state.

Entry key: `key group · state id · time · length of the key · key · namespace`, with an empty value. A key group's
timers are one range in the order of their times, so what is due is its beginning. The least time of each block is kept
in the manifest: an epoch in which nothing is due reads nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from penstock.state.entries import key_hash, state_id
from penstock.state.files import GroupChanges
from penstock.state.key_groups import block_of, block_range, blocks_of_range

if TYPE_CHECKING:
    from penstock.state.overlay import Overlay

_RANGE = struct.Struct(">HI")
_TIME = struct.Struct(">QI")
_BARE_TIME = struct.Struct(">Q")
_BIAS = 2**63
"""Added to a time, so that negative ones sort before the others."""

NEVER = 2**63
"""The least time where there is no timer: after every time."""

Timer = tuple[int, bytes, bytes]
"""Time, key and namespace. Plain tuples: one is made for every record of a windowed stream."""


class Timers:
    """The timers of one kind (event time or processing time) of one operator subtask.

    Order of calls: `begin` with each epoch, then `register`, `delete` and `due` as records and time come, at the end
    `drain` into the delta and `least`.
    """

    def __init__(self, overlay: Overlay, kind: str) -> None:
        self._overlay = overlay
        self._id = state_id(f"_timers {kind}")
        self.begin({}, range(0))

    def begin(self, least: dict[int, int], groups: range) -> None:
        """`least`: by block, a time before which no stored timer is. `groups`: the key groups of this subtask."""
        self._groups = groups
        blocks = blocks_of_range(groups.start, groups.stop, self._overlay.max_parallelism)
        self._stored_least = {block: time for block, time in least.items() if block in blocks}
        self._stored_first = min(self._stored_least.values(), default=NEVER)
        self._horizon = -_BIAS - 1
        """Stored timers up to this time are in memory."""
        self._heap: list[Timer] = []
        self._live: set[Timer] = set()
        """Of those in memory, the ones that have neither fired nor been deleted."""
        self._new: set[Timer] = set()
        self._gone: set[Timer] = set()
        self._uncertain: set[int] = set()
        """Blocks whose least stored timer was deleted."""
        self._new_least: dict[int, int] = {}
        self._streams: dict[int, _Stored] = {}

    def register(self, time: int, namespace: bytes = b"") -> None:
        """For the current key. A timer that is there already stays one."""
        key = self._overlay.key or self._overlay.current_key("timers")
        timer = time, key, namespace
        if timer not in self._live:
            self._live.add(timer)
            self._new.add(timer)
            self._gone.discard(timer)
            heappush(self._heap, timer)

    def delete(self, time: int, namespace: bytes = b"") -> None:
        key = self._overlay.key or self._overlay.current_key("timers")
        timer = time, key, namespace
        self._live.discard(timer)
        self._new.discard(timer)
        self._gone.add(timer)
        if time > self._horizon:
            block = self._block(key)
            if time <= self._stored_least.get(block, NEVER):
                self._uncertain.add(block)

    def is_due(self, until: int) -> bool:
        """Whether `due` may have something to give. Cheap: a watermark may follow every record."""
        return self._stored_first <= until or (bool(self._heap) and self._heap[0][0] <= until)

    def due(self, until: int) -> Iterator[Timer]:
        """Every timer up to `until`, in the order of time; those registered meanwhile too. Each is gone when given."""
        if until > self._horizon:
            self._load(until)
            self._horizon = until
        heap, live = self._heap, self._live
        while heap and heap[0][0] <= until:
            timer = heappop(heap)
            if timer in live:
                live.discard(timer)
                self._new.discard(timer)
                self._gone.add(timer)
                yield timer

    def take(self, until: int) -> list[Timer]:
        """As `due`, but all at once and in no order, which is cheaper."""
        taken = []
        if until > self._horizon:
            taken = list(self._stored(until))
            self._horizon = until
        heap, live = self._heap, self._live
        while heap and heap[0][0] <= until:
            timer = heappop(heap)
            if timer in live:
                live.discard(timer)
                self._new.discard(timer)
                taken.append(timer)
        self._gone.update(taken)
        return taken

    def is_stored(self, time: int, group: int) -> bool:
        """Whether a key group has stored timers of this very time."""
        reader = self._overlay.reader(group)
        return reader is not None and any(reader.scan(_RANGE.pack(group, self._id) + _BARE_TIME.pack(time + _BIAS)))

    def _load(self, until: int) -> None:
        """Take the stored timers up to `until` into memory."""
        for timer in self._stored(until):
            self._live.add(timer)
            heappush(self._heap, timer)

    def _stored(self, until: int) -> Iterator[Timer]:
        """The stored timers up to `until` that are not in memory and were not deleted, each once, in no order."""
        gone, live = self._gone, self._live
        for block, least in self._stored_least.items():
            if least <= until:
                for stream in self._streams_of(block):
                    while stream.head is not None and stream.head[0] <= until:
                        timer = stream.head
                        stream.next()
                        if timer not in gone and timer not in live:
                            yield timer
                self._stored_least[block] = self._first(block)
        self._stored_first = min(self._stored_least.values(), default=NEVER)

    def _streams_of(self, block: int) -> list[_Stored]:
        """One for each key group of the block that is this subtask's; each goes on where it was."""
        streams = []
        for group in block_range(block, self._overlay.max_parallelism):
            reader = self._overlay.reader(group) if group in self._groups else None
            if reader is not None:
                stream = self._streams.get(group)
                if stream is None:
                    stream = self._streams[group] = _Stored(reader.scan(_RANGE.pack(group, self._id)))
                streams.append(stream)
        return streams

    def _first(self, block: int) -> int:
        heads = [stream.head[0] for stream in self._streams_of(block) if stream.head is not None]
        return min(heads, default=NEVER)

    def drain(self, groups: dict[int, GroupChanges]) -> None:
        maximum = self._overlay.max_parallelism
        least: dict[int, int] = {}
        for timers, value in ((self._new, b""), (self._gone, None)):
            for time, key, namespace in timers:
                group = key_hash(key) % maximum
                changes = groups.get(group)
                if changes is None:
                    changes = groups[group] = GroupChanges(group, [], [])
                entry = _RANGE.pack(group, self._id) + _TIME.pack(time + _BIAS, len(key)) + key + namespace
                changes.entries.append((entry, value))
                if value is not None and time < least.get(group, NEVER):
                    least[group] = time
        self._new_least = least

    def least(self) -> dict[int, int]:
        """By block, the time of its first timer at the end of the epoch; after `drain`. Others have no timers.

        Where two subtasks share a block, it may be the time of a timer that the other one deleted: too early, which
        costs a look, never too late.
        """
        maximum = self._overlay.max_parallelism
        for block in self._uncertain:
            for stream in self._streams_of(block):
                while stream.head is not None and stream.head in self._gone:
                    stream.next()
            self._stored_least[block] = self._first(block)
        least = dict(self._stored_least)
        for group, time in self._new_least.items():
            block = block_of(group, maximum)
            least[block] = min(time, least.get(block, NEVER))
        return {block: time for block, time in least.items() if time != NEVER}

    def _block(self, key: bytes) -> int:
        maximum = self._overlay.max_parallelism
        return block_of(key_hash(key) % maximum, maximum)


class _Stored:
    """The timers of one key group in its replica, first to last; `head` is the next one."""

    def __init__(self, entries: Iterator[tuple[bytes, bytes]]) -> None:
        self._entries = entries
        self.head: Timer | None = None
        self.next()

    def next(self) -> None:
        entry = next(self._entries, None)
        if entry is None:
            self.head = None
        else:
            key = entry[0]
            time, length = _TIME.unpack_from(key, _RANGE.size)
            start = _RANGE.size + _TIME.size
            self.head = time - _BIAS, key[start : start + length], key[start + length :]
