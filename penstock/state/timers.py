"""Timers as state: entries ordered by time, in the same deltas, replicas and bases as all other state.

Entry key: `key group · state id · time · length of the key · key · namespace`, with an empty value. The timers of a key
group form one range ordered by time, so due timers are at its start. The manifest records the earliest time per block:
an epoch in which no timer is due reads nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.state.entries import key_hash, state_id
from penstock.state.files import GroupChanges
from penstock.state.weight import sample, weigh

if TYPE_CHECKING:
    from penstock.state.overlay import Overlay

_RANGE = struct.Struct(">HI")
_TIME = struct.Struct(">QI")
_BARE_TIME = struct.Struct(">Q")
_BIAS = 2**63
"""Added to a time, which makes negative times sort before positive ones."""

NEVER = 2**63
"""The earliest time if no timer exists: later than any time."""

_PORTION = 32_768
"""Stored timers that are loaded into memory at once. A portion can end between two timers of the same time."""
_LAST = 2**63 - 1
"""The time up to which timers fire at the end of the input."""
_FURTHER, _FURTHER_EACH = 250_000, 100
"""Timers that firing timers can set for the same time step: this many, or this many per timer set before the step.
Firing every second for a day, for one key, stays below the limit."""
_BETWEEN_LOOKS = 1024
"""Timers that fire between checks of the overlay's size."""

Timer = tuple[int, bytes, bytes]
"""Time, key and namespace. A plain tuple, because a windowed stream creates one for every record."""


_TIMER_BYTES, _PLACE_BYTES = 220, 60
"""Approximate memory of a timer, and of its slot in a set."""


class EndlessTimers(PenstockError):
    """Firing timers keep setting further timers, so time never advances.

    Operator action: set the next timer later than the one that fires.
    """

    retryable = False


