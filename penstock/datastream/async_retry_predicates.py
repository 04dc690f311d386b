"""Common reasons to make an asynchronous call again, for the strategies in `async_retry_strategies`."""

from __future__ import annotations

from typing import Any


def empty_result_predicate(result: list[Any] | None) -> bool:
    """Return whether a call gave no result."""
    return result is None or len(result) == 0


def has_exception_predicate(error: Exception | None) -> bool:
    """Return whether a call raised an exception."""
    return error is not None


def exception_type_predicate(error: Exception, expected_error_type: type[Exception]) -> bool:
    """Return whether a call raised an exception of this type.

    As an exception predicate, write `lambda error: exception_type_predicate(error, ConnectionError)`.
    """
    return isinstance(error, expected_error_type)
