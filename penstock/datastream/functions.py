"""The functions users write. Wherever one of these is taken, a plain callable or generator function is too."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeAlias

from penstock.absent import explain_absent
from penstock.common.type_parameters import ACC, IN, IN1, IN2, KEY, OUT, T, W
from penstock.datastream.async_functions import AsyncFunction, AsyncRetryPredicate, AsyncRetryStrategy
from penstock.datastream.function_base import Function
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
from penstock.runtime.joins import JoinContext
from penstock.runtime.output_tag import SideOutput
from penstock.runtime.timers import TimerService
from penstock.runtime.windows.contexts import WindowContext
from penstock.runtime.windows.scopes import KeyedStateStore

Results: TypeAlias = Iterable[OUT] | None
"""Any number of results; None for none."""
ResultsAndSideOutputs: TypeAlias = Iterable[OUT | SideOutput] | None
"""Any number of results, with `tag, value` for side outputs; None for none."""


class MapFunction(Function, Generic[IN, OUT]):
    """A function that gives one result for each record."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """Return the result for a record."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """A function that gives any number of results for each record."""

    @abstractmethod
    def flat_map(self, value: IN) -> Results[OUT]:
        """Yield any number of results."""


class FilterFunction(Function, Generic[IN]):
    """A function that says which records stay."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """Return whether the record stays."""


class ReduceFunction(Function, Generic[T]):
    """A function that combines two values into one of the same type."""

    @abstractmethod
    def reduce(self, value1: T, value2: T) -> T:
        """Return the combination of two values."""


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """A function that adds values to an accumulator, which can have another type than values and results."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return a new, empty accumulator."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """The accumulator with `value` added; it may be the one given, changed."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Return the result that an accumulator stands for."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Return an accumulator that holds what two others do; needed for session windows."""


class KeySelector(Function, Generic[IN, OUT]):
    """A function that gives the key of a record."""

    @abstractmethod
    def get_key(self, value: IN) -> OUT:
        """Return the key of a record; it must be the same whenever it is called."""


class Partitioner(Function, Generic[KEY]):
    """A function that chooses the subtask for a key, for `partition_custom`."""

    @abstractmethod
    def partition(self, key: KEY, num_partitions: int) -> int:
        """The number of the partition, from 0 on, that records of this key go to."""


class ProcessFunction(Function, Generic[IN, OUT]):
    """Sees every record with a context."""

    Context: TypeAlias = FunctionContext

    @abstractmethod
    def process_element(self, value: IN, ctx: FunctionContext) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results."""


class KeyedProcessFunction(Function, Generic[KEY, IN, OUT]):
    """Sees every record of a keyed stream, with the state and the timers of its key."""

    Context: TypeAlias = FunctionContext
    OnTimerContext: TypeAlias = OnTimerContext

    @abstractmethod
    def process_element(self, value: IN, ctx: FunctionContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results. State obtained in `open` is that of the record's key."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Called when a timer set through `ctx.timer_service()` is due, with the state of its key. May yield."""


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """For connected streams: `map1` sees the first, `map2` the second. A result of None is no record."""

    @abstractmethod
    def map1(self, value: IN1) -> OUT | None:
        """Return the result for a record of the first stream."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT | None:
        """Return the result for a record of the second stream."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """A function that gives any number of results for each record of two connected streams."""

    @abstractmethod
    def flat_map1(self, value: IN1) -> Results[OUT]:
        """Yield any number of results."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Results[OUT]:
        """Yield any number of results."""


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """A function of two connected streams, with access to time and side outputs."""

    Context: TypeAlias = FunctionContext

    @abstractmethod
    def process_element1(self, value: IN1, ctx: FunctionContext) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: FunctionContext) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results."""


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """For connected streams that are both keyed: records of equal keys share the state and the timers of the key."""

    Context: TypeAlias = FunctionContext
    OnTimerContext: TypeAlias = OnTimerContext

    @abstractmethod
    def process_element1(self, value: IN1, ctx: FunctionContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: FunctionContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Called when a timer set through `ctx.timer_service()` is due, with the state of its key. May yield."""


class BaseBroadcastProcessFunction(Function):
    """A function of a stream that is connected to a broadcast one.

    Broadcast records go to every subtask and can change broadcast state. Every subtask has a copy of that state, so
    each must change it in the same way. All other records can only read it.
    """

    BaseContext: TypeAlias = BroadcastBaseContext
    Context: TypeAlias = BroadcastContext
    ReadOnlyContext: TypeAlias = BroadcastReadOnlyContext


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """Of a stream that is not keyed."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: BroadcastReadOnlyContext) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results. Sees the records that are not broadcast, each in one subtask."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: BroadcastContext) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results: as often as there are subtasks, for each sees the record."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """Of a keyed stream, with the state and the timers of its keys."""

    Context: TypeAlias = KeyedBroadcastContext
    ReadOnlyContext: TypeAlias = KeyedBroadcastReadOnlyContext
    OnTimerContext: TypeAlias = KeyedBroadcastTimerContext

    @abstractmethod
    def process_element(self, value: IN1, ctx: KeyedBroadcastReadOnlyContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results. State obtained in `open` is that of the record's key."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: KeyedBroadcastContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results. There is no key: keyed state is reached by `ctx.apply_to_keyed_state`."""

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastTimerContext[KEY]) -> ResultsAndSideOutputs[OUT]:
        """Called when a timer set through `ctx.timer_service()` is due, with the state of its key. May yield."""


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """For interval joins: sees each pair of records whose times lie near each other."""

    Context: TypeAlias = JoinContext

    @abstractmethod
    def process_element(self, left: IN1, right: IN2, ctx: JoinContext) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results."""


class JoinFunction(Function, Generic[IN1, IN2, OUT]):
    """For window joins: sees each pair of records of one key and window."""

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> OUT:
        """Return the result for a pair of records."""


class FlatJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """As JoinFunction, with any number of results for each pair."""

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> Results[OUT]:
        """Yield any number of results."""


class CoGroupFunction(Function, Generic[IN1, IN2, OUT]):
    """Sees all records of one key and window, those of each stream for themselves."""

    @abstractmethod
    def co_group(self, first: Iterable[IN1], second: Iterable[IN2]) -> Results[OUT]:
        """Yield any number of results. Either of the two may be empty."""


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Sees the records of a window of a key."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Results[OUT]:
        """Yield any number of results."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Sees the records of a window of a stream that is not keyed."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Results[OUT]:
        """Yield any number of results."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Sees the records of a window of a key, with a context. May yield `tag, value` for side outputs."""

    Context: TypeAlias = WindowContext

    @abstractmethod
    def process(self, key: KEY, context: WindowContext[W], elements: Iterable[IN]) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results."""

    def clear(self, context: WindowContext[W]) -> None:
        """The window is gone: clear what it has in `context.window_state()`."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Sees the records of a window of a stream that is not keyed, with a context."""

    Context: TypeAlias = WindowContext

    @abstractmethod
    def process(self, context: WindowContext[W], elements: Iterable[IN]) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results."""

    def clear(self, context: WindowContext[W]) -> None:
        """The window is gone: clear what it has in `context.window_state()`."""


class SinkFunction(Function, Generic[IN]):
    """The end of a stream that acts on each record at once. For effects that must happen once, write a `Sink`."""

    @abstractmethod
    def invoke(self, value: IN, context: FunctionContext) -> None:
        """Write a record."""


__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AsyncFunction",
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
    "TimerService",
    "WindowFunction",
]

explain_absent(__name__)
