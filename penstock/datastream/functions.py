"""The function classes that users extend. The API also accepts plain callables and generator functions."""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum
from typing import Any, Generic, TypeAlias

from penstock.absent import explain_absent
from penstock.common.type_parameters import ACC, IN, IN1, IN2, KEY, OUT, T
from penstock.datastream.async_functions import AsyncFunction, AsyncRetryPredicate, AsyncRetryStrategy
from penstock.datastream.function_base import Function, Results, ResultsAndSideOutputs
from penstock.datastream.window_functions import (
    AllWindowFunction,
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    ProcessAllWindowFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from penstock.runtime.broadcast import (
    BroadcastBaseContext,
    BroadcastContext,
    BroadcastReadOnlyContext,
    KeyedBroadcastContext,
    KeyedBroadcastReadOnlyContext,
    KeyedBroadcastTimerContext,
)
from penstock.runtime.checkpointed import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListCheckpointed,
)
from penstock.runtime.context import FunctionContext, OnTimerContext, RuntimeContext
from penstock.runtime.timers import TimerService
from penstock.runtime.windows.scopes import KeyedStateStore


class MapFunction(Function, Generic[IN, OUT]):
    """A function that returns one result for each record."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """Return the result for a record."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """A function that returns any number of results for each record."""

    @abstractmethod
    def flat_map(self, value: IN) -> Results[OUT]:
        """Yield any number of results for a record."""


class FilterFunction(Function, Generic[IN]):
    """A function that decides which records to keep."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """Return whether to keep a record."""


class ReduceFunction(Function, Generic[T]):
    """A function that combines two values into one of the same type."""

    @abstractmethod
    def reduce(self, value1: T, value2: T) -> T:
        """Return the combination of two values.

        Args:
            value1: The value reduced so far.
            value2: The next value.
        """


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """A function that adds values to an accumulator.

    The accumulator can have a different type than the values and the result.

    Example:
        >>> class Average(AggregateFunction):
        ...     def create_accumulator(self):
        ...         return 0, 0
        ...     def add(self, value, accumulator):
        ...         return accumulator[0] + value, accumulator[1] + 1
        ...     def get_result(self, accumulator):
        ...         return accumulator[0] / accumulator[1]
        ...     def merge(self, acc_a, acc_b):
        ...         return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]
    """

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return a new, empty accumulator."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """Return the accumulator with a value added. It can be the same object, modified in place.

        Args:
            value: The value to add.
            accumulator: The current accumulator.
        """

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Return the result of an accumulator."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Return the combination of two accumulators. Only windows that merge, such as session windows, call it."""


class KeySelector(Function, Generic[IN, OUT]):
    """A function that returns the key of a record."""

    @abstractmethod
    def get_key(self, value: IN) -> OUT:
        """Return the key of a record. Equal records must always have equal keys."""


class Partitioner(Function, Generic[KEY]):
    """A function that chooses a subtask for a key, for ``partition_custom``."""

    @abstractmethod
    def partition(self, key: KEY, num_partitions: int) -> int:
        """Return the index, starting at 0, of the subtask that receives the records of a key.

        Args:
            key: The key.
            num_partitions: The number of subtasks of the next operator.
        """


