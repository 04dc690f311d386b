"""The window operator of most jobs: fixed event-time windows that fire once, with one accumulator each.

It produces the same results and state as WindowOperator. However, accumulators stay decoded until the epoch ends, and a
window that opens and ends within an epoch does not touch state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.pickling import Frozen
from penstock.common.typeinfo import PickledBytesTypeInfo
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.operators import Emit, EpochInfo
from penstock.runtime.sharing import independent
from penstock.runtime.watermarks import GREATEST, LEAST
from penstock.runtime.windows.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.runtime.windows.contents import NAME, Accumulated
from penstock.runtime.windows.operator import NO_END_TIMERS, WindowDescription, WindowOperator
from penstock.runtime.windows.triggers import EventTimeTrigger
from penstock.runtime.windows.window import NAME_LENGTH, TimeWindow, TimeWindowSerializer
from penstock.state.entries import StateError, key_hash
from penstock.state.overlay import Overlay
from penstock.state.serializers import Hinted, serializer_for
from penstock.state.timers import Timer
from penstock.state.weight import MEMBER_BYTES, weigh


class _Pane(dict[bytes, Any]):
    """The accumulators of one window, by key, for the keys touched in this epoch."""

    def __init__(self, window: TimeWindow, name: bytes) -> None:
        super().__init__()
        self.window = window
        self.name = name
        self.groups: dict[int, bool] = {}
        """For each key group touched: whether state holds accumulators of the window."""
        self.stored: set[bytes] = set()
        """Keys that the window had before this epoch; they have an accumulator and a timer in state."""


_LATE = _Pane(TimeWindow(0, 0), b"")


class PaneOperator(WindowOperator):
    """Runs tumbling and sliding event-time windows with a reduce or aggregate function and default settings."""

    @staticmethod
    def runs(description: WindowDescription) -> bool:
        return (
            type(description.assigner) in (TumblingEventTimeWindows, SlidingEventTimeWindows)
            and type(description.trigger) is EventTimeTrigger
            and description.evictor is None
            and description.combiner is not None
            and description.allowed_lateness == 0
        )

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        described = self.described
        assert isinstance(described.assigner, (TumblingEventTimeWindows, SlidingEventTimeWindows))
        assert isinstance(self.contents, Accumulated)
        assert described.combiner is not None
        assert self.overlay is not None
        self._state = self.contents.state
        self._size, self._offset = described.assigner.size, described.assigner.offset
        self._slide = getattr(described.assigner, "slide", self._size)
        combiner = described.combiner
        self._start, self._result, self._aggregates = combiner.first, combiner.result, combiner.aggregates
        self._add_to = combiner.function.add if combiner.aggregates else combiner.merge
        self._maximum = self.overlay.max_parallelism
        self._timers = self.overlay.timers["EVENT_TIME"]
        # Convert to the declared type immediately, as storing would: results must not depend on epoch boundaries.
        declared = described.value_type
        self._bend = None
        if declared is not None and not isinstance(declared, (Hinted, PickledBytesTypeInfo)):
            serializer = serializer_for(declared)
            self._bend, self._exact = _naming_the_state(serializer.check), serializer.exact
        self._panes: dict[int, _Pane] = {}
        """Panes by the start of their windows."""
        self._first_end = GREATEST
        """The earliest end of their windows."""
        self._former = False
        """Whether state can hold windows that an earlier version of the program kept differently."""
        self._serializer = TimeWindowSerializer()
        self.overlay.hold(self)

    def begin_epoch(self, epoch: EpochInfo) -> None:
        super().begin_epoch(epoch)
        self._panes = {}
        self._first_end = GREATEST
        overlay = self.overlay
        assert overlay is not None
        self._former = (
            overlay.is_stored(NO_END_TIMERS.name)
            or bool(overlay.unclaimed(self.scopes.trigger.name))
            or overlay.timers["PROCESSING_TIME"].is_due(GREATEST)
        )

    # -- records -------------------------------------------------------------------------------------------------------

    # Hot path: the record loop of most windowed jobs.
    def process_timed(
        self, overlay: Overlay, keys: list[bytes], values: list[Any], times: Sequence[int], port: int = 0
    ) -> None:
        if self._slide != self._size:
            self._process_sliding(keys, values, times)
            return
        size, offset, bend, aggregates = self._size, self._offset, self._bend, self._aggregates
        add, panes = self._add_to, self._panes
        start, pane = None, _LATE
        for key, value, time in zip(keys, values, times, strict=True):
            begin = time - (time - offset) % size
            if begin != start:
                start = begin
                pane = panes.get(begin) or self._open_pane(begin, time)
            accumulator = pane.get(key)
            if accumulator is None:
                if pane is not _LATE:
                    self._begin(pane, key, value)
                else:
                    self.moment.timestamp = time
                    self._late(value)
                continue
            accumulator = add(value, accumulator) if aggregates else add(accumulator, value)
            if bend is not None and type(accumulator) is not self._exact:
                accumulator = bend(accumulator)
            pane[key] = accumulator

    def _process_sliding(self, keys: list[bytes], values: list[Any], times: Sequence[int]) -> None:
        size, slide, offset, bend, aggregates = self._size, self._slide, self._offset, self._bend, self._aggregates
        add, panes = self._add_to, self._panes
        for key, value, time in zip(keys, values, times, strict=True):
            last = time - (time - offset) % slide
            given = value
            skipped = True
            for start in range(last, time - size, -slide):
                pane = panes.get(start) or self._open_pane(start, time)
                if pane is _LATE:
                    continue
                if not skipped:
                    # Each window needs its own copy: a function can change its input or keep it as accumulator.
                    given = independent(value)
                skipped = False
                accumulator = pane.get(key)
                if accumulator is None:
                    self._begin(pane, key, given)
                    continue
                accumulator = add(given, accumulator) if aggregates else add(accumulator, given)
                if bend is not None and type(accumulator) is not self._exact:
                    accumulator = bend(accumulator)
                pane[key] = accumulator
            if skipped and time <= self.watermark:
                self.moment.timestamp = time
                self._late(value)

    def _open_pane(self, start: int, time: int) -> _Pane:
        """Return the pane of the window that starts at `start`, or `_LATE` if the window has ended."""
        pane = self._panes.get(start)
        if pane is not None:
            return pane
        if time == LEAST:
            raise self._no_timestamp()
        window = TimeWindow(start, start + self._size)
        if window.end - 1 <= self.watermark:
            return _LATE
        pane = self._panes[start] = _Pane(window, self._serializer.encode(window))
        self._first_end = min(self._first_end, window.end - 1)
        return pane

    def _begin(self, pane: _Pane, key: bytes, value: Any) -> None:
        """Add the first record of a window and key in this epoch."""
        accumulator = None
        group = key_hash(key) % self._maximum
        stored = pane.groups.get(group)
        if stored is None:
            # Every accumulator has a timer: one lookup of the group's timers saves a state lookup for each key.
            stored = pane.groups[group] = self._former or self._timers.is_stored(pane.window.end - 1, group)
        if stored and key not in pane:
            accumulator = self._load(pane, key)
        if accumulator is None:
            accumulator = self._start(value)
        else:
            pane.stored.add(key)
            if self._former:
                self._set_timer(pane.window.end - 1, key, pane.name)
            add = self._add_to
            accumulator = add(value, accumulator) if self._aggregates else add(accumulator, value)
        if self._bend is not None and accumulator is not None:
            accumulator = self._bend(accumulator)
        pane[key] = accumulator

    def _load(self, pane: _Pane, key: bytes) -> Any:
        self.scopes.contents.key = key + pane.name
        held = self._state.value()
        return held.thaw() if type(held) is Frozen else held

    def _set_timer(self, time: int, key: bytes, name: bytes) -> None:
        overlay = self.overlay
        assert overlay is not None
        overlay.key = key
        self._timers.ensure(time, name)
        overlay.key = None

    # -- ends ----------------------------------------------------------------------------------------------------------

    def advance(self, watermark: int | None, channel: str = "") -> None:
        if watermark is None:
            self.mark(None, channel)
            return
        self.watermark = watermark
        if watermark >= self._first_end or self._timers.is_due(watermark):
            self._end_windows(watermark)
        if watermark == GREATEST:
            self.end_input()
        self.mark(watermark, channel)

    def _end_windows(self, watermark: int) -> None:
        """Fire every window that has ended, in the order of their ends, and remove it."""
        moment, overlay = self.moment, self.overlay
        assert overlay is not None
        before = moment.timestamp
        while True:
            taken, until = self._timers.take(watermark)
            self._fire_taken(taken, until, overlay)
            overlay.key = None
            self._first_end = min((pane.window.end - 1 for pane in self._panes.values()), default=GREATEST)
            overlay.grown(0, len(taken))
            if not self._timers.is_due(watermark):
                break
        moment.timestamp = before

    def _fire_taken(self, taken: list[Timer], until: int, overlay: Overlay) -> None:
        stored: dict[bytes, list[bytes]] = {}
        """Keys that have a window in state, by the window's name."""
        ends: dict[bytes, int] = {}
        former: list[Timer] = []
        for timer in taken:
            time, key, name = timer
            keys = stored.get(name)
            if keys is None:
                keys = stored[name] = []
                ends[name] = self._serializer.decode(name).end - 1
            if time == ends[name]:
                keys.append(key)
            else:
                former.append(timer)
        ended = {pane.name: pane for pane in self._panes.values() if pane.window.end - 1 <= until}
        names = {name for name, keys in stored.items() if keys} if former else stored.keys()
        for name in sorted(names | ended.keys(), key=_by_end):
            pane = ended.get(name)
            if pane is None:
                pane = _Pane(self._serializer.decode(name), name)
            keys = stored.get(name, [])
            for key in keys:
                if key not in pane:
                    pane[key] = self._load(pane, key)
            self.moment.timestamp = pane.window.end - 1
            self._fire_pane(pane, overlay)
            # For a very large window, timers are taken in parts: those of keys that have fired must not fire again.
            for key in sorted(pane.stored.difference(keys)):
                overlay.key = key
                self._timers.delete(pane.window.end - 1, name)
                keys.append(key)
            for key in keys:
                self.scopes.contents.key = key + name
                self._state.clear()
            if self._former:
                self._forget_states_of(keys, name)
            if name in ended:
                del self._panes[pane.window.start]
        for time, key, name in former:
            overlay.key = key
            self.scopes.enter(key, name)
            if time > ends[name]:
                self._forget(self._serializer.decode(name), None)
            elif self._state.value() is not None:
                self._timers.ensure(ends[name], name)

    def _forget_states_of(self, keys: list[bytes], name: bytes) -> None:
        for key in keys:
            self.scopes.enter(key, name)
            self._forget_former_states()

    def _fire_pane(self, pane: _Pane, overlay: Overlay) -> None:
        emit, result = self.emit, self._result
        if self._call is None:
            for accumulator in pane.values():
                if accumulator is not None:
                    emit(result(accumulator))
            return
        for key, accumulator in pane.items():
            overlay.key = key
            self.scopes.enter(key, pane.name)
            if accumulator is not None:
                self._evaluate(pane.window, [result(accumulator)])
            if self._clears:
                self.function.clear(self.window_context.begin(pane.window))

    def end_epoch(self) -> None:
        self.flush()

    def weight(self) -> int:
        return sum(weigh(pane) + MEMBER_BYTES * len(pane.stored) for pane in self._panes.values())

    def flush(self) -> None:
        """Write the accumulators to state, and set a timer for each key that is new to a window."""
        overlay, state, scope, register = self.overlay, self._state, self.scopes.contents, self._timers.register
        assert overlay is not None
        for pane in self._panes.values():
            time, name, stored = pane.window.end - 1, pane.name, pane.stored
            for key, accumulator in pane.items():
                scope.key = key + name
                state.update(accumulator)
                if key not in stored:
                    overlay.key = key
                    register(time, name)
        overlay.key = None
        self._panes = {}
        self._first_end = GREATEST


def _naming_the_state(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def bend(accumulator: Any) -> Any:
        try:
            return check(accumulator)
        except PenstockError as error:
            raise StateError(f"State '{NAME}': {error.statement()}.", fix=error.fix) from None

    return bend


def _by_end(name: bytes) -> bytes:
    return name[NAME_LENGTH // 2 :] + name
