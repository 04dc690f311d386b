"""Asynchronous functions, and when a call is made again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic

from penstock.common.type_parameters import IN, OUT
from penstock.datastream.function_base import Function


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


class AsyncFunction(Function, Generic[IN, OUT]):
    """For AsyncDataStream: calls that wait for an answer from outside, many at a time.

    All its methods run in one thread, inside a running asyncio event loop, so that clients made in `open` serve the
    calls. `open` and `close` may be `async def`.
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """The results for this record, any number of them."""

    def timeout(self, value: IN) -> list[OUT]:
        """The results for a record whose call took too long and was cancelled. Without this, the job fails."""
        raise TimeoutError(f"The asynchronous call for {value!r} has timed out.")
