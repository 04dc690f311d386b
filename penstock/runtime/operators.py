"""Operators: what a chain is made of. Each wraps one user function and calls the next by a plain function call.

An operator is pickled into the graph with its user function and made anew for each subtask. Order of calls:
`initialize` where its function holds operator state, and `open`, once per worker process and subtask; then per epoch
`restore` where it has operator state and does not stand at the epoch's version, `begin_epoch`, any number of `process`
and `advance`, `end_epoch`, at the end of bounded input `end_input` (from `advance`), then `snapshot`, and
`operator_state` where it has one; `close` when it is dropped.
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
"""Given a watermark and the channel it is of: the split in a source's chain, else an empty name. None: the channel has
become idle, and nobody need wait for it."""


class EpochInfo(NamedTuple):
    """Which epoch of which run it is. The same whenever the epoch is run again by the same driver."""

    lineage: str
    number: int
    timestamp: int
    """Milliseconds: the epoch's clock, its processing time."""
    storage: Storage | None = None
    """Where sinks put records aside for the driver; None where everything for it rides in the report."""
    inline_bytes: int = 0
    """What rides in the report in any case."""
    token: str = ""
    """Of the driver whose attempt this is."""


class WrongResult(PenstockError):
    """A user function returned something its operator cannot pass on."""


class Operator:
    """Base of all operators. `name`, `uid` and `place`, the user's line, are set by the graph before it is shipped."""

    name = ""
    uid = ""
    location: SourceLocation | None = None
    batch = False
    """Whether only final results are wanted, at the end of the input; set by the graph."""
    keyed = False
    """Whether it runs on a keyed stream and so may hold keyed state."""
    stateful = False
    """Whether it holds operator state, and so must be a subtask."""
    keeps_state = False
    """Whether its operator state is in memory from epoch to epoch. Then `initialize` gives it before `open`, and it is
    given again only where the operator does not stand at the wanted version. Else `restore` gives it in every epoch."""
    reads_only = False
    """Whether `process` is done with a record when it returns, and does not change it. Then it needs no copy."""
    state_hint: Hinted | None = None
    """Where the type of its own state comes from an annotation."""
    shows_watermark = False
    """Whether its function can ask for the watermark; set when it is opened."""

    def __init__(self, function: Any = None) -> None:
        self.function = function
        self.checkpointed = holds_operator_state(function)
        """Whether the function itself holds operator state, and so is made anew to be given another version of it."""
        if self.checkpointed:
            self.stateful = self.keeps_state = True
        self.emit: Emit = _unset
        self.mark: Mark = _unmarked
        """Where watermarks go when this operator has seen them."""
        self.moment = Moment()
        self.watermark = LEAST
        """Never moves backwards, from epoch to epoch either."""
        self.follow: Mark | None = None
        """In a source's chain, what makes its watermark of those of the splits, where its function can ask for it."""
        self.overlay: Overlay | None = None
        """Keyed state and timers, of the head of a keyed chain."""
        self.sides: dict[str, Emit] = {}
        """Where side outputs go, by tag id; a value for a tag that nobody reads goes nowhere."""

    def declare(self, name: str, uid: str, location: SourceLocation | None, batch: bool) -> None:
        """Tell the operator what the graph knows of it, before it is shipped."""
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
        """`process` of a record that who gave it may keep, or give to others too. Overridden where a call counts."""
        self.process(value if type(value) in SCALARS else handed_on(value))

    def process_second(self, value: Any) -> None:
        """A record of the second input, for operators that have two."""
        raise NotImplementedError

    def process_keyed(self, overlay: Overlay, keys: list[bytes], values: list[Any], port: int = 0) -> None:
        """Process a buffer of a keyed edge: each record with its key as the current one."""
        process = self.process_second if port else self.process
        for key, value in zip(keys, values, strict=True):
            overlay.key = key
            process(value)

    def process_timed(
        self, overlay: Overlay, keys: list[bytes], values: list[Any], times: Sequence[int], port: int = 0
    ) -> None:
        """As `process_keyed`, where records have timestamps."""
        process = self.process_second if port else self.process
        moment = self.moment
        for key, value, time in zip(keys, values, times, strict=True):
            overlay.key = key
            moment.timestamp = None if time == LEAST else time
            process(value)

    def advance(self, watermark: int | None, channel: str = "") -> None:
        """The watermark has come this far: fire what is due, then let it go on."""
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
        """Fire the processing-time timers that the epoch's clock has reached."""
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
            # What a processing-time timer gives has no event time.
            moment.timestamp = time if domain is TimeDomain.EVENT_TIME else None
            self.on_timer(time, namespace, domain)
        moment.timestamp = before
        overlay.key = None

    def on_timer(self, time: int, namespace: bytes, domain: TimeDomain) -> None:
        raise NotImplementedError

    def _emit_all(self, results: Any, method: str) -> None:
        """Emit what a process function gave: values to the main output, `tag, value` to side outputs."""
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
                f"{describe(self.function)} yielded {len(result) - 1} values with {result[0]!r}.",
                fix="Write `yield tag, value`.",
            )
        emit = self.sides.get(result[0].tag_id)
        if emit is not None:
            emit(result[1])

    def end_epoch(self) -> None:
        """All records of the epoch are in: what was begun with them must be brought to an end."""

    def end_input(self) -> None:
        """No record will follow, in this epoch or another."""

    def snapshot(self) -> bytes | None:
        """The sink's committable of this epoch, if any."""
        return None

    def initialize(self, context: RuntimeContext, restored: Restored) -> None:
        """Begin with what the last checkpoint holds of this subtask's operator state."""
        self.runtime = context
        self.store = context.operator_state_store(restored.states)
        initialize(self.function, context, self.store, restored)

    def restore(self, states: dict[str, Share]) -> None:
        """What this subtask's share of the operator state was at the last checkpoint."""
        self.store.restore(states)

    def operator_state(self, epoch: EpochInfo) -> dict[str, Share]:
        """Operator state at the end of the epoch, by name."""
        return snapshot(self.function, self.runtime, self.store, epoch.number, epoch.timestamp)

    def close(self) -> None:
        if hasattr(self.function, "close"):
            self.function.close()

    def abandon(self) -> None:
        """Instead of `close`, where the task was lost: end threads of this operator, call nothing of the user's."""


def _unmarked(watermark: int | None, channel: str) -> None:
    pass


def _unset(value: Any) -> None:
    raise AssertionError("the operator was not opened")


def method_of(function: Any, name: str) -> Callable[..., Any]:
    """The function to call: the named method of a Function object, or the callable itself."""
    method = getattr(function, name, None)
    return method if method is not None else function  # type: ignore[no-any-return]


def iterate(results: Any, function: Any, method: str) -> Iterable[Any]:
    """`results` itself, once it is sure that it can be iterated and is no string by mistake."""
    if isinstance(results, (str, bytes)) or not hasattr(results, "__iter__"):
        raise WrongResult(
            f"{describe(function)} returned {type(results).__name__} from {method}, which must yield its results "
            f"or return an iterable of them.",
            fix="Write `yield value` or `return [value]`.",
        )
    return results  # type: ignore[no-any-return]


def describe(function: Any) -> str:
    """A user function's name as the user wrote it."""
    return getattr(function, "__qualname__", None) or type(function).__name__


def load_operator(data: bytes) -> Operator:
    """Only for bytes that this job's own driver wrote."""
    return pickle.loads(data)  # type: ignore[no-any-return]


__all__ = ["Emit", "Operator", "WrongResult", "describe", "load_operator"]
