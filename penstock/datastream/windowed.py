"""Windowed streams: the declaration between ``window(...)`` and the operation on each window."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, overload

from penstock.common.time import BadLength, Duration, Time, to_millis
from penstock.common.type_parameters import ACC, K, K_co, R, T_co, U, V, W
from penstock.common.typeinfo import Types
from penstock.datastream import hints
from penstock.datastream.aggregations import field_reducer
from penstock.datastream.checks import check_stateless
from penstock.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    Function,
    KeySelector,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from penstock.datastream.time_characteristic import TimeCharacteristic
from penstock.graph.logical import GraphError
from penstock.runtime.operators import describe
from penstock.runtime.output_tag import OutputTag, SideOutput
from penstock.runtime.windows.assigners import (
    Length,
    MergingWindowAssigner,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from penstock.runtime.windows.contents import Combiner
from penstock.runtime.windows.contexts import WindowContext
from penstock.runtime.windows.counting import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from penstock.runtime.windows.evictors import Evictor
from penstock.runtime.windows.factory import window_operator
from penstock.runtime.windows.operator import WindowDescription
from penstock.runtime.windows.triggers import Trigger
from penstock.runtime.windows.window import CountWindow, TimeWindow
from penstock.state.serializers import Hinted

if TYPE_CHECKING:
    from penstock.datastream.data_stream import DataStream, KeyedStream
    from penstock.datastream.environment import StreamExecutionEnvironment


_OnWindow: TypeAlias = (
    WindowFunction[U, R, K, W]
    | ProcessWindowFunction[U, R, K, W]
    | AllWindowFunction[U, R, W]
    | ProcessAllWindowFunction[U, R, W]
)
"""The window functions that can follow a reduce or an aggregate. Functions of the wrong kind are refused."""

_MERGE = ("create_accumulator", "add", "get_result", "merge")


class _Windowed(Generic[T_co, K_co, W]):
    """The common base of windows over keyed streams and over streams without keys."""

    _of_all = False
    _applied: type[Function] = WindowFunction
    _processed: type[Function] = ProcessWindowFunction

    def __init__(self, keyed_stream: KeyedStream[T_co, K_co], window_assigner: WindowAssigner[Any, W]) -> None:
        if not isinstance(window_assigner, WindowAssigner):
            raise GraphError(
                f"window needs a WindowAssigner, not {_named(window_assigner)}.",
                fix="Write, for example, TumblingEventTimeWindows.of(Time.seconds(5)).",
            )
        self._keyed_stream = keyed_stream
        self._assigner = window_assigner
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor[Any, Any] | None = None
        self._allowed_lateness = 0
        self._late_tag: OutputTag | None = None

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to."""
        return self._keyed_stream.get_execution_environment()

    def get_input_type(self) -> Any:
        """Return the type of the records."""
        return self._keyed_stream.get_type()

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Set when windows emit results, overriding the assigner's default trigger.

        Args:
            trigger: The trigger.

        Raises:
            GraphError: If ``trigger`` is not a ``Trigger``, or cannot merge although the windows do.
        """
        if not isinstance(trigger, Trigger):
            raise GraphError(
                f"trigger needs a Trigger, not {_named(trigger)}.", fix="Write, for example, CountTrigger.of(10)."
            )
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise GraphError(
                f"{type(trigger).__name__} cannot merge, but the windows of {self._assigner!r} do.",
                fix="Use a trigger that returns True from can_merge() and implements on_merge.",
            )
        self._trigger = trigger
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Set which records a window removes when it fires.

        A window with an evictor keeps all its records, even for ``reduce`` and ``aggregate``.

        Args:
            evictor: The evictor.
        """
        if not isinstance(evictor, Evictor):
            raise GraphError(
                f"evictor needs an Evictor, not {_named(evictor)}.", fix="Write, for example, CountEvictor.of(10)."
            )
        self._evictor = evictor
        return self

    def allowed_lateness(self, time_ms: Time | Duration | int) -> Self:
        """Set how long a window accepts late records after the watermark passes its end.

        Each late record fires the window again.

        Args:
            time_ms: The lateness. An int is milliseconds.

        Raises:
            GraphError: If the lateness is negative.
        """
        try:
            lateness = to_millis(time_ms)
        except BadLength as error:
            raise GraphError(f"The allowed lateness is invalid: {error.statement()}", fix=error.fix) from None
        if lateness < 0:
            raise GraphError(f"The allowed lateness must not be negative, but is {lateness} ms.", fix="Pass 0 or more.")
        self._allowed_lateness = lateness
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send records that are too late for all their windows to a side output.

        By default they are counted and dropped.

        Args:
            output_tag: The tag of the side output.
        """
        if not isinstance(output_tag, OutputTag):
            raise GraphError(f"side_output_late_data needs an OutputTag, not {_named(output_tag)}.")
        self._late_tag = output_tag
        return self

    # -- operations ----------------------------------------------------------------------------------------------------

    def sum(self, position_to_sum: int | str = 0) -> DataStream[T_co]:
        """Emit the sum of a field for each window.

        Args:
            position_to_sum: The position or name of the field.
        """
        return self._reduced(field_reducer("sum", position_to_sum), None, None)

    def min(self, position_to_min: int | str = 0) -> DataStream[T_co]:
        """Emit the minimum of a field for each window.

        Args:
            position_to_min: The position or name of the field.
        """
        return self._reduced(field_reducer("min", position_to_min), None, None)

    def max(self, position_to_max: int | str = 0) -> DataStream[T_co]:
        """Emit the maximum of a field for each window.

        Args:
            position_to_max: The position or name of the field.
        """
        return self._reduced(field_reducer("max", position_to_max), None, None)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream[T_co]:
        """Emit, for each window, the record with the smallest value of a field, and the first of equal ones.

        Args:
            position_to_min_by: The position or name of the field.
        """
        return self._reduced(field_reducer("min_by", position_to_min_by), None, None)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream[T_co]:
        """Emit, for each window, the record with the largest value of a field, and the first of equal ones.

        Args:
            position_to_max_by: The position or name of the field.
        """
        return self._reduced(field_reducer("max_by", position_to_max_by), None, None)

    @overload
    def reduce(
        self,
        reduce_function: Callable[[T_co, T_co], T_co] | ReduceFunction[T_co],
        window_function: None = None,
        output_type: Any = None,
    ) -> DataStream[T_co]: ...

    @overload
    def reduce(
        self,
        reduce_function: Callable[[T_co, T_co], T_co] | ReduceFunction[T_co],
        window_function: _OnWindow[T_co, R, K_co, W],
        output_type: Any = None,
    ) -> DataStream[R]: ...

    def reduce(self, reduce_function: Any, window_function: Any = None, output_type: Any = None) -> DataStream[Any]:
        """Combine the records of each window incrementally into one value.

        Args:
            reduce_function: A function of two values that returns one of the same type, or a ``ReduceFunction``.
            window_function: A window function that receives the reduced value as its only element.
            output_type: The type of the results.

        Raises:
            GraphError: If a function is of the wrong kind.
        """
        if not isinstance(reduce_function, ReduceFunction) and (
            isinstance(reduce_function, Function) or not callable(reduce_function)
        ):
            raise GraphError(f"reduce needs a ReduceFunction or a function, not {_named(reduce_function)}.")
        check_stateless(reduce_function)
        return self._reduced(reduce_function, window_function, output_type)

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T_co, ACC, R],
        window_function: None = None,
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream[R]: ...

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T_co, ACC, V],
        window_function: _OnWindow[V, R, K_co, W],
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream[R]: ...

    def aggregate(
        self,
        aggregate_function: Any,
        window_function: Any = None,
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream[Any]:
        """Combine the records of each window incrementally in an accumulator.

        Args:
            aggregate_function: The function that maintains the accumulator.
            window_function: A window function that receives the result of the accumulator as its only element.
            accumulator_type: The type of the accumulator.
            output_type: The type of the results.

        Raises:
            GraphError: If a function is of the wrong kind.
        """
        missing = [method for method in _MERGE if not hasattr(aggregate_function, method)]
        if missing or isinstance(aggregate_function, type):
            raise GraphError(
                f"aggregate needs an AggregateFunction, not {_named(aggregate_function)}"
                + (f", which lacks {', '.join(missing)}." if missing else "."),
                fix=f"Write {aggregate_function.__name__}()." if isinstance(aggregate_function, type) else "",
            )
        check_stateless(aggregate_function)
        if isinstance(accumulator_type, list):
            accumulator_type = Types.ROW(accumulator_type)
        hint = hints.returned(aggregate_function, "create_accumulator", "add")
        combiner = Combiner(aggregate_function, aggregates=True)
        output_type = output_type or (hints.returned(aggregate_function, "get_result") if not window_function else None)
        return self._combined(combiner, accumulator_type or _paying(hint), window_function, output_type)

    # -- internals -----------------------------------------------------------------------------------------------------

    def _reduced(self, function: Any, window_function: Any, output_type: Any) -> DataStream:
        value_type = self._keyed_stream._type()
        if value_type is None or isinstance(value_type, Hinted):
            value_type = hints.returned(function, "reduce") or value_type
        if window_function is None:
            output_type = output_type or value_type
        return self._combined(Combiner(function, aggregates=False), _paying(value_type), window_function, output_type)

    def _combined(self, combiner: Combiner, value_type: Any, function: Any, output_type: Any) -> DataStream:
        if function is None:
            return self._add(combiner, value_type, combiner.function, "", output_type)
        if isinstance(function, self._applied):
            call = "apply"
        elif isinstance(function, self._processed):
            call = "process"
        else:
            raise GraphError(
                f"The window_function must be an instance of {self._applied.__name__} or {self._processed.__name__}, "
                f"not {_named(function)}."
            )
        return self._add(combiner, value_type, function, call, output_type or hints.yielded(function, call))

    def _listed(self, function: Any, kind: type[Function], call: str, output_type: Any) -> DataStream:
        if isinstance(function, type) and issubclass(function, Function):
            raise GraphError(
                f"{call} received the class {_named(function)} instead of an instance.",
                fix=f"Write {call}({function.__name__}()).",
            )
        if not isinstance(function, kind) and (isinstance(function, Function) or not callable(function)):
            raise GraphError(f"{call} needs a function or an instance of {kind.__name__}, not {_named(function)}.")
        # Only a declared type counts: adding an annotation later must not change how records are stored.
        value_type = self._keyed_stream._type()
        value_type = None if isinstance(value_type, Hinted) else value_type
        return self._add(None, value_type, function, call, output_type or hints.yielded(function, call))

    def _add(
        self, combiner: Combiner | None, value_type: Any, function: Any, call: str, output_type: Any
    ) -> DataStream:
        description = self._description(combiner, value_type, call)
        name = type(self._assigner).__name__
        stream = self._keyed_stream._add(name, window_operator(description, function), output_type)
        trigger = type(description.trigger).__name__
        stream.set_description(f"Window({self._assigner!r}, {trigger}, {describe(function)})")
        return stream

    def _description(self, combiner: Combiner | None, value_type: Any, call: str) -> WindowDescription:
        return WindowDescription(
            assigner=self._assigner,
            trigger=self._trigger or self._assigner.get_default_trigger(self.get_execution_environment()),
            evictor=self._evictor,
            allowed_lateness=self._allowed_lateness,
            late_tag=self._late_tag,
            combiner=combiner,
            value_type=value_type,
            call=call,
            of_all=self._of_all,
        )


class WindowedStream(_Windowed[T_co, K_co, W]):
    """The windows of a keyed stream, separate for each key.

    ``keyed_stream.window(...)`` returns it.
    """

    def apply(
        self,
        window_function: WindowFunction[T_co, R, K_co, W] | Callable[[K_co, W, Iterable[T_co]], Iterable[R] | None],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a function to the records of each window.

        Args:
            window_function: A ``WindowFunction``, or a function of the key, the window and its records.
            output_type: The type of the results. By default it is taken from the function's return annotation.
        """
        return self._listed(window_function, WindowFunction, "apply", output_type)

    def process(
        self,
        process_window_function: ProcessWindowFunction[T_co, R, K_co, W]
        | Callable[[K_co, WindowContext[W], Iterable[T_co]], Iterable[R | SideOutput] | None],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a function with a context to the records of each window.

        Args:
            process_window_function: A ``ProcessWindowFunction``, or a function of the key, a context and the records.
            output_type: The type of the results. By default it is taken from the function's return annotation.
        """
        return self._listed(process_window_function, ProcessWindowFunction, "process", output_type)


class AllWindowedStream(_Windowed[T_co, int, W], Generic[T_co, W]):
    """The windows of a stream without keys. All records go to one subtask.

    ``stream.window_all(...)`` returns it.
    """

    _of_all = True
    _applied = AllWindowFunction
    _processed = ProcessAllWindowFunction

    def __init__(self, data_stream: DataStream[T_co], window_assigner: WindowAssigner[Any, W]) -> None:
        super().__init__(data_stream.key_by(_One()), window_assigner)

    def apply(
        self,
        window_function: AllWindowFunction[T_co, R, W] | Callable[[W, Iterable[T_co]], Iterable[R] | None],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a function to the records of each window.

        Args:
            window_function: An ``AllWindowFunction``, or a function of the window and its records.
            output_type: The type of the results. By default it is taken from the function's return annotation.
        """
        return self._listed(window_function, AllWindowFunction, "apply", output_type)

    def process(
        self,
        process_window_function: ProcessAllWindowFunction[T_co, R, W]
        | Callable[[WindowContext[W], Iterable[T_co]], Iterable[R | SideOutput] | None],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a function with a context to the records of each window.

        Args:
            process_window_function: A ``ProcessAllWindowFunction``, or a function of a context and the records.
            output_type: The type of the results. By default it is taken from the function's return annotation.
        """
        return self._listed(process_window_function, ProcessAllWindowFunction, "process", output_type)

    def _add(
        self, combiner: Combiner | None, value_type: Any, function: Any, call: str, output_type: Any
    ) -> DataStream:
        stream = super()._add(combiner, value_type, function, call, output_type)
        return stream.set_parallelism(1).set_max_parallelism(1)


class _One(KeySelector):
    """A selector that returns the same key for all records."""

    def get_key(self, value: Any) -> int:
        return 0


def _paying(value_type: Any) -> Any:
    """Return a hinted type only if it is cheaper than pickle. None stands for pickled values."""
    return None if isinstance(value_type, Hinted) and not value_type.pays_in_state() else value_type


def _named(given: Any) -> str:
    return given.__name__ if isinstance(given, type) else type(given).__name__


def time_windows(
    size: Length, slide: Length | None, time: TimeCharacteristic = TimeCharacteristic.EventTime
) -> WindowAssigner[Any, TimeWindow]:
    """Return the assigner of windows of this time: sliding if ``slide`` is given, otherwise tumbling."""
    if time is TimeCharacteristic.ProcessingTime:
        return TumblingProcessingTimeWindows.of(size) if slide is None else SlidingProcessingTimeWindows.of(size, slide)
    return TumblingEventTimeWindows.of(size) if slide is None else SlidingEventTimeWindows.of(size, slide)


def count_windows(size: int, slide: int) -> WindowAssigner[Any, CountWindow]:
    """Return the assigner of windows of ``size`` records: sliding if ``slide`` is not 0, otherwise tumbling."""
    return CountTumblingWindowAssigner(size) if slide == 0 else CountSlidingWindowAssigner(size, slide)
