"""Restart strategies: a state machine without I/O. Failures and completed checkpoints in, decisions out."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.common.options.restarts import (
    ATTEMPTS_BEFORE_RESET_BACKOFF,
    BACKOFF_MULTIPLIER,
    INITIAL_BACKOFF,
    JITTER_FACTOR,
    MAX_BACKOFF,
    RESET_BACKOFF_THRESHOLD,
)


@dataclass(frozen=True)
class NoRestart:
    """The first failure ends the job."""


@dataclass(frozen=True)
class FixedDelay:
    attempts: int
    delay_ms: int


@dataclass(frozen=True)
class FailureRate:
    """More than `max_failures` failures within `interval_ms` end the job."""

    max_failures: int
    interval_ms: int
    delay_ms: int


@dataclass(frozen=True)
class ExponentialDelay:
    initial_ms: int = INITIAL_BACKOFF.default
    max_ms: int = MAX_BACKOFF.default
    multiplier: float = BACKOFF_MULTIPLIER.default
    reset_ms: int = RESET_BACKOFF_THRESHOLD.default
    """Failure-free time after which the backoff resets."""
    jitter: float = JITTER_FACTOR.default
    """Fraction by which a delay varies, so that jobs that failed together restart at different times."""
    attempts: int | None = ATTEMPTS_BEFORE_RESET_BACKOFF.default
    """Restarts before the backoff resets; one more ends the job. None: unlimited."""
    same_error: int | None = None
    """Consecutive failures of user code without a completed checkpoint; one more ends the job. None: unlimited."""
    from_the_start: int | None = None
    """How often the same error can occur before the first checkpoint; the last occurrence ends the job."""


RestartStrategy = NoRestart | FixedDelay | FailureRate | ExponentialDelay


def describe_strategy(strategy: RestartStrategy) -> str:
    """Return a strategy in words, for people."""
    match strategy:
        case NoRestart():
            return "No restart"
        case FixedDelay(attempts, delay_ms):
            return f"Restart with fixed delay ({delay_ms} ms). #{attempts} restart attempts."
        case FailureRate(max_failures, interval_ms, delay_ms):
            return f"At most {max_failures} failures in {interval_ms} ms. Restart with fixed delay ({delay_ms} ms)."
        case ExponentialDelay(initial_ms, max_ms, multiplier):
            return f"Restart with exponential delay: from {initial_ms} to {max_ms} ms, times {multiplier:g} each."


WITH_CHECKPOINTS = ExponentialDelay(same_error=10, from_the_start=5)
"""The default strategy with checkpointing. External failures can be temporary, so it retries them without limit. It
stops at a bug in a function, which shows in ten restarts without progress (two minutes), and at an error that recurs
before the first checkpoint, such as a wrong address or a file of the wrong type."""


@dataclass(frozen=True)
class Failed:
    at: int
    from_user: bool
    error: str = ""
    """Identifies the error across occurrences (`error_identity`); empty if unknown."""


@dataclass(frozen=True)
class Completed:
    """A checkpoint was completed: the job has made progress."""


@dataclass(frozen=True)
class Resumed:
    """The job starts from a checkpoint or savepoint: it has run before."""


@dataclass(frozen=True)
class Restart:
    """Wait, then resume from the last checkpoint. `number` counts the job's restarts, from 1."""

    number: int
    delay_ms: int


@dataclass(frozen=True)
class GiveUp:
    reason: str


class Restarts:
    """All events go through `handle`; only a failure returns a decision. Times are in milliseconds."""

    def __init__(self, strategy: RestartStrategy, chance: Callable[[float, float], float] = random.uniform) -> None:
        self.strategy = strategy
        self.number = 0
        self._chance = chance
        self._failures: deque[int] = deque()
        """Times of failures: the recent ones with a failure rate, otherwise only the last one."""
        self._since_reset = 0
        self._last_delay = 0
        self._same_error = 0
        self._from_the_start: Counter[str] | None = Counter()
        """Occurrences of each error; None once there is a checkpoint."""

    def replay(self, before: int, events: Iterable[Failed | Completed]) -> None:
        """Count what happened in earlier processes of the job: `before` failures, and then these events."""
        self.number = before
        for event in events:
            self.handle(event)

    def handle(self, event: Failed | Completed | Resumed) -> Restart | GiveUp | None:
        if not isinstance(event, Failed):
            self._from_the_start = None
            if isinstance(event, Completed):
                self._same_error = 0
            return None
        self._same_error = self._same_error + 1 if event.from_user else 0
        if self._from_the_start is not None and event.error:
            self._from_the_start[event.error] += 1
        strategy = self.strategy
        if isinstance(strategy, NoRestart):
            return GiveUp("")
        if isinstance(strategy, FixedDelay):
            decision = self._fixed_delay(strategy)
        elif isinstance(strategy, FailureRate):
            decision = self._failure_rate(strategy, event.at)
        else:
            decision = self._exponential_delay(strategy, event)
        if isinstance(decision, GiveUp):
            return decision
        self.number += 1
        return Restart(self.number, decision)

    def _fixed_delay(self, strategy: FixedDelay) -> int | GiveUp:
        if self.number >= strategy.attempts:
            return GiveUp(f"it restarted {_times(self.number)}, the limit of the fixed delay strategy")
        return strategy.delay_ms

    def _failure_rate(self, strategy: FailureRate, at: int) -> int | GiveUp:
        self._failures.append(at)
        if len(self._failures) > strategy.max_failures:
            first = self._failures.popleft()
            if at - first <= strategy.interval_ms:
                return GiveUp(
                    f"it failed more than {_times(strategy.max_failures)} within {strategy.interval_ms} ms, the limit "
                    f"of the failure rate strategy"
                )
        return strategy.delay_ms

    def _exponential_delay(self, strategy: ExponentialDelay, event: Failed) -> int | GiveUp:
        at = event.at
        if self._failures and at - self._failures.pop() >= strategy.reset_ms + self._last_delay:
            self._since_reset = 0
        self._failures.append(at)
        if strategy.attempts is not None and self._since_reset >= strategy.attempts:
            return GiveUp(f"it restarted {_times(self._since_reset)}, the limit of the exponential delay strategy")
        if strategy.same_error is not None and self._same_error > strategy.same_error:
            return GiveUp(
                f"the program's own code failed {_times(self._same_error)} in a row without a completed checkpoint in "
                f"between"
            )
        if strategy.from_the_start is not None and self._from_the_start is not None:
            times = self._from_the_start[event.error]
            if times >= strategy.from_the_start:
                return GiveUp(f"the same error occurred {_times(times)} before the first checkpoint")
        # The power overflows a float after many restarts.
        steps = min(self._since_reset, 1000)
        self._since_reset += 1
        try:
            delay = min(strategy.initial_ms * strategy.multiplier**steps, strategy.max_ms)
        except OverflowError:
            delay = strategy.max_ms
        self._last_delay = int(delay)
        if strategy.jitter:
            delay = self._chance(delay * (1 - strategy.jitter), delay * (1 + strategy.jitter))
            delay = max(strategy.initial_ms, min(delay, strategy.max_ms))
        return int(delay)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
