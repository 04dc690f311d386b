"""Operators, the elements of a chain. Each wraps one user function and calls the next with a plain function call.

An operator is pickled into the graph together with its user function and rebuilt for each subtask. Once per worker
process and subtask, `initialize` is called if its function holds operator state, then `open`. Each epoch calls
`restore` if its operator state is not current, `begin_epoch`, any number of `process` and `advance`, `end_epoch`,
`end_input` (from `advance`) at the end of bounded input, `snapshot`, and `operator_state` if it has any. `close` is
called when the operator is dropped.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import PenstockError, SourceLocation
from penstock.runtime.checkpointed import Restored, holds_operator_state, initialize, snapshot
from penstock.runtime.moment import Moment
from penstock.runtime.output_tag import OutputTag
from penstock.runtime.sharing import SCALARS, handed_on
from penstock.runtime.timers import TimeDomain
from penstock.runtime.watermarks import GREATEST, LEAST
from penstock.state.serializers import Hinted
from penstock.state.shares import Share
from penstock.state.storage import Storage

if TYPE_CHECKING:
    from penstock.runtime.context import RuntimeContext
    from penstock.state.overlay import Overlay

Emit = Callable[[Any], None]
Mark = Callable[[int | None, str], None]
"""Receives a watermark and its channel: the split in a source's chain, otherwise an empty name. None means that the
channel has become idle: consumers do not wait for it."""


class EpochInfo(NamedTuple):
    """Identifies an epoch. The values are the same whenever the same driver runs the epoch again."""

    lineage: str
    number: int
    timestamp: int
    """Processing time of the epoch, in milliseconds."""
    storage: Storage | None = None
    """Where sinks stage records for the driver; None if everything for the driver travels in the report."""
    inline_bytes: int = 0
    """Up to this size, records for the driver always travel in the report."""
    token: str = ""
    """Identifies the driver that runs this attempt."""


class WrongResult(PenstockError):
    """A user function returned something that its operator cannot pass on.

    Operator action: return the kind of result that the message names.
    """


class Operator:
    """Base of all operators. The graph sets `name`, `uid` and `location`, the user's line, before shipping it."""

    name = ""
    uid = ""
    location: SourceLocation | None = None
    batch = False
    """Whether only final results are wanted, at the end of the input. Set by the graph."""
    keyed = False
    """Whether it runs on a keyed stream and can hold keyed state."""
    stateful = False
    """Whether it holds operator state and must therefore run as a subtask."""
    keeps_state = False
    """Whether its operator state stays in memory between epochs. Then `initialize` provides it before `open`, and again
    only if it is not at the required version. Otherwise `restore` provides it in every epoch."""
    reads_only = False
    """Whether `process` neither changes a record nor keeps it after returning, so it needs no copy."""
    state_hint: Hinted | None = None
    """Set if the type of its state comes from an annotation."""
    shows_watermark = False
    """Whether its function can read the watermark. Set when it is opened."""

    def __init__(self, function: Any = None) -> None:
        self.function = function
        self.checkpointed = holds_operator_state(function)
        """Whether the function itself holds operator state and must be recreated to restore another version."""
        if self.checkpointed:
            self.stateful = self.keeps_state = True
        self.emit: Emit = _unset
        self.mark: Mark = _unmarked
        """Receives watermarks after this operator has processed them."""
        self.moment = Moment()
        self.watermark = LEAST
        """Never moves backwards, not even between epochs."""
        self.follow: Mark | None = None
        """In a source's chain: derives the watermark from those of the splits, if the function can read it."""
        self.overlay: Overlay | None = None
        """Keyed state and timers, for the head of a keyed chain."""
        self.sides: dict[str, Emit] = {}
        """Receivers of side outputs, by tag id. Values for a tag without a reader are dropped."""

    def declare(self, name: str, uid: str, location: SourceLocation | None, batch: bool) -> None:
        """Set the operator's properties in the graph, before it is shipped."""
        self.name, self.uid, self.location, self.batch = name, uid, location, batch

    @property
    def kind(self) -> str:
        return type(self).__name__.removesuffix("Operator")

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        self.emit = emit
        if hasattr(self.function, "open"):
            self.function.open(context)

    def begin_epoch(self, epoch: EpochInfo) -> None:
        pass

    def process(self, value: Any) -> None:
        raise NotImplementedError

    def process_shared(self, value: Any) -> None:
        """Process a record that the emitter might keep or share. Overridden where an extra call is too expensive."""
        self.process(value if type(value) in SCALARS else handed_on(value))

    def process_second(self, value: Any) -> None:
        """Process a record of the second input, for operators with two inputs."""
        raise NotImplementedError

    def process_keyed(self, overlay: Overlay, keys: list[bytes], values: list[Any], port: int = 0) -> None:
        """Process a buffer of a keyed edge, making each record's key the current key."""
        process = self.process_second if port else self.process
        for key, value in zip(keys, values, strict=True):
            overlay.key = key
            process(value)

    def process_timed(
        self, overlay: Overlay, keys: list[bytes], values: list[Any], times: Sequence[int], port: int = 0
    ) -> None:
        """Like `process_keyed`, for records with timestamps."""
        process = self.process_second if port else self.process
        moment = self.moment
        for key, value, time in zip(keys, values, times, strict=True):
            overlay.key = key
            moment.timestamp = None if time == LEAST else time
            process(value)

    def advance(self, watermark: int | None, channel: str = "") -> None:
        """Advance the watermark: fire due timers, then pass it on."""
        if channel and self.follow is not None:
            self.follow(watermark, channel)
        if watermark is None:
            self.mark(None, channel)
            return
        if watermark > self.watermark and not channel:
            self.watermark = watermark
        if self.overlay is not None:
            self._fire(self.overlay, TimeDomain.EVENT_TIME, watermark)
        if watermark == GREATEST:
            if self.overlay is not None:
                self.overlay.key = None
            self.end_input()
        self.mark(watermark, channel)

    def tick(self) -> None:
        """Fire the processing-time timers that are due at the epoch's processing time."""
        if self.overlay is not None:
            self._fire(self.overlay, TimeDomain.PROCESSING_TIME, self.moment.processing_time)

    def _fire(self, overlay: Overlay, domain: TimeDomain, until: int) -> None:
        timers = overlay.timers[domain.name]
        if not timers.is_due(until):
            return
        moment = self.moment
        before = moment.timestamp
        for time, key, namespace in timers.due(until):
            overlay.key = key
            # Results of a processing-time timer have no event time.
            moment.timestamp = time if domain is TimeDomain.EVENT_TIME else None
            self.on_timer(time, namespace, domain)
        moment.timestamp = before
        overlay.key = None

    def on_timer(self, time: int, namespace: bytes, domain: TimeDomain) -> None:
        raise NotImplementedError

    def _emit_all(self, results: Any, method: str) -> None:
        """Emit the results of a process function: values to the main output, `tag, value` to side outputs."""
        if results is None:
            return
        for result in iterate(results, self.function, method):
            if type(result) is tuple and result and type(result[0]) is OutputTag:
                self._emit_side(result)
            else:
                self.emit(result)

    def _emit_side(self, result: tuple[Any, ...]) -> None:
        if len(result) != 2:
            raise WrongResult(
                f"{describe(self.function)} yielded {len(result) - 1} values with {result[0]!r}, which takes one.",
                fix="Write `yield tag, value`.",
            )
        emit = self.sides.get(result[0].tag_id)
        if emit is not None:
            emit(result[1])

    def end_epoch(self) -> None:
        """Complete all pending work: the epoch has no further records."""

    def end_input(self) -> None:
        """React to the end of the input: no further records follow in any epoch."""

    def snapshot(self) -> bytes | None:
        """Return the sink's committable for this epoch, if any."""
        return None

    def initialize(self, context: RuntimeContext, restored: Restored) -> None:
        """Start from this subtask's operator state in the last checkpoint."""
        self.runtime = context
        self.store = context.operator_state_store(restored.states)
        initialize(self.function, context, self.store, restored)

    def queryable_states(self) -> dict[str, str]:
        """Return the names under which operator states can be read from outside the job, by name of the state."""
        return self.store.queryable() if self.keeps_state else {}

    def restore(self, states: dict[str, Share]) -> None:
        """Restore this subtask's share of the operator state from the last checkpoint."""
        self.store.restore(states)

    def operator_state(self, epoch: EpochInfo) -> dict[str, Share]:
        """Return the operator state at the end of the epoch, by name."""
        return snapshot(self.function, self.runtime, self.store, epoch.number, epoch.timestamp)

    def close(self) -> None:
        if hasattr(self.function, "close"):
            self.function.close()

    def abandon(self) -> None:
        """End this operator's threads without calling user code; called instead of `close` if the task was lost."""


