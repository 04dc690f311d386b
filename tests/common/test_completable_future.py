"""The futures that JobClient returns."""

from concurrent.futures import CancelledError

import pytest

from penstock.common import CompletableFuture


def test_a_completed_future_returns_its_result() -> None:
    future = CompletableFuture(lambda: 7, lambda: True)
    assert (future.done(), future.result(), future.exception()) == (True, 7, None)
    assert not future.cancel()
    assert not future.cancelled()
    assert future.result() == 7


def test_a_failure_is_raised_by_result_and_returned_by_exception() -> None:
    def fail() -> None:
        raise ValueError("lost")

    future = CompletableFuture(fail, lambda: True)
    with pytest.raises(ValueError, match="lost"):
        future.result()
    assert str(future.exception()) == "lost"


def test_exception_does_not_wait_for_the_result() -> None:
    future = CompletableFuture(lambda: pytest.fail("waited"), lambda: False)
    assert future.exception() is None


def test_a_cancelled_future_raises_cancelled_error() -> None:
    future = CompletableFuture(lambda: pytest.fail("waited"), lambda: False)
    assert future.cancel()
    assert future.cancelled()
    assert future.done()
    with pytest.raises(CancelledError, match="the job was not"):
        future.result()
    assert isinstance(future.exception(), CancelledError)
