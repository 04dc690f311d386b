"""Retry strategies for asynchronous calls. The timeout of a record covers all its attempts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.datastream.functions import AsyncRetryPredicate, AsyncRetryStrategy
from penstock.graph.logical import GraphError

__all__ = [
    "NO_RETRY_STRATEGY",
    "ExponentialBackoffDelayRetryStrategy",
    "FixedDelayRetryStrategy",
    "NoRetryStrategy",
    "RetryPredicate",
]

ResultPredicate = Callable[[list[Any]], bool]
ExceptionPredicate = Callable[[Exception], bool]


class RetryPredicate(AsyncRetryPredicate):
    """A retry predicate made of two functions.

    Args:
        result_predicate: Tests whether to retry a result. None never retries results.
        exception_predicate: Tests whether to retry an exception. None never retries exceptions.
    """

    def __init__(
        self, result_predicate: ResultPredicate | None, exception_predicate: ExceptionPredicate | None
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> ResultPredicate | None:
        """Return the test for results, or None if results are never retried."""
        return self._result_predicate

    def exception_predicate(self) -> ExceptionPredicate | None:
        """Return the test for exceptions, or None if exceptions are never retried."""
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy):
    """A strategy that never retries."""

    def can_retry(self, current_attempts: int) -> bool:
        """Return False."""
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return -1, because there is never a retry."""
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """Return a predicate that matches neither results nor exceptions."""
        return RetryPredicate(None, None)


class FixedDelayRetryStrategy(AsyncRetryStrategy):
    """A strategy with the same delay before each retry.

    Args:
        max_attempts: The maximum number of retries of a record.
        backoff_time_millis: The delay before each retry, in milliseconds.
        result_predicate: Tests whether to retry a result. None never retries results.
        exception_predicate: Tests whether to retry an exception. None never retries exceptions.
    """

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        _check_positive(max_attempts=max_attempts, backoff_time_millis=backoff_time_millis)
        self._max_attempts = max_attempts
        self._backoff_time_millis = backoff_time_millis
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        """Return whether the number of attempts is within the limit."""
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the constant delay, in milliseconds."""
        return self._backoff_time_millis

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """Return the predicate that decides which results and exceptions to retry."""
        return self._predicate


class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy):
    """A strategy whose delay is multiplied after each retry.

    Args:
        max_attempts: The maximum number of retries of a record.
        initial_delay: The delay before the first retry, in milliseconds.
        max_retry_delay: The longest delay, in milliseconds.
        multiplier: The factor between one delay and the next.
        result_predicate: Tests whether to retry a result. None never retries results.
        exception_predicate: Tests whether to retry an exception. None never retries exceptions.
    """

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        _check_positive(
            max_attempts=max_attempts,
            initial_delay=initial_delay,
            max_retry_delay=max_retry_delay,
            multiplier=multiplier,
        )
        self._max_attempts = max_attempts
        self._initial_delay = initial_delay
        self._max_retry_delay = max_retry_delay
        self._multiplier = multiplier
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        """Return whether the number of attempts is within the limit."""
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the delay before the next attempt, in milliseconds. It grows with the number of attempts."""
        # Computed from the attempt count alone: this object serves many records, so it must not remember a delay.
        delay = self._initial_delay
        for _ in range(current_attempts - 1):
            delay = int(min(delay * self._multiplier, self._max_retry_delay))
        return delay

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """Return the predicate that decides which results and exceptions to retry."""
        return self._predicate


NO_RETRY_STRATEGY: AsyncRetryStrategy = NoRetryStrategy()


def _check_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            raise GraphError(f"{name} must be greater than zero, not {number!r}.", fix=f"Pass a larger {name}.")
