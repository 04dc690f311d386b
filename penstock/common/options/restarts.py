"""Options for restart strategies."""

from __future__ import annotations

from penstock.common.options.definition import option, optional
from penstock.common.setting_types import MOST_LONG, Choice, Length, Number, Whole

FIXED_DELAY = "restart-strategy.fixed-delay."
FAILURE_RATE = "restart-strategy.failure-rate."
EXPONENTIAL_DELAY = "restart-strategy.exponential-delay."

RESTART_STRATEGY = optional(
    "restart-strategy.type",
    Choice(
        "none",
        "fixed-delay",
        "failure-rate",
        "exponential-delay",
        also={
            **dict.fromkeys(("off", "disable"), "none"),
            **{"fixeddelay": "fixed-delay", "failurerate": "failure-rate"},
            "exponentialdelay": "exponential-delay",
        },
    ),
    "exponential-delay with checkpoints, else none",
    "`none`, `fixed-delay`, `failure-rate` or `exponential-delay`.",
    aliases=("restart-strategy",),
)
FIXED_DELAY_ATTEMPTS = option(
    f"{FIXED_DELAY}attempts", Whole(0, MOST_LONG), "1", "Maximum number of restarts of a job."
)
FIXED_DELAY_DELAY = option(f"{FIXED_DELAY}delay", Length(), "1 s", "Delay before a restart.")
FAILURE_RATE_MAX_FAILURES = option(
    f"{FAILURE_RATE}max-failures-per-interval",
    Whole(1, MOST_LONG),
    "1",
    "Failures allowed within the interval; the next one fails the job.",
)
FAILURE_RATE_INTERVAL = option(
    f"{FAILURE_RATE}failure-rate-interval", Length(1), "1 min", "Time window in which failures are counted."
)
FAILURE_RATE_DELAY = option(f"{FAILURE_RATE}delay", Length(), "1 s", "Delay before a restart.")
INITIAL_BACKOFF = option(f"{EXPONENTIAL_DELAY}initial-backoff", Length(1), "1 s", "Delay before the first restart.")
MAX_BACKOFF = option(f"{EXPONENTIAL_DELAY}max-backoff", Length(1), "1 min", "Maximum delay before a restart.")
BACKOFF_MULTIPLIER = option(
    f"{EXPONENTIAL_DELAY}backoff-multiplier", Number(1, 1e6), "1.5", "Factor by which the delay grows."
)
RESET_BACKOFF_THRESHOLD = option(
    f"{EXPONENTIAL_DELAY}reset-backoff-threshold",
    Length(),
    "1 h",
    "Failure-free time after which the backoff resets to its initial value.",
)
JITTER_FACTOR = option(
    f"{EXPONENTIAL_DELAY}jitter-factor", Number(0, 1), "0.1", "Fraction of the delay that is randomized."
)
ATTEMPTS_BEFORE_RESET_BACKOFF = optional(
    f"{EXPONENTIAL_DELAY}attempts-before-reset-backoff",
    Whole(1, MOST_LONG),
    "unlimited",
    "Restarts allowed between two resets of the backoff.",
)
