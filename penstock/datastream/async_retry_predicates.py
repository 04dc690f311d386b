"""Common predicates for the strategies in ``async_retry_strategies``."""

from __future__ import annotations

from typing import Any


def empty_result_predicate(result: list[Any] | None) -> bool:
    """Return whether a call returned no results."""
    return result is None or len(result) == 0


def has_exception_predicate(error: Exception | None) -> bool:
    """Return whether a call raised an exception."""
    return error is not None


def exception_type_predicate(error: Exception, expected_error_type: type[Exception]) -> bool:
    """Return whether a call raised an exception of the given type.

    Pass it as ``lambda error: exception_type_predicate(error, ConnectionError)``.

    Args:
        error: The exception.
        expected_error_type: The type to look for.
    """
    return isinstance(error, expected_error_type)
