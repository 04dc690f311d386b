"""Asynchronous calls for the records of a stream: docs/write/async-io.md."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias

from penstock.absent import explain_absent
from penstock.common.time import Duration, Time, to_millis
from penstock.common.type_parameters import R, U
from penstock.datastream import hints
from penstock.datastream.async_retry_strategies import NO_RETRY_STRATEGY
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import AsyncFunction, AsyncRetryStrategy, Function
from penstock.graph.logical import GraphError
from penstock.runtime.async_io import AsyncOperator
from penstock.runtime.operators import describe, method_of

__all__ = ["AsyncDataStream"]

Asynchronous: TypeAlias = AsyncFunction[U, R] | Callable[[U], Awaitable[list[R]]]
Length: TypeAlias = Time | Duration | timedelta | int


class AsyncDataStream:
    """Applies an AsyncFunction, or an `async def` of one parameter, to a stream.

    All methods take these arguments:

    - `data_stream`: the stream whose records the function is called with.
    - `async_function`: an `AsyncFunction`, or a coroutine function of one record.
    - `timeout`: the time that a record can take, with all its retries; 0 sets no limit.
    - `async_retry_strategy`: which calls are repeated, how often and when.
    - `capacity`: how many records each subtask holds at most, those included whose results wait for their turn.
    - `output_type`: the type of the results.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream[U],
        async_function: Asynchronous[U, R],
        timeout: Length,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream[R]:
        """Results go on as they come, but not past a watermark."""
        return _wait("unordered_wait", data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream[U],
        async_function: Asynchronous[U, R],
        timeout: Length,
        async_retry_strategy: AsyncRetryStrategy,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream[R]:
        """Call an asynchronous function for each record, retry failed calls, and emit results as they arrive."""
        method = "unordered_wait_with_retry"
        return _wait(method, data_stream, async_function, timeout, async_retry_strategy, capacity, output_type)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream[U],
        async_function: Asynchronous[U, R],
        timeout: Length,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream[R]:
        """Results go on in the order of their records."""
        return _wait("ordered_wait", data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream[U],
        async_function: Asynchronous[U, R],
        timeout: Length,
        async_retry_strategy: AsyncRetryStrategy,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream[R]:
        """Call an asynchronous function for each record, retry failed calls, and emit results in their order."""
        method = "ordered_wait_with_retry"
        return _wait(method, data_stream, async_function, timeout, async_retry_strategy, capacity, output_type)


def _wait(
    method: str,
    data_stream: DataStream,
    function: Asynchronous[U, R],
    timeout: Length,
    strategy: AsyncRetryStrategy,
    capacity: int,
    output_type: Any,
) -> DataStream:
    if not isinstance(data_stream, DataStream):
        raise GraphError(
            f"{method} got a {type(data_stream).__name__} as its stream.",
            fix=f"Write AsyncDataStream.{method}(stream, function, Time.seconds(10)).",
        )
    _check_function(method, function)
    retrying = _is_retrying(method, strategy)
    timeout_ms = _timeout(method, timeout, retrying)
    if type(capacity) is not int or capacity < 1:
        raise GraphError(
            f"The capacity of {method} must be a whole number of at least 1, not {capacity!r}.",
            fix="Give the number of records that may wait at a time, or leave it out: it is 100 then.",
        )
    operator = AsyncOperator(
        function,
        ordered=method.startswith("ordered"),
        timeout_ms=timeout_ms,
        capacity=capacity,
        retry=strategy if retrying else None,
        handles_timeout=isinstance(function, AsyncFunction) and type(function).timeout is not AsyncFunction.timeout,
    )
    return data_stream._add("async wait operator", operator, output_type or hints.yielded(function, "async_invoke"))


def _check_function(method: str, function: Any) -> None:
    if isinstance(function, type) and issubclass(function, Function):
        raise GraphError(
            f"{method} got the class {function.__name__}; it needs an object.",
            fix=f"Write {method}(stream, {function.__name__}(), ...).",
        )
    name = describe(function)
    if not isinstance(function, AsyncFunction) and (isinstance(function, Function) or not callable(function)):
        raise GraphError(
            f"{method} needs an AsyncFunction or an async function, not {name}.",
            fix="Write `async def fetch(value): ... return [result]`, or a class that extends AsyncFunction.",
        )
    called = method_of(function, "async_invoke")
    if not inspect.iscoroutinefunction(called) and not inspect.iscoroutinefunction(type(called).__call__):
        what = f"async_invoke of {name}" if isinstance(function, AsyncFunction) else name
        if inspect.isasyncgenfunction(called):
            raise GraphError(
                f"{what} yields, so there is nothing to wait for with {method}.", fix="Write `return [value, ...]`."
            )
        named = name if name.isidentifier() else "fetch"
        written = "async_invoke(self, value)" if isinstance(function, AsyncFunction) else f"{named}(value)"
        raise GraphError(
            f"{what} is no async function, so a call would hold up all others.",
            fix=f"Write `async def {written}`; what does not wait for anything goes through map or flat_map.",
        )
    if isinstance(function, AsyncFunction) and inspect.iscoroutinefunction(function.timeout):
        raise GraphError(
            f"timeout of {name} is an async function; its results are wanted at once.",
            fix="Write `def timeout(self, value)`.",
        )


def _is_retrying(method: str, strategy: Any) -> bool:
    if not isinstance(strategy, AsyncRetryStrategy):
        given = "None" if strategy is None else f"a {type(strategy).__name__}"
        raise GraphError(
            f"{method} needs an AsyncRetryStrategy, not {given}.",
            fix="Give FixedDelayRetryStrategy(3, 100, None, has_exception_predicate), or leave `_with_retry` out.",
        )
    predicate = strategy.get_retry_predicate()
    if predicate is None:
        raise GraphError(
            f"get_retry_predicate of {describe(strategy)} gave None.",
            fix="Let it return RetryPredicate(result_predicate, exception_predicate).",
        )
    return predicate.result_predicate() is not None or predicate.exception_predicate() is not None


def _timeout(method: str, timeout: Any, retrying: bool) -> int:
    fix = "Give how long a record may wait, as in Time.seconds(10)."
    try:
        millis = to_millis(timeout)
    except (TypeError, ValueError) as error:
        raise GraphError(f"{method} needs a timeout, not {timeout!r}: {error}", fix=fix) from None
    if millis <= 0 and retrying:
        raise GraphError(f"{method} needs a timeout: without one a record could be retried for ever.", fix=fix)
    return max(millis, 0)


explain_absent(__name__)
