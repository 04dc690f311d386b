"""The interval join: pairs records of two keyed streams by the distance of their event times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.runtime.metrics import LATE_RECORDS
from penstock.runtime.moment import NoTimestamp
from penstock.runtime.operators import Emit, Operator, method_of
from penstock.runtime.timers import TimeDomain
from penstock.runtime.watermarks import GREATEST
from penstock.state.timeline import Timeline, TimelineDescriptor

if TYPE_CHECKING:
    from penstock.runtime.context import RuntimeContext
    from penstock.runtime.output_tag import OutputTag


class JoinContext:
    """Passed with each pair to a ``ProcessJoinFunction``. Times are event times in milliseconds."""

    def __init__(self) -> None:
        self._left = 0
        self._right = 0

    def begin(self, left: int, right: int) -> None:
        """Set the timestamps of the next pair."""
        self._left = left
        self._right = right

    def get_left_timestamp(self) -> int:
        """Return the event time of the left record."""
        return self._left

    def get_right_timestamp(self) -> int:
        """Return the event time of the right record."""
        return self._right

    def timestamp(self) -> int:
        """Return the later of the two event times, which is also the event time of the results."""
        return max(self._left, self._right)


class JoinInput(NamedTuple):
    """One input of an interval join: the type of its records, and the side output for late ones."""

    type: Any
    late: OutputTag | None


class _Side(NamedTuple):
    number: int
    own: Timeline
    other: Timeline
    first: int
    """Start of the range of matching records, relative to a record's time."""
    last: int
    keep: int
    """How long to keep a record: until no matching record of the other side can arrive any more."""
    namespace: bytes
    """The namespace of the side's timers."""
    late: str | None


class IntervalJoinOperator(Operator):
    """Pairs a left record at t with the right records from t + lower to t + upper, inclusive.

    A timer removes each record once the watermark shows that no match can arrive any more.
    """

    keyed = True

    def __init__(self, function: Any, lower: int, upper: int, left: JoinInput, right: JoinInput) -> None:
        super().__init__(function)
        self.lower = lower
        self.upper = upper
        self.inputs = (left, right)

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        assert self.overlay is not None
        self.call = method_of(self.function, "process_element")
        self.context = JoinContext()
        self.timers = self.overlay.timers[TimeDomain.EVENT_TIME.name]
        self.dropped = context.get_metrics_group().counter(LATE_RECORDS)
        left, right = (
            self.overlay.register(TimelineDescriptor(name, given.type))
            for name, given in zip(("_left", "_right"), self.inputs, strict=True)
        )
        late = [None if given.late is None else given.late.tag_id for given in self.inputs]
        lower, upper = self.lower, self.upper
        self.left = _Side(0, left, right, lower, upper, max(upper, 0), b"L", late[0])
        self.right = _Side(1, right, left, -upper, -lower, max(-lower, 0), b"R", late[1])

    def process(self, value: Any) -> None:
        self._join(value, self.left)

    def process_second(self, value: Any) -> None:
        self._join(value, self.right)

    # About 5 µs per record and 2 µs per pair for pickled records, and up to 2 µs more if stored state must be read.
    def _join(self, value: Any, side: _Side) -> None:
        time = self.moment.timestamp
        if time is None:
            raise self._no_timestamp(side)
        if time < self.watermark:
            self._late(value, side)
            return
        side.own.add(time, value)
        for other_time, other in side.other.between(time + side.first, time + side.last):
            if side.number:
                self._pair(other, value, other_time, time)
            else:
                self._pair(value, other, time, other_time)
        # Records that would be kept past the end of time need no removal.
        self.timers.register(min(time + side.keep, GREATEST), side.namespace)

    def _pair(self, left: Any, right: Any, left_time: int, right_time: int) -> None:
        self.moment.timestamp = max(left_time, right_time)
        self.context.begin(left_time, right_time)
        self._emit_all(self.call(left, right, self.context), "process_element")

    def _late(self, value: Any, side: _Side) -> None:
        if side.late is None:
            self.dropped.inc()
            return
        emit = self.sides.get(side.late)
        if emit is not None:
            emit(value)

    def on_timer(self, time: int, namespace: bytes, domain: TimeDomain) -> None:
        side = self.left if namespace == self.left.namespace else self.right
        if time - side.keep not in side.own.remove_until(time - side.keep):
            # An earlier version of the program set the timer for another interval: remaining records might have none.
            for each in side.own.times():
                until = min(each + side.keep, GREATEST)
                if until > time:
                    self.timers.ensure(until, side.namespace)

    def _no_timestamp(self, side: _Side) -> NoTimestamp:
        which = ("left", "right")[side.number]
        return NoTimestamp(
            f"Operator '{self.name}' (uid '{self.uid}') joins by event time, but a record of its {which} stream has "
            f"no timestamp.",
            fix=f"Call assign_timestamps_and_watermarks(...) on the {which} stream, before its key_by.",
            locations=(self.location,),
        )
