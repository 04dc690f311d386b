"""What happens when a job fails, as a program says it. docs/operate/recovery.md tells what each strategy does."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from datetime import timedelta

from penstock.common.configuration import Configuration
from penstock.common.options import BadSetting
from penstock.common.options.restarts import (
    ATTEMPTS_BEFORE_RESET_BACKOFF,
    BACKOFF_MULTIPLIER,
    EXPONENTIAL_DELAY,
    FAILURE_RATE,
    FAILURE_RATE_DELAY,
    FAILURE_RATE_INTERVAL,
    FAILURE_RATE_MAX_FAILURES,
    FIXED_DELAY,
    FIXED_DELAY_ATTEMPTS,
    FIXED_DELAY_DELAY,
    INITIAL_BACKOFF,
    JITTER_FACTOR,
    MAX_BACKOFF,
    RESET_BACKOFF_THRESHOLD,
    RESTART_STRATEGY,
)
from penstock.common.time import Duration, Time, to_millis

Length = Time | Duration | timedelta | int
"""A length of time; a plain int is milliseconds."""


class RestartStrategyConfiguration(ABC):
    """Made by the functions of `RestartStrategies`."""

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """The configuration keys this strategy stands for."""

    @abstractmethod
    def get_description(self) -> str:
        """Return the strategy in words."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, type(self)) and other.settings() == self.settings()

    def __hash__(self) -> int:
        return hash(frozenset(self.settings().items()))

    def __repr__(self) -> str:
        return f"<{self.get_description()}>"


