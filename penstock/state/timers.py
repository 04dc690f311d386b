"""Timers as state: entries ordered by time, in the same deltas, replicas and bases as all other state.

Entry key: `key group · state id · time · length of the key · key · namespace`, with an empty value. A key group's
timers are one range in the order of their times, so what is due is its beginning. The least time of each block is kept
in the manifest: an epoch in which nothing is due reads nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.state.entries import key_hash, state_id
from penstock.state.files import GroupChanges
from penstock.state.key_groups import block_of, block_range, blocks_of_range
from penstock.state.weight import sample, weigh

if TYPE_CHECKING:
    from penstock.state.overlay import Overlay

_RANGE = struct.Struct(">HI")
_TIME = struct.Struct(">QI")
_BARE_TIME = struct.Struct(">Q")
_BIAS = 2**63
"""Added to a time, so that negative ones sort before the others."""

NEVER = 2**63
"""The least time where there is no timer: after every time."""

_PORTION = 32_768
"""Stored timers that are taken into memory at once. Where not all of one time are, the others of it come after them."""
_LAST = 2**63 - 1
"""The time up to which timers fire at the end of the input."""
_FURTHER, _FURTHER_EACH = 250_000, 100
"""Timers that timers may set for the same step of time: so many, or so many for each that was set before it. A day of
seconds for one key is less."""
_BETWEEN_LOOKS = 1024
"""Timers that fire before the overlay is asked whether it has become too large."""

Timer = tuple[int, bytes, bytes]
"""Time, key and namespace. Plain tuples: one is made for every record of a windowed stream."""


_TIMER_BYTES, _PLACE_BYTES = 220, 60
"""About what a timer takes, and its place in a set."""


class EndlessTimers(PenstockError):
    """Timers set further timers, without end, and so keep time from going on."""

    retryable = False


class Timers:
    """The timers of one kind (event time or processing time) of one operator subtask.

    Order of calls: `begin` with each epoch, then `register`, `delete` and `due` as records and time come, at the end
    `drain` into the delta and `least`.
    """

    def __init__(self, overlay: Overlay, kind: str) -> None:
        self._overlay = overlay
        self._id = state_id(f"_timers {kind}")
        self._is_firing = False
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
        self._until = self._firing = -_BIAS
        self._further: set[Timer] = set()
        """Those that timers set for the step of time that fires them."""
        self._partly: int | None = None
        """A time of which some stored timers are in memory, and some may not be."""

    def restart(self) -> None:
        """After a `drain` in the middle of an epoch: begin anew, on what was drained."""
        least = self.least()
        for timer in filter(self._live.__contains__, self._heap):
            block = self._block(timer[1])
            least[block] = min(timer[0], least.get(block, NEVER))
        self.begin(least, self._groups)

    def weight(self) -> int:
        """About the bytes of memory that this epoch's timers take."""
        chosen = [weigh(timer) for timer in sample(self._heap)] or [_TIMER_BYTES]
        live, gone = len(self._live), len(self._gone)
        return (live + gone) * (sum(chosen) // len(chosen)) + (live + gone + len(self._new)) * _PLACE_BYTES

    def register(self, time: int, namespace: bytes = b"") -> None:
        """For the current key. A timer that is there already stays one."""
        key = self._overlay.key or self._overlay.current_key("timers")
        timer = time, key, namespace
        if timer not in self._live:
            self._live.add(timer)
            self._new.add(timer)
            self._gone.discard(timer)
            heappush(self._heap, timer)
        if self._is_firing and (time <= self._firing or self._until == _LAST):
            # At the end of the input, where there is no time to wait for, one timer that sets the next would never
            # come to an end; nor would one that sets another for no later time.
            self._further.add(timer)

    def ensure(self, time: int, namespace: bytes = b"") -> None:
        """As `register`, but looks first: a timer that is stored is not written again."""
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
        """Every timer up to `until`, in the order of time; those registered meanwhile too. Each is gone when given.

        Whoever reads this has no record under way when it asks for the next one: the overlay may spill then.
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
            when, until = "at the end of the input", "once the current watermark is 2**63 - 1: no record follows then"
        else:
            when, until = f"at {self._until}", "for a time that is not later than the one that fires"
        return EndlessTimers(
            f"Timers that fire set further timers without end, {when}: {fired} of those have fired, the last one for "
            f"{self._firing}.",
            fix=f"Set no timer {until}.",
        )

    def _load_due(self, until: int) -> bool:
        """See that the first timer up to `until` is in memory; whether there is one."""
        heap = self._heap
        while self._stored_first <= until and (
            not heap or self._stored_first < heap[0][0] or self._stored_first == heap[0][0] != self._partly
        ):
            for timer in self._next_stored(until):
                self._live.add(timer)
                heappush(heap, timer)
        return bool(heap) and heap[0][0] <= until

    def take(self, until: int) -> tuple[list[Timer], int]:
        """The first of the timers up to `until`, in no order, which is cheaper than `due`; each is gone when given.
        And how far they go: all that are earlier are among them. Ask again while anything `is_due`."""
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
        """Whether a key group has stored timers of this very time."""
        reader = self._overlay.reader(group)
        return reader is not None and any(reader.scan(_RANGE.pack(group, self._id) + _BARE_TIME.pack(time + _BIAS)))

    def _next_stored(self, until: int) -> list[Timer]:
        """The first stored timers up to `until` that are not in memory and were not deleted, each once, in the order
        of time; at most `_PORTION`."""
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

    def _entry(self, group: int, timer: Timer) -> bytes:
        time, key, namespace = timer
        return _RANGE.pack(group, self._id) + _TIME.pack(time + _BIAS, len(key)) + key + namespace

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
