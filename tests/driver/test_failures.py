"""Failures of a cluster's job count over all its attempts."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

from epoch_jobs import program

from penstock.driver.assignment import RecordedFailure
from penstock.driver.failure_log import FailureLog
from penstock.driver.failures import replayed
from penstock.driver.instructions import JobFailure
from penstock.driver.job_observer import JobFacts, JobObserver, ObservedJob
from penstock.driver.job_snapshot import ExceptionSnapshot
from penstock.driver.restarts import (
    WITH_CHECKPOINTS,
    ExponentialDelay,
    Failed,
    FailureRate,
    FixedDelay,
    GiveUp,
    Restart,
    Restarts,
    RestartStrategy,
)

BOOT_MS = 1_000_000
"""When the monotonic clock was 0, in milliseconds since 1970."""


def failure(number: int, at_ms: int = 0, **changes: object) -> RecordedFailure:
    known = {
        "number": number,
        "attempt": 1,
        "exception": ExceptionSnapshot(name="ValueError", message="x", at_ms=BOOT_MS + at_ms),
        "from_user": True,
        "identity": "x",
        "progressed": False,
        "counts": True,
    }
    return RecordedFailure(**{**known, **changes})  # type: ignore[arg-type]


def after(strategy: RestartStrategy, failures: Iterable[RecordedFailure]) -> Restarts:
    restarts = Restarts(strategy)
    restarts.replay(*replayed(list(failures), BOOT_MS))
    return restarts


def test_a_fixed_delay_counts_the_failures_of_earlier_attempts() -> None:
    restarts = after(FixedDelay(3, 10), [failure(1), failure(2)])
    assert restarts.handle(Failed(0, from_user=True)) == Restart(3, 10)
    assert isinstance(restarts.handle(Failed(0, from_user=True)), GiveUp)


def test_forgotten_failures_still_count() -> None:
    restarts = after(FixedDelay(150, 10), [failure(number) for number in range(51, 151)])
    assert restarts.number == 150
    assert isinstance(restarts.handle(Failed(0, from_user=True)), GiveUp)


def test_a_failure_rate_counts_the_failures_of_earlier_attempts_within_its_interval() -> None:
    strategy = FailureRate(max_failures=2, interval_ms=1_000, delay_ms=0)
    early = after(strategy, [failure(1, at_ms=0), failure(2, at_ms=100)])
    assert isinstance(early.handle(Failed(900, from_user=True)), GiveUp)
    late = after(strategy, [failure(1, at_ms=0), failure(2, at_ms=100)])
    assert late.handle(Failed(5_000, from_user=True)) == Restart(3, 0)


def test_an_exponential_delay_continues_to_grow_in_the_next_attempt() -> None:
    strategy = ExponentialDelay(1_000, 60_000, 2.0, reset_ms=600_000, jitter=0.0)
    restarts = after(strategy, [failure(1), failure(2)])
    assert restarts.handle(Failed(10, from_user=False)) == Restart(3, 4_000)


def test_a_checkpoint_between_failures_counts_as_progress_in_the_next_attempt() -> None:
    stuck = after(WITH_CHECKPOINTS, [failure(number, progressed=number == 1) for number in range(1, 11)])
    assert isinstance(stuck.handle(Failed(0, from_user=True, error="x")), GiveUp)
    moving = after(WITH_CHECKPOINTS, [failure(number, progressed=True) for number in range(1, 11)])
    assert isinstance(moving.handle(Failed(0, from_user=True, error="x")), Restart)


def test_a_process_that_lost_spark_uses_up_no_restart() -> None:
    restarts = after(FixedDelay(1, 0), [failure(1, counts=False), failure(2, counts=False)])
    assert restarts.handle(Failed(0, from_user=True)) == Restart(1, 0)


def test_the_exceptions_of_earlier_attempts_are_shown_before_those_of_this_one() -> None:
    earlier = [failure(number).exception for number in range(40, 45)]
    log = FailureLog(1, str)
    log.restore(earlier, 39)
    log.add(ValueError("y"), program(), 44, 7)
    shown, dropped = log.read()
    assert [each.message for each in shown] == ["x"] * 5 + ["y"]
    assert dropped == 39


def test_the_identity_in_a_record_reveals_nothing_of_the_message() -> None:
    one, other = (
        JobFailure.of(ValueError(text), 0).identity for text in ("password=hunter2", "password=hunter2 again")
    )
    assert one != other
    assert "hunter2" not in one


def test_secrets_in_the_arguments_of_a_program_are_masked_in_its_failures() -> None:
    observer = JobObserver(JobFacts(id="0" * 32, name="job", arguments=["--db-password", "open-sesame"]))
    job = SimpleNamespace(driver=SimpleNamespace(graph=None), life=SimpleNamespace(restarts=0))
    shown = observer.failed(ValueError("cannot log in with open-sesame"), cast(ObservedJob, job))
    assert shown.message == "cannot log in with ***"
    assert "open-sesame" not in shown.trace
