"""Operators: what a chain is made of. Each wraps one user function and calls the next by a plain function call.

An operator is pickled into the graph with its user function and made anew for each subtask. Order of calls:
`open` once per worker process and subtask; then per epoch `begin_epoch`, any number of `process` and `advance`,
`end_epoch`, at the end of bounded input `end_input` (from `advance`), then `snapshot`, and `operator_state` where it
has one; `close` when it is dropped.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.common.pickling import Frozen
from penstock.errors import PenstockError, Place
from penstock.runtime.moment import Moment
from penstock.runtime.output_tag import OutputTag
from penstock.runtime.timers import TimeDomain
from penstock.runtime.watermarks import GREATEST, LEAST
from penstock.state.descriptors import ValueStateDescriptor
from penstock.state.entries import StateError
from penstock.state.serializers import Hinted, OrPickled

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


class WrongResult(PenstockError):
    """A user function returned something its operator cannot pass on."""


class Operator:
    """Base of all operators. `name`, `uid` and `place`, the user's line, are set by the graph before it is shipped."""

    name = ""
    uid = ""
    place: Place | None = None
    batch = False
    """Whether only final results are wanted, at the end of the input; set by the graph."""
    keyed = False
    """Whether it runs on a keyed stream and so may hold keyed state."""
    stateful = False
    """Whether it holds operator state: then `restore` is called at the start of every epoch."""
    state_hint: Hinted | None = None
    """Where the type of its own state comes from an annotation."""

    def __init__(self, function: Any = None) -> None:
        self.function = function
        self.emit: Emit = _unset
        self.mark: Mark = _unmarked
        """Where watermarks go when this operator has seen them."""
        self.moment = Moment()
        self.watermark = LEAST
        self.overlay: Overlay | None = None
        """Keyed state and timers, of the head of a keyed chain."""
        self.sides: dict[str, Emit] = {}
        """Where side outputs go, by tag id; a value for a tag that nobody reads goes nowhere."""

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
        if watermark is None:
            self.mark(None, channel)
            return
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

    def restore(self, states: list[bytes]) -> None:
        """What this subtask's share of the operator state was at the last checkpoint."""

    def operator_state(self) -> list[bytes]:
        """Operator state at the end of the epoch: a list whose elements any subtask may be given after a rescale."""
        return []

    def close(self) -> None:
        if hasattr(self.function, "close"):
            self.function.close()


def _unmarked(watermark: int | None, channel: str) -> None:
    pass


def _unset(value: Any) -> None:
    raise AssertionError("the operator was not opened")


def method_of(function: Any, name: str) -> Callable[..., Any]:
    """The function to call: the named method of a Function object, or the callable itself."""
    method = getattr(function, name, None)
    return method if method is not None else function  # type: ignore[no-any-return]


class MapOperator(Operator):
    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        self.call = method_of(self.function, "map")

    def process(self, value: Any) -> None:
        self.emit(self.call(value))


class FilterOperator(Operator):
    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        self.call = method_of(self.function, "filter")

    def process(self, value: Any) -> None:
        if self.call(value):
            self.emit(value)


class FlatMapOperator(Operator):
    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        self.call = method_of(self.function, "flat_map")

    def process(self, value: Any) -> None:
        results = self.call(value)
        if results is not None:
            emit = self.emit
            for result in iterate(results, self.function, "flat_map"):
                emit(result)


class ProcessOperator(Operator):
    """A ProcessFunction, or on a keyed stream a KeyedProcessFunction."""

    def __init__(self, function: Any, keyed: bool = False) -> None:
        super().__init__(function)
        self.keyed = keyed

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        self.call = method_of(self.function, "process_element")
        self.context = context.function_context(self)
        self.timer_context = context.timer_context(self)

    def process(self, value: Any) -> None:
        self._emit_all(self.call(value, self.context), "process_element")

    def on_timer(self, time: int, namespace: bytes, domain: TimeDomain) -> None:
        self.timer_context.begin(time, domain)
        self._emit_all(self.function.on_timer(time, self.timer_context), "on_timer")

    # The record loop of most stateful jobs: about 0.07 µs per record around the user's code.
    def process_keyed(self, overlay: Overlay, keys: list[bytes], values: list[Any], port: int = 0) -> None:
        call, context, emit = self.call, self.context, self.emit
        for key, value in zip(keys, values, strict=True):
            overlay.key = key
            results = call(value, context)
            if results is not None:
                if type(results) is not GeneratorType:
                    results = iterate(results, self.function, "process_element")
                for result in results:
                    if type(result) is tuple and result and type(result[0]) is OutputTag:
                        self._emit_side(result)
                    else:
                        emit(result)


class CoProcessOperator(Operator):
    """A function with a method for each of two inputs: CoProcessFunction, or KeyedCoProcessFunction."""

    methods = ("process_element1", "process_element2")

    def __init__(self, function: Any, keyed: bool) -> None:
        super().__init__(function)
        self.keyed = keyed

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        self.context = context.function_context(self)
        self.timer_context = context.timer_context(self)
        self.first, self.second = (getattr(self.function, method) for method in self.methods)

    def process(self, value: Any) -> None:
        self._emit_all(self.first(value, self.context), self.methods[0])

    def process_second(self, value: Any) -> None:
        self._emit_all(self.second(value, self.context), self.methods[1])

    def on_timer(self, time: int, namespace: bytes, domain: TimeDomain) -> None:
        self.timer_context.begin(time, domain)
        self._emit_all(self.function.on_timer(time, self.timer_context), "on_timer")