class Timers:
    """The timers of one kind (event time or processing time) of one operator subtask.

    Order of calls: `begin` at the start of each epoch; then `register`, `delete` and `due` as records arrive and time
    advances; at the end `drain` into the delta, and `least`.
    """

    def __init__(self, overlay: Overlay, kind: str) -> None:
        self._overlay = overlay
        self._id = state_id(f"_timers {kind}")
        self._is_firing = False
        self.begin({}, range(0))

    def begin(self, least: dict[int, int], groups: range) -> None:
        """Start an epoch.

        Args:
            least: A lower bound of the time of the stored timers, by block.
            groups: The key groups of this subtask.
        """
        self._groups = groups
        blocks = self._overlay.blocks.touching(groups)
        self._stored_least = {block: time for block, time in least.items() if block in blocks}
        self._stored_first = min(self._stored_least.values(), default=NEVER)
        self._horizon = -_BIAS - 1
        """All stored timers up to this time are in memory."""
        self._heap: list[Timer] = []
        self._live: set[Timer] = set()
        """The timers in memory that have neither fired nor been deleted."""
        self._new: set[Timer] = set()
        self._gone: set[Timer] = set()
        self._uncertain: set[int] = set()
        """Blocks whose earliest stored timer was deleted."""
        self._new_least: dict[int, int] = {}
        self._streams: dict[int, _Stored] = {}
        self._until = self._firing = -_BIAS
        self._further: set[Timer] = set()
        """Timers that were set by timers of the time step now firing."""
        self._partly: int | None = None
        """A time of which only some stored timers might be in memory."""

    def restart(self) -> None:
        """Start over from the drained timers, after a `drain` in the middle of an epoch."""
        least = self.least()
        for timer in filter(self._live.__contains__, self._heap):
            block = self._block(timer[1])
            least[block] = min(timer[0], least.get(block, NEVER))
        self.begin(least, self._groups)

    def weight(self) -> int:
        """Return the approximate memory that this epoch's timers take, in bytes."""
        chosen = [weigh(timer) for timer in sample(self._heap)] or [_TIMER_BYTES]
        live, gone = len(self._live), len(self._gone)
        return (live + gone) * (sum(chosen) // len(chosen)) + (live + gone + len(self._new)) * _PLACE_BYTES

    def register(self, time: int, namespace: bytes = b"") -> None:
        """Set a timer for the current key. Setting an existing timer has no effect."""
        key = self._overlay.key or self._overlay.current_key("timers")
        timer = time, key, namespace
        if timer not in self._live:
            self._live.add(timer)
            self._new.add(timer)
            self._gone.discard(timer)
            heappush(self._heap, timer)
        if self._is_firing and (time <= self._firing or self._until == _LAST):
            # At the end of the input, time does not limit a timer that keeps setting the next one. Neither does it
            # limit a timer that sets another one for no later time.
            self._further.add(timer)

    def ensure(self, time: int, namespace: bytes = b"") -> None:
        """Set a timer unless it is already stored. Unlike `register`, this reads first and never rewrites a timer."""
        key = self._overlay.key or self._overlay.current_key("timers")
        timer = time, key, namespace
        if timer in self._live:
            return
        if timer not in self._gone:
            group = key_hash(key) % self._overlay.max_parallelism
            reader = self._overlay.reader(group)
            if reader is not None and reader.get(self._entry(group, timer)) is not None:
                return
        self.register(time, namespace)

    def delete(self, time: int, namespace: bytes = b"") -> None:
        """Delete a timer of the current key, if it exists."""
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
        """Return whether `due` might yield a timer. This is cheap, because a watermark can follow every record."""
        return self._stored_first <= until or (bool(self._heap) and self._heap[0][0] <= until)

    def due(self, until: int) -> Iterator[Timer]:
        """Yield and remove every timer up to `until` in order of time, including those registered meanwhile.

        Request the next timer only between records, because the overlay can spill then.
        """
        self._until, fired, fired_further = until, 0, 0
        self._is_firing = True
        try:
            while self._load_due(until):
                heap, live, further = self._heap, self._live, self._further
                while heap and heap[0][0] <= until and (self._stored_first > heap[0][0] or heap[0][0] == self._partly):
                    timer = heappop(heap)
                    if timer in live:
                        live.discard(timer)
                        self._new.discard(timer)
                        self._gone.add(timer)
                        if further and timer in further:
                            further.discard(timer)
                            fired_further += 1
                            if fired_further > _FURTHER and fired_further > _FURTHER_EACH * (fired - fired_further):
                                raise self._endless(fired_further)
                        self._firing = timer[0]
                        yield timer
                        fired += 1
                        if fired % _BETWEEN_LOOKS == 0:
                            self._overlay.grown(0, _BETWEEN_LOOKS)
                            break
        finally:
            self._further.clear()
            self._is_firing = False
        self._horizon = max(self._horizon, until)

    def _endless(self, fired: int) -> EndlessTimers:
        if self._until == _LAST:
            when, until = "at the end of the input", "once the current watermark is 2**63 - 1: no record follows it"
        else:
            when, until = f"at {self._until}", "for a time that is not later than that of the firing timer"
        return EndlessTimers(
            f"Firing timers keep setting further timers {when}: {fired} of these have fired, the last one for "
            f"{self._firing}.",
            fix=f"Do not set a timer {until}.",
        )

    def _load_due(self, until: int) -> bool:
        """Load the first timer up to `until` into memory, and return whether one exists."""
        heap = self._heap
        while self._stored_first <= until and (
            not heap or self._stored_first < heap[0][0] or self._stored_first == heap[0][0] != self._partly
        ):
            for timer in self._next_stored(until):
                self._live.add(timer)
                heappush(heap, timer)
        return bool(heap) and heap[0][0] <= until

    def take(self, until: int) -> tuple[list[Timer], int]:
        """Remove and return the first timers up to `until`, unordered, and the time up to which they are complete.

        Cheaper than `due`. All timers before the returned time are included. Call again while `is_due`.
        """
        taken = self._next_stored(until) if self._stored_first <= until else []
        until = min(until, self._stored_first)
        self._horizon = max(self._horizon, min(until, self._stored_first - 1))
        heap, live = self._heap, self._live
        while heap and heap[0][0] <= until:
            timer = heappop(heap)
            if timer in live:
                live.discard(timer)
                self._new.discard(timer)
                taken.append(timer)
        self._gone.update(taken)
        return taken, until

    def is_stored(self, time: int, group: int) -> bool:
        """Return whether a key group has stored timers of exactly this time."""
        reader = self._overlay.reader(group)
        return reader is not None and any(reader.scan(_RANGE.pack(group, self._id) + _BARE_TIME.pack(time + _BIAS)))

    def _next_stored(self, until: int) -> list[Timer]:
        """Return the first stored timers up to `until` that are neither in memory nor deleted, without duplicates, in
        order of time; at most `_PORTION`."""
        gone, live = self._gone, self._live
        blocks = [block for block, least in self._stored_least.items() if least <= until]
        streams = [stream for block in blocks for stream in self._streams_of(block)]
        heads = [(stream.head[0], place) for place, stream in enumerate(streams) if stream.head is not None]
        heapify(heads)
        found: list[Timer] = []
        while heads and heads[0][0] <= until and len(found) < _PORTION:
            time, place = heappop(heads)
            stream = streams[place]
            while stream.head is not None and stream.head[0] == time and len(found) < _PORTION:
                timer = stream.head
                stream.next()
                if timer not in gone and timer not in live:
                    found.append(timer)
            if stream.head is not None:
                heappush(heads, (stream.head[0], place))
        for block in blocks:
            self._stored_least[block] = self._first(block)
        self._stored_first = min(self._stored_least.values(), default=NEVER)
        self._partly = self._stored_first if len(found) == _PORTION else None
        self._horizon = max(self._horizon, min(until, self._stored_first - 1))
        return found

    def _streams_of(self, block: int) -> list[_Stored]:
        """Return one stream per key group of the block that belongs to this subtask. Streams keep their position."""
        streams = []
        for group in self._overlay.blocks.groups(block):
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
        """Add this epoch's new and removed timers to the changes of their key groups."""
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
        """Return the time of the earliest timer per block at the end of the epoch; blocks without timers are missing.

        Call it after `drain`. If two subtasks share a block, the time can be that of a timer that the other subtask
        deleted. It is then too early, which costs one read, but never too late.
        """
        for block in self._uncertain:
            for stream in self._streams_of(block):
                while stream.head is not None and stream.head in self._gone:
                    stream.next()
            self._stored_least[block] = self._first(block)
        least = dict(self._stored_least)
        for group, time in self._new_least.items():
            block = self._overlay.blocks.of(group)
            least[block] = min(time, least.get(block, NEVER))
        return {block: time for block, time in least.items() if time != NEVER}

    def _entry(self, group: int, timer: Timer) -> bytes:
        time, key, namespace = timer
        return _RANGE.pack(group, self._id) + _TIME.pack(time + _BIAS, len(key)) + key + namespace

    def _block(self, key: bytes) -> int:
        return self._overlay.blocks.of(key_hash(key) % self._overlay.max_parallelism)


class _Stored:
    """The stored timers of one key group in ascending order; `head` is the next one."""

    def __init__(self, entries: Iterator[tuple[bytes, bytes]]) -> None:
        self._entries = entries
        self.head: Timer | None = None
        self.next()

    def next(self) -> None:
        """Advance to the next timer."""
        entry = next(self._entries, None)
        if entry is None:
            self.head = None
        else:
            key = entry[0]
            time, length = _TIME.unpack_from(key, _RANGE.size)
            start = _RANGE.size + _TIME.size
            self.head = time - _BIAS, key[start : start + length], key[start + length :]
