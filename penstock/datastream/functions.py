"""The functions users write. Wherever one of these is taken, a plain callable or generator function is too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.absent import explain_absent
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
from penstock.runtime.timers import TimerService
from penstock.runtime.windows.contexts import WindowContext
from penstock.runtime.windows.scopes import KeyedStateStore

IN = TypeVar("IN")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W")


class Function(ABC):  # noqa: B024  methods to override, none required
    """`open` is called once before the first record of a subtask in a worker process, `close` when it is dropped.

    The same object serves many epochs. What must survive a failure belongs in state, not in attributes.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare the function; called before the first record, in each worker process that runs a subtask of it.

        Args:
            runtime_context: Gives state, metrics and the number of the subtask.
        """

    def close(self) -> None:
        """Release what `open` acquired; called when the job ends or fails."""


class MapFunction(Function):
    """A function that gives one result for each record."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """Return the result for a record."""


class FlatMapFunction(Function):
    """A function that gives any number of results for each record."""

    @abstractmethod
    def flat_map(self, value: Any) -> Any:
        """Yield any number of results."""


class FilterFunction(Function):
    """A function that says which records stay."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Return whether the record stays."""


class ReduceFunction(Function):
    """A function that combines two values into one of the same type."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """Return the combination of two values."""


class AggregateFunction(Function):
    """A function that adds values to an accumulator, which can have another type than values and results."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return a new, empty accumulator."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator with `value` added; it may be the one given, changed."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """Return the result that an accumulator stands for."""

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Return an accumulator that holds what two others do; needed for session windows."""


class KeySelector(Function):
    """A function that gives the key of a record."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """Return the key of a record; it must be the same whenever it is called."""


class Partitioner(Function):
    """A function that chooses the subtask for a key, for `partition_custom`."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """The number of the partition, from 0 on, that records of this key go to."""


class ProcessFunction(Function):
    """Sees every record with a context."""

    Context: TypeAlias = FunctionContext

    @abstractmethod
    def process_element(self, value: Any, ctx: FunctionContext) -> Any:
        """Yield any number of results."""


class KeyedProcessFunction(Function):
    """Sees every record of a keyed stream, with the state and the timers of its key."""

    Context: TypeAlias = FunctionContext
    OnTimerContext: TypeAlias = OnTimerContext

    @abstractmethod
    def process_element(self, value: Any, ctx: FunctionContext) -> Any:
        """Yield any number of results. State obtained in `open` is that of the record's key."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Any:
        """Called when a timer set through `ctx.timer_service()` is due, with the state of its key. May yield."""


class CoMapFunction(Function):
    """For connected streams: `map1` sees the first, `map2` the second. A result of None is no record."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """Return the result for a record of the first stream."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """Return the result for a record of the second stream."""


class CoFlatMapFunction(Function):
    """A function that gives any number of results for each record of two connected streams."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Any:
        """Yield any number of results."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Any:
        """Yield any number of results."""


class CoProcessFunction(Function):
    """A function of two connected streams, with access to time and side outputs."""

    Context: TypeAlias = FunctionContext

    @abstractmethod
    def process_element1(self, value: Any, ctx: FunctionContext) -> Any:
        """Yield any number of results."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: FunctionContext) -> Any:
        """Yield any number of results."""


class KeyedCoProcessFunction(Function):
    """For connected streams that are both keyed: records of equal keys share the state and the timers of the key."""

    Context: TypeAlias = FunctionContext
    OnTimerContext: TypeAlias = OnTimerContext

    @abstractmethod
    def process_element1(self, value: Any, ctx: FunctionContext) -> Any:
        """Yield any number of results."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: FunctionContext) -> Any:
        """Yield any number of results."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Any:
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
    def process_element(self, value: IN1, ctx: BroadcastReadOnlyContext) -> Any:
        """Yield any number of results. Sees the records that are not broadcast, each in one subtask."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: BroadcastContext) -> Any:
        """Yield any number of results: as often as there are subtasks, for each sees the record."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """Of a keyed stream, with the state and the timers of its keys."""

    Context: TypeAlias = KeyedBroadcastContext
    ReadOnlyContext: TypeAlias = KeyedBroadcastReadOnlyContext
    OnTimerContext: TypeAlias = KeyedBroadcastTimerContext

    @abstractmethod
    def process_element(self, value: IN1, ctx: KeyedBroadcastReadOnlyContext) -> Any:
        """Yield any number of results. State obtained in `open` is that of the record's key."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: KeyedBroadcastContext) -> Any:
        """Yield any number of results. There is no key: keyed state is reached by `ctx.apply_to_keyed_state`."""

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastTimerContext) -> Any:
        """Called when a timer set through `ctx.timer_service()` is due, with the state of its key. May yield."""