class RestartStrategies:
    """One function for each strategy; give what it returns to `env.set_restart_strategy`."""

    class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
        """A strategy that never restarts."""

        def settings(self) -> dict[str, str]:
            """Return the settings that select this strategy."""
            return {RESTART_STRATEGY.key: "none"}

        def get_description(self) -> str:
            """Return the strategy in words."""
            return "No restarts: the first failure ends the job"

    class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """A strategy that restarts a number of times, after the same delay each time."""

        def __init__(self, restart_attempts: int, delay_between_attempts_interval: Length) -> None:
            self._attempts = _whole("restart_attempts", restart_attempts, 0)
            self._delay = _time("delay_between_attempts", delay_between_attempts_interval)

        def get_restart_attempts(self) -> int:
            """Return the number of restarts."""
            return self._attempts

        def get_delay_between_attempts_interval(self) -> timedelta:
            """Return the delay before a restart."""
            return timedelta(milliseconds=self._delay)

        def settings(self) -> dict[str, str]:
            """Return the settings that select this strategy."""
            return {
                RESTART_STRATEGY.key: "fixed-delay",
                FIXED_DELAY_ATTEMPTS.key: str(self._attempts),
                FIXED_DELAY_DELAY.key: f"{self._delay} ms",
            }

        def get_description(self) -> str:
            """Return the strategy in words."""
            return f"Fixed delay: {self._attempts} restarts, {self._delay} ms after a failure"

    class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
        """A strategy that restarts unless too many failures fall into an interval."""

        def __init__(
            self, max_failure_rate: int, failure_interval: Length, delay_between_attempts_interval: Length
        ) -> None:
            self._failures = _whole("failure_rate", max_failure_rate, 1)
            self._interval = _time("failure_interval", failure_interval, 1)
            self._delay = _time("delay_interval", delay_between_attempts_interval)

        def get_max_failure_rate(self) -> int:
            """Return how many failures an interval can have."""
            return self._failures

        def get_failure_interval(self) -> timedelta:
            """Return the interval in which failures are counted."""
            return timedelta(milliseconds=self._interval)

        def get_delay_between_attempts_interval(self) -> timedelta:
            """Return the delay before a restart."""
            return timedelta(milliseconds=self._delay)

        def settings(self) -> dict[str, str]:
            """Return the settings that select this strategy."""
            return {
                RESTART_STRATEGY.key: "failure-rate",
                FAILURE_RATE_MAX_FAILURES.key: str(self._failures),
                FAILURE_RATE_INTERVAL.key: f"{self._interval} ms",
                FAILURE_RATE_DELAY.key: f"{self._delay} ms",
            }

        def get_description(self) -> str:
            """Return the strategy in words."""
            return (
                f"Failure rate: up to {self._failures} failures in {self._interval} ms, restarts after {self._delay} ms"
            )

    class ExponentialDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """A strategy that restarts after delays that grow with each failure."""

        def __init__(
            self,
            initial_backoff: Length,
            max_backoff: Length,
            backoff_multiplier: float,
            reset_backoff_threshold: Length,
            jitter_factor: float,
            attempts_before_reset_backoff: int | None = None,
        ) -> None:
            self._initial = _time("initial_backoff", initial_backoff)
            self._max = _time("max_backoff", max_backoff)
            self._multiplier = _number("backoff_multiplier", backoff_multiplier)
            self._reset = _time("reset_backoff_threshold", reset_backoff_threshold)
            self._jitter = _number("jitter_factor", jitter_factor)
            self._attempts = attempts_before_reset_backoff
            if self._initial < 1 or self._max < self._initial:
                raise BadSetting(
                    f"max_backoff is {self._max} ms and initial_backoff {self._initial} ms.",
                    fix="Let initial_backoff be at least 1 ms and max_backoff no less than it.",
                )
            if not 1 <= self._multiplier <= 1e6:
                raise BadSetting(f"backoff_multiplier must be at least 1 and at most 1e6, not {backoff_multiplier!r}.")
            if not 0 <= self._jitter <= 1:
                raise BadSetting(f"jitter_factor must be between 0 and 1, not {jitter_factor!r}.")
            if self._attempts is not None:
                _whole("attempts_before_reset_backoff", self._attempts, 1)

        def get_initial_backoff(self) -> timedelta:
            """Return the delay before the first restart."""
            return timedelta(milliseconds=self._initial)

        def get_max_backoff(self) -> timedelta:
            """Return the longest delay before a restart."""
            return timedelta(milliseconds=self._max)

        def get_backoff_multiplier(self) -> float:
            """Return the factor by which the delay grows."""
            return self._multiplier

        def get_reset_backoff_threshold(self) -> timedelta:
            """Return the failure-free time after which the backoff resets."""
            return timedelta(milliseconds=self._reset)

        def get_jitter_factor(self) -> float:
            """Return the share of a delay by which it varies at random."""
            return self._jitter

        def get_attempts_before_reset_backoff(self) -> int | None:
            """Return how many restarts are allowed before the backoff resets, or None for any number."""
            return self._attempts

        def settings(self) -> dict[str, str]:
            """Return the settings that select this strategy."""
            settings = {
                RESTART_STRATEGY.key: "exponential-delay",
                INITIAL_BACKOFF.key: f"{self._initial} ms",
                MAX_BACKOFF.key: f"{self._max} ms",
                BACKOFF_MULTIPLIER.key: str(self._multiplier),
                RESET_BACKOFF_THRESHOLD.key: f"{self._reset} ms",
                JITTER_FACTOR.key: str(self._jitter),
            }
            if self._attempts is not None:
                settings[ATTEMPTS_BEFORE_RESET_BACKOFF.key] = str(self._attempts)
            return settings

        def get_description(self) -> str:
            """Return the strategy in words."""
            return f"Exponential delay: {self._initial} ms, times {self._multiplier} each time, up to {self._max} ms"

    class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
        """What the configuration says, and the default where it says nothing."""

        def settings(self) -> dict[str, str]:
            """Return no settings: those of the configuration stay in force."""
            return {}

        def get_description(self) -> str:
            """Return the strategy in words."""
            return "As configured"

    @staticmethod
    def no_restart() -> NoRestartStrategyConfiguration:
        """Return a strategy that never restarts."""
        return RestartStrategies.NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> FallbackRestartStrategyConfiguration:
        """Return a strategy that leaves the choice to the configuration."""
        return RestartStrategies.FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: Length
    ) -> FixedDelayRestartStrategyConfiguration:
        """Return a strategy that restarts a number of times, after the same delay each time."""
        return RestartStrategies.FixedDelayRestartStrategyConfiguration(restart_attempts, delay_between_attempts)

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: Length, delay_interval: Length
    ) -> FailureRateRestartStrategyConfiguration:
        """Return a strategy that restarts unless too many failures fall into an interval."""
        return RestartStrategies.FailureRateRestartStrategyConfiguration(failure_rate, failure_interval, delay_interval)

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: Length,
        max_backoff: Length,
        backoff_multiplier: float,
        reset_backoff_threshold: Length,
        jitter_factor: float,
        attempts_before_reset_backoff: int | None = None,
    ) -> ExponentialDelayRestartStrategyConfiguration:
        """Return a strategy that restarts after delays that grow with each failure.

        Args:
            initial_backoff: The delay before the first restart.
            max_backoff: The longest delay before a restart.
            backoff_multiplier: The factor by which the delay grows.
            reset_backoff_threshold: The failure-free time after which the backoff resets.
            jitter_factor: The share of a delay by which it varies at random.
            attempts_before_reset_backoff: How many restarts are allowed before that; any number if it is None.
        """
        return RestartStrategies.ExponentialDelayRestartStrategyConfiguration(
            initial_backoff,
            max_backoff,
            backoff_multiplier,
            reset_backoff_threshold,
            jitter_factor,
            attempts_before_reset_backoff,
        )


