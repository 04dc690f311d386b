"""What JobClient gives for a result that may not be there yet."""

from concurrent.futures import CancelledError

import pytest

from penstock.common import CompletableFuture


def test_a_result_that_is_there() -> None:
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


def test_asking_for_the_exception_does_not_wait() -> None:
    future = CompletableFuture(lambda: pytest.fail("waited"), lambda: False)
    assert future.exception() is None


def test_a_cancelled_future_gives_its_result_up() -> None:
    future = CompletableFuture(lambda: pytest.fail("waited"), lambda: False)
    assert future.cancel()
    assert future.cancelled()
    assert future.done()
    with pytest.raises(CancelledError, match="the job was not"):
        future.result()
    assert isinstance(future.exception(), CancelledError)