class AsyncRetryPredicate(ABC):
    """When to make an asynchronous call again. None in the place of a predicate means: never for that reason."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[Any]], bool] | None:
        """Return the test of results that are retried, or None."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """Return the test of exceptions that are retried, or None."""


class AsyncRetryStrategy(ABC):
    """Whether, and after how long, an asynchronous call is made again. One object serves many records at a time."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Whether there may be another attempt after this many."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """How long to wait before the next attempt, after this many."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """Return the predicate that says which results and exceptions are retried."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy:
        """Return a strategy that never retries."""
        from penstock.datastream.async_retry_strategies import NO_RETRY_STRATEGY

        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy:
        """Return a strategy that waits the same time before each retry.

        Args:
            max_attempts: How many retries a record has.
            backoff_time_millis: The time before each of them.
            result_predicate: Which results are retried.
            exception_predicate: Which exceptions are retried.
        """
        from penstock.datastream.async_retry_strategies import FixedDelayRetryStrategy

        return FixedDelayRetryStrategy(max_attempts, backoff_time_millis, result_predicate, exception_predicate)

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy:
        """Return a strategy that waits longer before each retry.

        Args:
            max_attempts: How many retries a record has.
            initial_delay: The time before the first, in milliseconds.
            max_retry_delay: The longest time before a retry, in milliseconds.
            multiplier: How the time grows from one retry to the next.
            result_predicate: Which results are retried.
            exception_predicate: Which exceptions are retried.
        """
        from penstock.datastream.async_retry_strategies import ExponentialBackoffDelayRetryStrategy

        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class AsyncFunction(Function):
    """For AsyncDataStream: calls that wait for an answer from outside, many at a time.

    All its methods run in one thread, inside a running asyncio event loop, so that clients made in `open` serve the
    calls. `open` and `close` may be `async def`.
    """

    @abstractmethod
    async def async_invoke(self, value: Any) -> list[Any]:
        """The results for this record, any number of them."""

    def timeout(self, value: Any) -> list[Any]:
        """The results for a record whose call took too long and was cancelled. Without this, the job fails."""
        raise TimeoutError(f"The asynchronous call for {value!r} has timed out.")


class ProcessJoinFunction(Function):
    """For interval joins: sees each pair of records whose times lie near each other."""

    Context: TypeAlias = JoinContext

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: JoinContext) -> Any:
        """Yield any number of results."""


class JoinFunction(Function):
    """For window joins: sees each pair of records of one key and window."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """Return the result for a pair of records."""


class FlatJoinFunction(Function):
    """As JoinFunction, with any number of results for each pair."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """Yield any number of results."""


class CoGroupFunction(Function):
    """Sees all records of one key and window, those of each stream for themselves."""

    @abstractmethod
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Any:
        """Yield any number of results. Either of the two may be empty."""


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Sees the records of a window of a key."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Yield any number of results."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Sees the records of a window of a stream that is not keyed."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Yield any number of results."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Sees the records of a window of a key, with a context. May yield `tag, value` for side outputs."""

    Context: TypeAlias = WindowContext

    @abstractmethod
    def process(self, key: KEY, context: WindowContext[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """Yield any number of results."""

    def clear(self, context: WindowContext[W]) -> None:
        """The window is gone: clear what it has in `context.window_state()`."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Sees the records of a window of a stream that is not keyed, with a context."""

    Context: TypeAlias = WindowContext

    @abstractmethod
    def process(self, context: WindowContext[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """Yield any number of results."""

    def clear(self, context: WindowContext[W]) -> None:
        """The window is gone: clear what it has in `context.window_state()`."""


class SinkFunction(Function):
    """The end of a stream that acts on each record at once. For effects that must happen once, write a `Sink`."""

    @abstractmethod
    def invoke(self, value: Any, context: FunctionContext) -> None:
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