def configured_strategy(configuration: Configuration) -> RestartStrategyConfiguration:
    """The strategy that a configuration says; FallbackRestartStrategyConfiguration where it says nothing."""
    of = configuration.get
    kind = _kind(configuration)
    if kind is None:
        return RestartStrategies.fall_back_restart()
    if kind == "none":
        return RestartStrategies.no_restart()
    if kind == "fixed-delay":
        return RestartStrategies.fixed_delay_restart(of(FIXED_DELAY_ATTEMPTS), of(FIXED_DELAY_DELAY))
    if kind == "failure-rate":
        return RestartStrategies.failure_rate_restart(
            of(FAILURE_RATE_MAX_FAILURES), of(FAILURE_RATE_INTERVAL), of(FAILURE_RATE_DELAY)
        )
    initial, most = of(INITIAL_BACKOFF), of(MAX_BACKOFF)
    if most < initial:
        raise BadSetting(
            f"{MAX_BACKOFF.key} is {most} ms, and {INITIAL_BACKOFF.key} is {initial} ms.",
            fix=f"Set {MAX_BACKOFF.key} to no less than {INITIAL_BACKOFF.key}.",
        )
    return RestartStrategies.exponential_delay_restart(
        initial,
        most,
        of(BACKOFF_MULTIPLIER),
        of(RESET_BACKOFF_THRESHOLD),
        of(JITTER_FACTOR),
        of(ATTEMPTS_BEFORE_RESET_BACKOFF),
    )


def _kind(configuration: Configuration) -> str | None:
    """The type that is set; where none is, the one whose settings are. None: nothing is said."""
    chosen = configuration.get(RESTART_STRATEGY)
    if chosen is not None:
        return chosen
    given = {
        prefix.removeprefix("restart-strategy.").removesuffix("."): sorted(
            key for key in configuration.key_set() if key.startswith(prefix)
        )
        for prefix in (FIXED_DELAY, FAILURE_RATE, EXPONENTIAL_DELAY)
    }
    named = [kind for kind, keys in given.items() if keys]
    if len(named) > 1:
        keys = ", ".join(given[kind][0] for kind in named)
        raise BadSetting(
            f"{keys} are settings of different restart strategies, and {RESTART_STRATEGY.key} is not set.",
            fix=f"Set {RESTART_STRATEGY.key} to {', '.join(named[:-1])} or {named[-1]}.",
        )
    return named[0] if named else None


def _whole(name: str, number: int, least: int) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise BadSetting(f"{name} must be a whole number of at least {least}, not {number!r}.")
    return number


def _number(name: str, number: float) -> float:
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
        raise BadSetting(f"{name} must be a number, not {number!r}.")
    return float(number)


def _time(name: str, length: Length, least: int = 0) -> int:
    try:
        millis = to_millis(length)
    except (TypeError, ValueError) as error:
        raise BadSetting(f"{name} is {length!r}. {error}") from None
    if millis < least:
        raise BadSetting(f"{name} must not be less than {least}, and is {millis} ms.")
    return millis