class CoFlatMapOperator(CoProcessOperator):
    methods = ("flat_map1", "flat_map2")

    def process(self, value: Any) -> None:
        self._emit_all(self.first(value), self.methods[0])

    def process_second(self, value: Any) -> None:
        self._emit_all(self.second(value), self.methods[1])


class CoMapOperator(CoProcessOperator):
    """A result of None is no record, as in PyFlink."""

    methods = ("map1", "map2")

    def process(self, value: Any) -> None:
        self._emit_one(self.first(value))

    def process_second(self, value: Any) -> None:
        self._emit_one(self.second(value))

    def _emit_one(self, result: Any) -> None:
        if result is not None:
            self.emit(result)


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


class KeyedMapOperator(MapOperator):
    keyed = True


class KeyedFlatMapOperator(FlatMapOperator):
    keyed = True


class KeyedFilterOperator(FilterOperator):
    keyed = True


class ReduceOperator(Operator):
    """Emits the reduced value for every record; in a batch only the last one of each key, at the end of the input."""

    keyed = True

    def __init__(self, function: Any, value_type: Any) -> None:
        super().__init__(function)
        self.value_type = value_type
        self.state_hint = value_type if isinstance(value_type, Hinted) else None

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        self.call = method_of(self.function, "reduce")
        hint = self.state_hint
        descriptor = ValueStateDescriptor("_reduce", self.value_type if hint is None else hint.spec)
        if hint is not None:
            descriptor.serializer = OrPickled(hint.spec)
            self.process = self._process_hinted  # type: ignore[method-assign]
        self.state = context.get_state(descriptor)
        if self.batch:
            self.context = context
            self.process = self._reduced  # type: ignore[method-assign]

    def process(self, value: Any) -> None:
        current = self.state.value()
        result = value if current is None else self.call(current, value)
        self.state.update(result)
        self.emit(result)

    def _process_hinted(self, value: Any) -> None:
        self.emit(self._reduced(value))

    def _reduced(self, value: Any) -> Any:
        """Where nothing is to be emitted, or what the state holds may be Frozen."""
        current = self._current()
        result = value if current is None else self.call(current, value)
        self.state.update(result)
        return result

    def _current(self) -> Any:
        current = self.state.value()
        return current.thaw() if type(current) is Frozen else current

    def end_input(self) -> None:
        if self.batch:
            for _ in self.context.each_key("_reduce"):
                self.emit(self._current())


class WithStateOperator(Operator):
    """map, flat_map or filter whose function is given (value, state or None) and gives (result, new state or None)."""

    keyed = True

    def __init__(self, function: Any, how: str, state_type: Any) -> None:
        super().__init__(function)
        self.how = how
        self.state_hint = state_type if isinstance(state_type, Hinted) else None
        self.state_type = state_type if self.state_hint is None else self.state_hint.spec

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        self.state = context.get_state(ValueStateDescriptor("_state", self.state_type))

    def process(self, value: Any) -> None:
        given = self.function(value, self.state.value())
        if not isinstance(given, tuple) or len(given) != 2:
            raise WrongResult(
                f"{describe(self.function)} returned {type(given).__name__}; {self.how}_with_state needs "
                f"(result, new state), with None as new state to clear it."
            )
        result, state = given
        try:
            self.state.update(state)
        except StateError as error:
            raise WrongResult(
                f"{describe(self.function)} gave a new state that is not of the state's type, which is "
                f"{self._state_origin()}: {error}"
            ) from None
        if self.how == "map":
            self.emit(result)
        elif self.how == "filter":
            if result:
                self.emit(value)
        elif result is not None:
            for each in iterate(result, self.function, "flat_map_with_state"):
                self.emit(each)

    def _state_origin(self) -> str:
        if self.state_hint is None:
            return f"the state_type given to {self.how}_with_state"
        return f"that of the annotation of {self.state_hint.origin}; state_type=... overrides it"


class SinkOperator(Operator):
    """Hands the records of an epoch to a sink writer. Its snapshot becomes the committable in the manifest."""

    def __init__(self, sink: Any) -> None:
        super().__init__(None)
        self.sink = sink
        self.stateful = sink.stateful

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        self.writer = self.sink.create_writer(context)
        self.process = self.writer.write  # type: ignore[method-assign]  # one call less per record

    def restore(self, states: list[bytes]) -> None:
        self.writer.restore(states)

    def begin_epoch(self, epoch: EpochInfo) -> None:
        self.writer.begin_epoch(epoch)

    def end_input(self) -> None:
        self.writer.end_input()

    def snapshot(self) -> bytes | None:
        return self.writer.prepare_commit()  # type: ignore[no-any-return]

    def operator_state(self) -> list[bytes]:
        return self.writer.snapshot_state()  # type: ignore[no-any-return]

    def close(self) -> None:
        self.writer.close()


class SinkFunctionOperator(Operator):
    """Calls a user's `invoke` for every record, at once: a record of an epoch that is run again is seen again."""

    kind = "Sink"

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        invoke = getattr(self.function, "invoke", None)
        if invoke is None:
            self.process = self.function  # type: ignore[method-assign]
        else:
            given = context.function_context(self)
            self.process = lambda value: invoke(value, given)  # type: ignore[method-assign]


def load_operator(data: bytes) -> Operator:
    """Only for bytes that this job's own driver wrote."""
    return pickle.loads(data)  # type: ignore[no-any-return]


__all__ = ["Emit", "Operator", "WrongResult", "describe", "load_operator"]
