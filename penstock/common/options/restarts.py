"""Options of restart strategies."""

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
    "none, fixed-delay, failure-rate or exponential-delay",
    aliases=("restart-strategy",),
)
FIXED_DELAY_ATTEMPTS = option(f"{FIXED_DELAY}attempts", Whole(0, MOST_LONG), "1", "restarts of a job's life")
FIXED_DELAY_DELAY = option(f"{FIXED_DELAY}delay", Length(), "1 s", "time before a restart")
FAILURE_RATE_MAX_FAILURES = option(
    f"{FAILURE_RATE}max-failures-per-interval",
    Whole(1, MOST_LONG),
    "1",
    "one more within the interval is one too many",
)
FAILURE_RATE_INTERVAL = option(
    f"{FAILURE_RATE}failure-rate-interval", Length(1), "1 min", "time in which failures are counted"
)
FAILURE_RATE_DELAY = option(f"{FAILURE_RATE}delay", Length(), "1 s", "time before a restart")
INITIAL_BACKOFF = option(f"{EXPONENTIAL_DELAY}initial-backoff", Length(1), "1 s", "time before the first restart")
MAX_BACKOFF = option(f"{EXPONENTIAL_DELAY}max-backoff", Length(1), "1 min", "longest time before a restart")
BACKOFF_MULTIPLIER = option(f"{EXPONENTIAL_DELAY}backoff-multiplier", Number(1, 1e6), "1.5", "how that time grows")
RESET_BACKOFF_THRESHOLD = option(
    f"{EXPONENTIAL_DELAY}reset-backoff-threshold",
    Length(),
    "1 h",
    "after so long without failure it is the first one again",
)
JITTER_FACTOR = option(
    f"{EXPONENTIAL_DELAY}jitter-factor", Number(0, 1), "0.1", "part of the time that is left to chance"
)
ATTEMPTS_BEFORE_RESET_BACKOFF = optional(
    f"{EXPONENTIAL_DELAY}attempts-before-reset-backoff",
    Whole(1, MOST_LONG),
    "without end",
    "restarts until that reset",
)
