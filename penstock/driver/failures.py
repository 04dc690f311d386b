"""Failures of a cluster's job over all its attempts, as events of the restart strategy."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.driver.assignment import RecordedFailure
from penstock.driver.restarts import Completed, Failed


def replayed(failures: Sequence[RecordedFailure], since_1970_ms: int) -> tuple[int, list[Failed | Completed]]:
    """Return how many failures were forgotten, and the events of the others on the monotonic clock.

    `since_1970_ms` is the time at which the monotonic clock was 0.
    """
    events: list[Failed | Completed] = []
    for each in failures:
        if each.progressed:
            events.append(Completed())
        if each.counts:
            events.append(Failed(each.exception.at_ms - since_1970_ms, each.from_user, each.identity))
    return max(failures[0].number - 1, 0) if failures else 0, events
