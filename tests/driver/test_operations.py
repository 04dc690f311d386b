"""Long operations that clients trigger and poll."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from penstock.driver.control_messages import CANCEL, CHECKPOINT, RESCALE, SAVEPOINT, STOP, Done
from penstock.driver.job_snapshot import Operation
from penstock.driver.operations import BeingStopped, Operations, UnknownOperation
from penstock.errors import PenstockError


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def completed(operations: Operations, trigger_id: str) -> Operation:
    deadline = time.monotonic() + 10
    while not (operation := operations.poll(trigger_id)).done:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return operation


def test_an_operation_is_in_progress_until_its_work_is_done() -> None:
    operations, go_on = Operations(300), threading.Event()

    def work() -> Done:
        go_on.wait(10)
        return Done(savepoint="/savepoints/1", checkpoint=7)

    assert operations.trigger("a", work) == Operation(trigger_id="a")
    assert not operations.poll("a").done
    go_on.set()
    assert completed(operations, "a") == Operation(trigger_id="a", done=True, savepoint="/savepoints/1", checkpoint=7)


def test_a_repeated_trigger_id_starts_nothing_new() -> None:
    operations, runs = Operations(300), []

    def work() -> Done:
        runs.append(1)
        return Done()

    operations.trigger("a", work)
    completed(operations, "a")
    assert operations.trigger("a", work).done
    assert runs == [1]


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (PenstockError("The disk is full.", fix="Free space."), "PenstockError", "The disk is full."),
        (ValueError("bad"), "ValueError", "bad"),
    ],
)
def test_a_failure_is_the_result_of_the_operation(error: Exception, kind: str, text: str) -> None:
    operations = Operations(300)

    def work() -> Done:
        raise error

    operations.trigger("a", work)
    failed = completed(operations, "a")
    assert (failed.failure_kind, failed.failure) == (kind, text)
    assert failed.fix == getattr(error, "fix", "")


def test_an_unknown_id_is_refused() -> None:
    with pytest.raises(UnknownOperation, match="has no operation 'b'"):
        Operations(300).poll("b")


def test_results_are_forgotten_after_the_store_duration_but_not_operations_in_progress() -> None:
    clock, go_on = Clock(), threading.Event()
    operations = Operations(300, clock)

    def waiting() -> Done:
        go_on.wait(10)
        return Done()

    operations.trigger("done", lambda: Done())
    completed(operations, "done")
    operations.trigger("waits", waiting)
    clock.now = 301
    assert [each.trigger_id for each in operations.recent()] == ["waits"]
    go_on.set()
    completed(operations, "waits")


def test_the_number_of_kept_results_is_bounded() -> None:
    operations = Operations(300)
    work: Callable[[], Done] = lambda: Done()  # noqa: E731
    for number in range(1010):
        operations.trigger(str(number), work)
        completed(operations, str(number))
    assert len(operations.recent()) <= 1002
    with pytest.raises(UnknownOperation):
        operations.poll("0")
    assert operations.poll("1009").done


def test_an_operation_keeps_its_kind() -> None:
    operations = Operations(300)
    assert operations.trigger("a", lambda: Done(), "savepoint") == Operation(trigger_id="a", kind="savepoint")
    assert completed(operations, "a").kind == "savepoint"


def test_results_are_waited_for_and_not_longer_than_asked() -> None:
    operations, go_on = Operations(300), threading.Event()
    operations.await_results(60)

    def waiting() -> Done:
        go_on.wait(10)
        return Done()

    operations.trigger("a", waiting)
    operations.await_results(0.001)
    assert not operations.poll("a").done
    threading.Timer(0.02, go_on.set).start()
    operations.await_results(60)
    assert operations.poll("a").done


@pytest.fixture
def stopping() -> Iterator[tuple[Operations, Callable[[Exception | None], None]]]:
    """A job that is being stopped, and a function that ends the stop, perhaps with an error."""
    operations, over, errors = Operations(300), threading.Event(), list[Exception]()

    def stop() -> Done:
        over.wait(60)
        for error in errors:
            raise error
        return Done(savepoint="/savepoints/1")

    def end(error: Exception | None) -> None:
        errors.extend([] if error is None else [error])
        over.set()
        completed(operations, "stop")

    operations.trigger("stop", stop, STOP)
    yield operations, end
    over.set()


Stopping = tuple[Operations, Callable[[Exception | None], None]]


@pytest.mark.parametrize("kind", [STOP, SAVEPOINT, CHECKPOINT, RESCALE])
def test_a_job_that_is_being_stopped_starts_no_other_operation(stopping: Stopping, kind: str) -> None:
    operations, end = stopping
    started: list[str] = []

    def work() -> Done:
        started.append(kind)
        return Done()

    for _ in ("while it stops", "when it has stopped"):
        with pytest.raises(BeingStopped):
            operations.trigger("other", work, kind)
        with pytest.raises(UnknownOperation):
            operations.poll("other")
        end(None)
    assert started == []


def test_a_job_that_is_being_stopped_can_be_cancelled_and_its_stop_repeated(stopping: Stopping) -> None:
    operations, _ = stopping
    assert not operations.trigger("stop", lambda: Done(), STOP).done
    operations.trigger("cancel", lambda: Done(), CANCEL)
    assert not completed(operations, "cancel").failure_kind


@pytest.mark.parametrize("kind", [STOP, SAVEPOINT, CHECKPOINT, RESCALE])
def test_a_job_whose_stop_failed_starts_other_operations(stopping: Stopping, kind: str) -> None:
    operations, end = stopping
    end(PenstockError("The disk is full."))
    operations.trigger("other", lambda: Done(savepoint="/savepoints/2"), kind)
    assert completed(operations, "other").savepoint == "/savepoints/2"


@pytest.mark.parametrize("kind", [SAVEPOINT, CHECKPOINT, RESCALE, CANCEL])
def test_operations_that_do_not_end_a_job_run_concurrently(kind: str) -> None:
    operations, go_on = Operations(300), threading.Event()

    def waiting() -> Done:
        go_on.wait(60)
        return Done()

    operations.trigger("a", waiting, kind)
    for other in (SAVEPOINT, CHECKPOINT, RESCALE, STOP):
        operations.trigger(other, lambda: Done(), other)
        assert completed(operations, other).failure_kind == ""
        if other != STOP:
            assert not operations.poll("a").done
    go_on.set()


def test_an_id_can_be_used_again_when_its_result_is_forgotten() -> None:
    clock = Clock()
    operations = Operations(300, clock)
    operations.trigger("a", lambda: Done(checkpoint=1))
    assert completed(operations, "a").checkpoint == 1
    clock.now = 300
    assert operations.poll("a").checkpoint == 1, "it is kept for this long"
    clock.now = 301
    with pytest.raises(UnknownOperation):
        operations.poll("a")
    operations.trigger("a", lambda: Done(checkpoint=2))
    assert completed(operations, "a").checkpoint == 2
    clock.now = 700
    # The result is also forgotten if nothing else looks for it.
    assert not operations.trigger("a", lambda: Done()).done


def test_an_operation_without_a_savepoint_has_an_empty_path() -> None:
    operations = Operations(300)
    operations.trigger("a", lambda: Done())
    assert (completed(operations, "a").savepoint, completed(operations, "a").checkpoint) == ("", -1)
