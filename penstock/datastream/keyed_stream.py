"""Keyed streams: records partitioned by key, and operations on the state of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.common.names import check_name
from penstock.common.type_parameters import K_co, R, T_co, U, W
from penstock.common.typeinfo import Types
from penstock.connectors.sink import Sink
from penstock.datastream import hints
from penstock.datastream.aggregations import KeyAndRecord, field_reducer
from penstock.datastream.checks import check_function, check_process_function
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import (
    KeyedProcessFunction,
    KeySelector,
    ReduceFunction,
)
from penstock.datastream.sinks import AnySinkFunction, DataStreamSink
from penstock.datastream.windowed import WindowedStream, count_windows, time_windows
from penstock.graph.logical import GraphError, Input, Node, Partitioning
from penstock.runtime.context import FunctionContext
from penstock.runtime.map_operators import KeyedFilterOperator, KeyedFlatMapOperator, KeyedMapOperator, MapOperator
from penstock.runtime.operators import describe
from penstock.runtime.output_tag import SideOutput
from penstock.runtime.process_operators import ProcessOperator
from penstock.runtime.state_operators import QueryableStateOperator, ReduceOperator, WithStateOperator
from penstock.runtime.windows.assigners import Length, WindowAssigner
from penstock.runtime.windows.window import CountWindow, TimeWindow
from penstock.state.descriptors import ReducingStateDescriptor, ValueStateDescriptor
from penstock.state.serializers import Hinted

if TYPE_CHECKING:
    from penstock.datastream.environment import StreamExecutionEnvironment


K2 = TypeVar("K2")
S = TypeVar("S")


class KeyedStream(DataStream[T_co], Generic[T_co, K_co]):
    """A stream partitioned by key, whose operators can hold keyed state and timers.

    ``stream.key_by(...)`` returns it.
    """

    class AccumulateType(Enum):
        """The rolling aggregates of a keyed stream."""

        MIN = 1
        MAX = 2
        MIN_BY = 3
        MAX_BY = 4
        SUM = 5

    _map_operator = KeyedMapOperator
    _flat_map_operator = KeyedFlatMapOperator
    _filter_operator = KeyedFilterOperator

    def __init__(
        self,
        env: StreamExecutionEnvironment,
        inputs: list[Input],
        origin: DataStream[T_co],
        selector: Callable[[T_co], K_co] | KeySelector[T_co, K_co],
        key_type: Any = None,
    ) -> None:
        super().__init__(env, inputs)
        self._origin = origin
        self._selector = selector
        self._key_type = key_type

    @property
    def _node(self) -> Node:
        raise GraphError("key_by is not an operator: set name, uid and parallelism on the operator after it.")

    def process(  # type: ignore[override]
        self,
        func: KeyedProcessFunction[K_co, T_co, R]
        | Callable[[T_co, FunctionContext[K_co]], Iterable[R | SideOutput] | None],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a function with access to keyed state, timers and side outputs.

        Args:
            func: A ``KeyedProcessFunction``, or a generator function of a record and its context.
            output_type: The type of the results. By default it is taken from the function's return annotation.

        Raises:
            GraphError: If ``func`` is a ``ProcessFunction``.
        """
        check_process_function(func, keyed=True)
        output_type = output_type or hints.yielded(func, "process_element")
        return self._add("Keyed Process", ProcessOperator(func, keyed=True), output_type)

    def reduce(self, func: Callable[[T_co, T_co], T_co] | ReduceFunction[T_co]) -> DataStream[T_co]:
        """Combine each record with the reduced value of its key, and emit the new value.

        Args:
            func: A function of two values that returns one of the same type, or a ``ReduceFunction``.

        Example:
            >>> totals = amounts.key_by(lambda a: a[0]).reduce(lambda x, y: (x[0], x[1] + y[1]))
        """
        check_function(func, ReduceFunction, "reduce")
        return self._reduce("Reduce", func)

    def sum(self, position_to_sum: int | str = 0) -> DataStream[T_co]:
        """Emit, for each record, the running sum of a field per key.

        Args:
            position_to_sum: The position or name of the field.
        """
        return self._reduce("Sum", field_reducer("sum", position_to_sum))

    def min(self, position_to_min: int | str = 0) -> DataStream[T_co]:
        """Emit, for each record, the running minimum of a field per key.

        Args:
            position_to_min: The position or name of the field.
        """
        return self._reduce("Min", field_reducer("min", position_to_min))

    def max(self, position_to_max: int | str = 0) -> DataStream[T_co]:
        """Emit, for each record, the running maximum of a field per key.

        Args:
            position_to_max: The position or name of the field.
        """
        return self._reduce("Max", field_reducer("max", position_to_max))

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream[T_co]:
        """Emit, for each record, the record of its key with the smallest value of a field so far.

        Of several records with equal values, the first wins.

        Args:
            position_to_min_by: The position or name of the field.
        """
        return self._reduce("Min By", field_reducer("min_by", position_to_min_by))

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream[T_co]:
        """Emit, for each record, the record of its key with the largest value of a field so far.

        Of several records with equal values, the first wins.

        Args:
            position_to_max_by: The position or name of the field.
        """
        return self._reduce("Max By", field_reducer("max_by", position_to_max_by))

    def window(self, window_assigner: WindowAssigner[Any, W]) -> WindowedStream[T_co, K_co, W]:
        """Group the records of each key into windows.

        Args:
            window_assigner: Assigns each record to its windows.

        Example:
            >>> clicks.key_by(user).window(TumblingEventTimeWindows.of(Time.minutes(1))).reduce(merge)
        """
        return WindowedStream(self, window_assigner)

    def time_window(self, size: Length, slide: Length | None = None) -> WindowedStream[T_co, K_co, TimeWindow]:
        """Group the records of each key into event-time windows.

        Args:
            size: The length of a window.
            slide: The interval between the starts of two windows. By default windows tumble.
        """
        return WindowedStream(self, time_windows(size, slide, self._env._time_characteristic))

    def count_window(self, size: int, slide: int = 0) -> WindowedStream[T_co, K_co, CountWindow]:
        """Group the records of each key into windows of ``size`` records.

        Args:
            size: The number of records in a window.
            slide: The number of records between the starts of two windows. By default windows tumble.
        """
        return WindowedStream(self, count_windows(size, slide))

    def map_with_state(
        self, func: Callable[[T_co, S | None], tuple[R, S | None]], state_type: Any = None, output_type: Any = None
    ) -> DataStream[R]:
        """Apply a function to each record and the state of its key, and emit its result.

        Args:
            func: Called as ``func(value, state)`` with ``None`` as the state of a new key. It returns the result and
                the new state; ``None`` as the new state clears it.
            state_type: The type of the state. It is required unless the function is annotated with ``-> tuple[Result,
                State]``.
            output_type: The type of the results. By default it is taken from the function's return annotation.

        Example:
            >>> def number(word: str, seen: int | None) -> tuple[str, int]:
            ...     return f"{word} {seen or 0}", (seen or 0) + 1
            >>> words.key_by(lambda word: word).map_with_state(number)
        """
        return self._with_state("map", func, state_type, output_type)

    def flat_map_with_state(
        self,
        func: Callable[[T_co, S | None], tuple[Iterable[R] | None, S | None]],
        state_type: Any = None,
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a function to each record and the state of its key, and emit any number of results.

        Args:
            func: Called as ``func(value, state)`` with ``None`` as the state of a new key. It returns an iterable of
                results, or ``None``, and the new state; ``None`` as the new state clears it.
            state_type: The type of the state. It is required unless the function's annotation contains it.
            output_type: The type of the results. By default it is taken from the function's return annotation.
        """
        return self._with_state("flat_map", func, state_type, output_type)

    def filter_with_state(
        self, func: Callable[[T_co, S | None], tuple[bool, S | None]], state_type: Any = None
    ) -> DataStream[T_co]:
        """Keep the records for which a function of the record and the state of its key returns a true value.

        Args:
            func: Called as ``func(value, state)`` with ``None`` as the state of a new key. It returns whether to keep
                the record, and the new state; ``None`` as the new state clears it.
            state_type: The type of the state. It is required unless the function's annotation contains it.
        """
        return self._with_state("filter", func, state_type, self._type())

    def _with_state(self, how: str, func: Any, state_type: Any, output_type: Any) -> DataStream:
        if not callable(func):
            raise GraphError(f"{how}_with_state needs a function of (value, state), not {type(func).__name__}.")
        one, each, state = hints.with_state(func)
        if state_type is None:
            state_type = state
        if state_type is None:
            raise GraphError(
                f"{how}_with_state needs the type of the state, but {describe(func)} has no annotation for it: "
                f"pass state_type, or annotate the function with -> tuple[Result, State]."
            )
        if not isinstance(state_type, Hinted):
            ValueStateDescriptor("_state", state_type)
        if how != "filter":
            output_type = output_type or (one if how == "map" else each)
        name = f"{how.replace('_', ' ').title()} With State"
        return self._add(name, WithStateOperator(func, how, state_type), output_type)

    def key_by(
        self, key_selector: Callable[[T_co], K2] | KeySelector[T_co, K2], key_type: Any = None
    ) -> KeyedStream[T_co, K2]:
        """Partition the stream by another key.

        Args:
            key_selector: A function that returns the key of a record, or a ``KeySelector``.
            key_type: The type of the keys.
        """
        return self._origin.key_by(key_selector, key_type)

    def _partitioned(self, partitioning: Partitioning) -> DataStream[T_co]:
        raise GraphError(
            f"A keyed stream is partitioned by its key, which {partitioning.kind} would override. "
            f"Call {partitioning.kind} before key_by, or after the keyed operator."
        )

    def project(self, *field_indexes: int) -> DataStream[Any]:
        """Keep only some fields of each record. The result is not keyed.

        Args:
            field_indexes: The positions of the fields to keep, in the order of the result.
        """
        return self._origin.project(*field_indexes)

    def union(self, *streams: DataStream[U]) -> DataStream[T_co | U]:
        """Merge this stream with other streams. The result is not keyed.

        Args:
            streams: The streams to merge with.
        """
        return self._origin.union(*(s._origin if isinstance(s, KeyedStream) else s for s in streams))

    def _reduce(self, name: str, func: Any) -> DataStream:
        value_type = self._type()
        if value_type is None or isinstance(value_type, Hinted):
            value_type = hints.returned(func, "reduce") or value_type
        return self._add(name, ReduceOperator(func, _stored_type(value_type)), value_type)

    def as_queryable_state(
        self,
        queryable_state_name: str,
        state_descriptor: ValueStateDescriptor[Any] | ReducingStateDescriptor[Any] | None = None,
    ) -> DataStreamSink:
        """Keep a value per key that other programs can read while the job runs: docs/query/queryable-state.md.

        The job needs ``queryable-state.enable``.

        Args:
            queryable_state_name: The name under which to read it, unique within the job.
            state_descriptor: A ``ValueStateDescriptor`` keeps the last record of each key, which is also the default. A
                ``ReducingStateDescriptor`` keeps all records of a key, reduced to one.

        Example:
            >>> amounts.key_by(customer).as_queryable_state("last order").uid("last-order")
        """
        if not isinstance(state_descriptor, (ValueStateDescriptor, ReducingStateDescriptor, NoneType)):
            raise GraphError(
                f"as_queryable_state keeps value state and reducing state, not {type(state_descriptor).__name__}.",
                fix="Keep other kinds of state in a function, and call set_queryable on their descriptors.",
            )
        name = check_name(queryable_state_name, "The name of a queryable state", GraphError)
        if state_descriptor is not None:
            state_descriptor.set_queryable(name)
        node = self._env._graph.add(
            f"Queryable State {name}",
            inputs=self._inputs,
            operator=QueryableStateOperator(name, _stored_type(self._type()), state_descriptor),
        )
        return DataStreamSink(self._env, node)

    def _end(self, name: str, sink: Sink) -> DataStreamSink:
        return self._origin._end(name, sink)

    def _collected(self) -> DataStream[Any]:
        declared = self._type()
        parts = [self._key_type or Types.PICKLED_BYTE_ARRAY(), None if isinstance(declared, Hinted) else declared]
        pairs = Types.ROW([part or Types.PICKLED_BYTE_ARRAY() for part in parts])
        return self._origin._add("Key By", MapOperator(KeyAndRecord(self._selector)), pairs)

    def add_sink(self, sink_func: AnySinkFunction[T_co]) -> DataStreamSink:
        """Write the stream with a function; see ``DataStream.add_sink``.

        Args:
            sink_func: A function of one record, or any of the sink functions.
        """
        return self._origin.add_sink(sink_func)


def _stored_type(record_type: Any) -> Any:
    """Return the type of a state that holds records of this type. Records without a type are objects to be pickled."""
    pickled = record_type is None or (isinstance(record_type, Hinted) and not record_type.pays_in_state())
    return Types.PICKLED_BYTE_ARRAY() if pickled else record_type