class ProcessFunction(Function, Generic[IN, OUT]):
    """A function that processes each record with a context, which provides timestamps, watermarks and side outputs."""

    Context: TypeAlias = FunctionContext

    @abstractmethod
    def process_element(self, value: IN, ctx: FunctionContext) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results for a record.

        Args:
            value: The record.
            ctx: Provides the record's timestamp and the current watermark.
        """


class KeyedProcessFunction(Function, Generic[KEY, IN, OUT]):
    """A function that processes each record of a keyed stream, with the state and timers of the record's key.

    Example:
        >>> class Count(KeyedProcessFunction):
        ...     def open(self, runtime_context):
        ...         self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        ...     def process_element(self, value, ctx):
        ...         count = (self.count.value() or 0) + 1
        ...         self.count.update(count)
        ...         yield ctx.get_current_key(), count
    """

    Context: TypeAlias = FunctionContext
    OnTimerContext: TypeAlias = OnTimerContext

    @abstractmethod
    def process_element(self, value: IN, ctx: FunctionContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results for a record. State obtained in ``open`` belongs to the record's key.

        Args:
            value: The record.
            ctx: Provides the key, the record's timestamp and the timer service.
        """

    def on_timer(self, timestamp: int, ctx: OnTimerContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Handle a timer registered with ``ctx.timer_service()``. State belongs to the timer's key.

        It can yield results, like ``process_element``.

        Args:
            timestamp: The time for which the timer was registered, in milliseconds.
            ctx: Provides the key, the time domain and the timer service.
        """


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """A map function over connected streams: ``map1`` receives the first stream, ``map2`` the second.

    A result of ``None`` is not emitted.
    """

    @abstractmethod
    def map1(self, value: IN1) -> OUT | None:
        """Return the result for a record of the first stream."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT | None:
        """Return the result for a record of the second stream."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """A function that returns any number of results for each record of two connected streams."""

    @abstractmethod
    def flat_map1(self, value: IN1) -> Results[OUT]:
        """Yield any number of results for a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Results[OUT]:
        """Yield any number of results for a record of the second stream."""


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """A function over two connected streams, with access to timestamps and side outputs."""

    Context: TypeAlias = FunctionContext

    @abstractmethod
    def process_element1(self, value: IN1, ctx: FunctionContext) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results for a record of the first stream.

        Args:
            value: The record.
            ctx: Provides the record's timestamp and the current watermark.
        """

    @abstractmethod
    def process_element2(self, value: IN2, ctx: FunctionContext) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results for a record of the second stream.

        Args:
            value: The record.
            ctx: Provides the record's timestamp and the current watermark.
        """


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """A function over two connected keyed streams. Records with equal keys share the key's state and timers."""

    Context: TypeAlias = FunctionContext
    OnTimerContext: TypeAlias = OnTimerContext

    @abstractmethod
    def process_element1(self, value: IN1, ctx: FunctionContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results for a record of the first stream.

        Args:
            value: The record.
            ctx: Provides the key, the record's timestamp and the timer service.
        """

    @abstractmethod
    def process_element2(self, value: IN2, ctx: FunctionContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results for a record of the second stream.

        Args:
            value: The record.
            ctx: Provides the key, the record's timestamp and the timer service.
        """

    def on_timer(self, timestamp: int, ctx: OnTimerContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Handle a timer registered with ``ctx.timer_service()``. State belongs to the timer's key.

        It can yield results, like ``process_element1``.

        Args:
            timestamp: The time for which the timer was registered, in milliseconds.
            ctx: Provides the key, the time domain and the timer service.
        """


class BaseBroadcastProcessFunction(Function):
    """The base of functions over a stream connected to a broadcast stream.

    Every subtask receives every broadcast record and keeps its own copy of broadcast state, so each must update it in
    the same way. Other records can only read that state.
    """

    BaseContext: TypeAlias = BroadcastBaseContext
    Context: TypeAlias = BroadcastContext
    ReadOnlyContext: TypeAlias = BroadcastReadOnlyContext


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """A function over a stream without keys and a broadcast stream."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: BroadcastReadOnlyContext) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results for a record of the stream that is not broadcast. One subtask receives it.

        Args:
            value: The record.
            ctx: Provides read-only access to broadcast state.
        """

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: BroadcastContext) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results for a broadcast record. Every subtask receives it and emits its own results.

        Args:
            value: The record.
            ctx: Provides access to broadcast state.
        """


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """A function over a keyed stream and a broadcast stream, with the state and timers of the keys."""

    Context: TypeAlias = KeyedBroadcastContext
    ReadOnlyContext: TypeAlias = KeyedBroadcastReadOnlyContext
    OnTimerContext: TypeAlias = KeyedBroadcastTimerContext

    @abstractmethod
    def process_element(self, value: IN1, ctx: KeyedBroadcastReadOnlyContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results for a record. State obtained in ``open`` belongs to the record's key.

        Args:
            value: The record.
            ctx: Provides the key, the timer service and read-only access to broadcast state.
        """

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: KeyedBroadcastContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results for a broadcast record.

        A broadcast record has no key. Access keyed state with ``ctx.apply_to_keyed_state``.

        Args:
            value: The record.
            ctx: Provides access to broadcast state and to the state of all keys.
        """

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastTimerContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Handle a timer registered with ``ctx.timer_service()``. State belongs to the timer's key.

        It can yield results, like ``process_element``.

        Args:
            timestamp: The time for which the timer was registered, in milliseconds.
            ctx: Provides the key, the timer service and read-only access to broadcast state.
        """


class AsyncFunctionDescriptor:
    """The arguments of a call of ``AsyncDataStream``."""

    class OutputMode(Enum):
        """Whether results keep the order of the records."""

        ORDERED = 0
        UNORDERED = 1

    def __init__(
        self,
        async_function: AsyncFunction[Any, Any],
        timeout: Any,
        capacity: int,
        async_retry_strategy: AsyncRetryStrategy,
        output_mode: OutputMode,
    ) -> None:
        self.async_function = async_function
        self.timeout = timeout
        self.capacity = capacity
        self.async_retry_strategy = async_retry_strategy
        self.output_mode = output_mode


class SourceFunction:
    """Flink's wrapper of a source in Java. ``env.add_source`` refuses it and names its replacement.

    Args:
        source_func: The Java class.
    """

    def __init__(self, source_func: object = None) -> None:
        self.source_func = source_func


class SinkFunction(Function, Generic[IN]):
    """A sink that writes each record immediately, at least once.

    For exactly-once output, implement a ``Sink`` or a ``TwoPhaseCommitSinkFunction``.
    """

    @abstractmethod
    def invoke(self, value: IN, context: FunctionContext) -> None:
        """Write a record.

        Args:
            value: The record.
            context: Provides the record's timestamp and the current watermark.
        """


__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AsyncFunction",
    "AsyncFunctionDescriptor",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "JoinFunction",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "ListCheckpointed",
    "MapFunction",
    "Partitioner",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "SinkFunction",
    "SourceFunction",
    "TimerService",
    "WindowFunction",
]

explain_absent(__name__)