def _unmarked(watermark: int | None, channel: str) -> None:
    pass


def _unset(value: Any) -> None:
    raise AssertionError("the operator was not opened")


def method_of(function: Any, name: str) -> Callable[..., Any]:
    """Return the function to call: the named method of a Function object, or the callable itself."""
    method = getattr(function, name, None)
    return method if method is not None else function  # type: ignore[no-any-return]


def iterate(results: Any, function: Any, method: str) -> Iterable[Any]:
    """Return `results` after checking that it can be iterated and is not accidentally a string."""
    if isinstance(results, (str, bytes)) or not hasattr(results, "__iter__"):
        raise WrongResult(
            f"{describe(function)} returned {type(results).__name__} from {method}, which must yield its results "
            f"or return an iterable of them.",
            fix="Write `yield value` or `return [value]`.",
        )
    return results  # type: ignore[no-any-return]


def describe(function: Any) -> str:
    """Return a user function's name as written by the user."""
    return getattr(function, "__qualname__", None) or type(function).__name__


def load_operator(data: bytes) -> Operator:
    """Unpickle an operator. Only call this with bytes written by this job's own driver."""
    return pickle.loads(data)  # type: ignore[no-any-return]


__all__ = ["Emit", "Operator", "WrongResult", "describe", "load_operator"]
