"""Asynchronous functions, and the contracts for retrying their calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic

from penstock.common.type_parameters import IN, OUT
from penstock.datastream.function_base import Function


class AsyncRetryPredicate(ABC):
    """Decides which asynchronous calls to retry.

    A method that returns None disables retries for that reason.
    """

    @abstractmethod
    def result_predicate(self) -> Callable[[list[Any]], bool] | None:
        """Return a function that tests whether to retry a result, or None."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """Return a function that tests whether to retry an exception, or None."""


class AsyncRetryStrategy(ABC):
    """Decides how often and after what delay an asynchronous call is retried.

    One object serves many records concurrently, so it must not store the progress of a single record.
    """

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Return whether another attempt is allowed.

        Args:
            current_attempts: The number of attempts so far.
        """

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the delay before the next attempt, in milliseconds.

        Args:
            current_attempts: The number of attempts so far.
        """

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """Return the predicate that decides which results and exceptions to retry."""

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
        """Return a strategy with the same delay before each retry.

        Args:
            max_attempts: The maximum number of retries of a record.
            backoff_time_millis: The delay before each retry, in milliseconds.
            result_predicate: Tests whether to retry a result. None never retries results.
            exception_predicate: Tests whether to retry an exception. None never retries exceptions.
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
        """Return a strategy whose delay grows with each retry.

        Args:
            max_attempts: The maximum number of retries of a record.
            initial_delay: The delay before the first retry, in milliseconds.
            max_retry_delay: The longest delay, in milliseconds.
            multiplier: The factor between one delay and the next.
            result_predicate: Tests whether to retry a result. None never retries results.
            exception_predicate: Tests whether to retry an exception. None never retries exceptions.
        """
        from penstock.datastream.async_retry_strategies import ExponentialBackoffDelayRetryStrategy

        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class AsyncFunction(Function, Generic[IN, OUT]):
    """A function for ``AsyncDataStream`` that awaits an external system, with many calls in flight.

    All methods run in one thread inside a running asyncio event loop, so a client created in ``open`` serves all calls.
    ``open`` and ``close`` can be ``async def``.
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """Return the results for a record.

        Args:
            value: The record.

        Returns:
            Any number of results.
        """

    def timeout(self, value: IN) -> list[OUT]:
        """Return the results for a record whose call was cancelled because it exceeded the time limit.

        The default implementation fails the job.

        Args:
            value: The record.

        Raises:
            TimeoutError: Always, unless overridden.
        """
        raise TimeoutError(f"The asynchronous call for {value!r} timed out.")
