"""Decisions of restart strategies, with failures at given times and no clock."""

from collections.abc import Callable

import pytest

from penstock.driver.restarts import (
    WITH_CHECKPOINTS,
    Completed,
    ExponentialDelay,
    Failed,
    FailureRate,
    FixedDelay,
    GiveUp,
    NoRestart,
    Restart,
    Restarts,
    RestartStrategy,
    Resumed,
)


def delays(strategy: RestartStrategy, times: list[int]) -> list[int | None]:
    """Return the delay after each failure, or None if the strategy gives up."""
    restarts = Restarts(strategy)
    decisions = [restarts.handle(Failed(at, from_user=False)) for at in times]
    return [each.delay_ms if isinstance(each, Restart) else None for each in decisions]


def test_the_first_failure_ends_a_job_without_a_strategy() -> None:
    assert Restarts(NoRestart()).handle(Failed(0, from_user=False)) == GiveUp("")


def test_a_fixed_delay_with_three_attempts_gives_up_at_the_fourth_failure() -> None:
    assert delays(FixedDelay(3, 1000), [0, 10, 10_000_000, 10_000_001]) == [1000, 1000, 1000, None]


def test_a_fixed_delay_reports_how_often_it_restarted() -> None:
    restarts = Restarts(FixedDelay(1, 0))
    assert restarts.handle(Failed(0, from_user=True)) == Restart(1, 0)
    decision = restarts.handle(Failed(1, from_user=True))
    assert decision == GiveUp("it restarted once, the limit of the fixed delay strategy")
    assert restarts.number == 1


def test_a_failure_rate_of_three_gives_up_at_the_fourth_failure_in_the_interval() -> None:
    assert delays(FailureRate(3, 10_000, 5), [0, 1000, 2000, 10_000]) == [5, 5, 5, None]


def test_a_failure_rate_continues_while_failures_are_far_apart() -> None:
    assert delays(FailureRate(3, 10_000, 5), [0, 1000, 2000, 10_001, 11_001, 12_000]) == [5, 5, 5, 5, 5, None]


EXPONENTIAL = ExponentialDelay(initial_ms=4, max_ms=100, multiplier=2.3, reset_ms=1000, jitter=0)


def test_an_exponential_delay_grows_by_its_multiplier_up_to_its_limit() -> None:
    assert delays(EXPONENTIAL, [0] * 6) == [4, 9, 21, 48, 100, 100]


def test_an_exponential_delay_starts_over_after_a_quiet_period() -> None:
    # The quiet period begins when the job runs again, 9 ms after the failure.
    assert delays(EXPONENTIAL, [0, 10, 1018, 1019]) == [4, 9, 21, 48]
    assert delays(EXPONENTIAL, [0, 10, 1019, 1020]) == [4, 9, 4, 9]


def test_an_exponential_delay_restarts_without_limit() -> None:
    assert delays(EXPONENTIAL, [0] * 5000)[-1] == 100


def test_an_exponential_delay_can_limit_attempts_before_the_reset() -> None:
    limited = ExponentialDelay(4, 100, 2.3, 1000, 0, attempts=2)
    assert delays(limited, [0, 10, 2000, 2010, 2020]) == [4, 9, 4, 9, None]


@pytest.mark.parametrize(("chance", "expected"), [(min, [1000, 1350, 2025]), (max, [1100, 1650, 2400])])
def test_jitter_moves_a_delay_but_never_out_of_its_bounds(
    chance: Callable[[float, float], float], expected: list[int]
) -> None:
    restarts = Restarts(ExponentialDelay(1000, 2400, 1.5, jitter=0.1), chance)
    decisions = [restarts.handle(Failed(0, from_user=False)) for _ in range(3)]
    assert [each.delay_ms for each in decisions if isinstance(each, Restart)] == expected


def test_the_default_strategy_gives_up_on_a_persistent_program_error() -> None:
    restarts = Restarts(WITH_CHECKPOINTS)
    decisions = [restarts.handle(Failed(at, from_user=True)) for at in range(11)]
    assert all(isinstance(each, Restart) for each in decisions[:10])
    last = decisions[10]
    assert isinstance(last, GiveUp)
    assert "the program's own code failed 11 times in a row without a completed checkpoint in between" in last.reason


def test_the_default_strategy_retries_external_failures_without_limit() -> None:
    assert None not in delays(WITH_CHECKPOINTS, list(range(1000)))


def test_the_default_strategy_counts_a_completed_checkpoint_as_progress() -> None:
    restarts = Restarts(WITH_CHECKPOINTS)
    for at in range(100):
        assert isinstance(restarts.handle(Failed(at, from_user=True)), Restart)
        if at % 10 == 9:
            restarts.handle(Completed())


class TestTheSameErrorFromTheStart:
    def failures(self, restarts: Restarts, *errors: str) -> list[bool]:
        """Return whether the job restarts after each error."""
        decisions = [restarts.handle(Failed(0, from_user=False, error=error)) for error in errors]
        return [isinstance(each, Restart) for each in decisions]

    def test_the_fifth_identical_error_from_the_start_ends_the_job_by_default(self) -> None:
        restarts = Restarts(WITH_CHECKPOINTS)
        assert self.failures(restarts, *["no broker"] * 4) == [True] * 4
        decision = restarts.handle(Failed(0, from_user=False, error="no broker"))
        assert decision == GiveUp("the same error occurred 5 times before the first checkpoint")

    def test_each_error_is_counted_separately(self) -> None:
        assert self.failures(Restarts(WITH_CHECKPOINTS), *["a", "b"] * 4) == [True] * 8
        assert self.failures(Restarts(WITH_CHECKPOINTS), *map(str, range(100))) == [True] * 100
        assert self.failures(Restarts(WITH_CHECKPOINTS), *["a", "b"] * 4, "a") == [True] * 8 + [False]

    @pytest.mark.parametrize("event", [Completed(), Resumed()])
    def test_an_error_is_retried_without_limit_after_the_first_checkpoint(self, event: Completed | Resumed) -> None:
        restarts = Restarts(WITH_CHECKPOINTS)
        assert self.failures(restarts, *["no broker"] * 4) == [True] * 4
        restarts.handle(event)
        assert self.failures(restarts, *["no broker"] * 100) == [True] * 100

    @pytest.mark.parametrize(
        "strategy",
        [ExponentialDelay(), FixedDelay(100, 0), FailureRate(100, 1000, 0)],
        ids=lambda strategy: type(strategy).__name__,
    )
    def test_a_configured_strategy_ignores_identical_errors_from_the_start(self, strategy: RestartStrategy) -> None:
        assert self.failures(Restarts(strategy), *["no broker"] * 50) == [True] * 50

    def test_errors_without_an_identity_do_not_end_the_job(self) -> None:
        assert self.failures(Restarts(WITH_CHECKPOINTS), *[""] * 50) == [True] * 50


def test_a_resumed_job_still_counts_errors_in_user_code() -> None:
    restarts = Restarts(WITH_CHECKPOINTS)
    decisions = []
    for at in range(11):
        restarts.handle(Resumed())
        decisions.append(restarts.handle(Failed(at, from_user=True, error=str(at))))
    assert isinstance(decisions[9], Restart)
    assert isinstance(decisions[10], GiveUp)
