"""The wall clock, for times that people read and that processes compare. Measure durations with a monotonic clock."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the current time in milliseconds since 1970."""
    return int(time.time() * 1000)
