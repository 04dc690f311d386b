"""Credits: how many records the sources can emit in the next epoch to make it take about the target time.

The controller does no I/O: it observes how long an epoch took and computes the credits for the next one. Spark runs an
epoch's stages one after the other, so an epoch takes the sum of their times for its records, plus a fixed overhead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

FIRST = 10_000
"""Credits before the first measurement: an epoch of this size is short on any machine unless records are costly."""
_GROWTH = 8
"""Maximum growth of credits from one epoch to the next: a measurement of few records might not hold for many."""
_MEMORY = 0.5
"""Weight of an epoch in the moving average, relative to the next one."""
_FADING = 0.9
"""Decay of the fixed part per epoch that does not confirm it."""


class StageCost:
    """A stage's cost per source record: a moving average over recent epochs, weighted by their records."""

    def __init__(self) -> None:
        self._records = self._seconds = 0.0
        self.cost = 0.0
        """Seconds per record: that of the last epoch or the moving average, whichever is greater. Credits therefore
        fall immediately and rise only after several faster epochs."""

    def add(self, records: int, seconds: float) -> None:
        self._records = self._records * _MEMORY + records
        self._seconds = self._seconds * _MEMORY + seconds
        self.cost = max(seconds / records, self._seconds / self._records)


class Controller:
    """Call `observe` after each completed epoch."""

    def __init__(self, target: float, first: int = FIRST) -> None:
        """`target`: how many seconds an epoch should take."""
        self._target = target
        self.total = first
        """Credits for the next epoch, over all sources."""
        self._stages: dict[str, StageCost] = {}
        self._before = 0, 0.0
        """Records and seconds of an earlier epoch, to compare with one that has fewer records."""
        self._fixed = 0.0
        """Estimated seconds that the stages take regardless of records."""

    @property
    def capacity(self) -> dict[str, float]:
        """Source records per second that each stage can process."""
        return {name: 1 / stage.cost for name, stage in self._stages.items() if stage.cost > 0}

    def observe(self, records: int, unheld: int, stages: Mapping[str, float], duration: float) -> None:
        """Account for an epoch of `records` records that took `duration` seconds.

        `unheld` of the records come from sources that credits do not limit. `stages` holds the seconds of each stage.
        """
        if records <= 0:
            return
        for name, seconds in stages.items():
            self._stages.setdefault(name, StageCost()).add(records, seconds)
        spent = sum(stages.values())
        fixed = self._fixed_part(records, spent)
        work = self._work(max(0.0, duration - spent) + fixed)
        cost = sum(self._stages[name].cost for name in stages)
        if fixed:
            cost *= 1 - fixed / spent
        # Unlimited sources can use up all the time; the others still get a tenth of it.
        wanted = math.inf if cost <= 0 else max(work / cost - unheld, 0.1 * work / cost)
        if spent - fixed <= work and 2 * (records - unheld) >= self.total:
            self.total = max(self.total, int(min(wanted, self.total * (2 if fixed else _GROWTH))))
        else:
            # The epoch was too slow, or few records arrived, which does not justify more credits for when many do.
            self.total = max(1, int(min(wanted, self.total)))

    def _fixed_part(self, records: int, spent: float) -> float:
        """Estimate the part of the stages' time that does not depend on records.

        It shows when fewer records did not take less time, for example on a machine that is busy with other work.
        Reducing credits further would not help then. The estimate is at most half an epoch.
        """
        more, longer = self._before
        self._fixed *= _FADING
        if spent > 1.5 * self._target:
            # Something became slower. Assume that the cost per record rose.
            self._before, self._fixed = (records, spent), 0.0
            return 0.0
        if records <= 0.8 * more:
            slope = max(0.0, (longer - spent) / (more - records))
            self._fixed = min(max(self._fixed, spent - slope * records), self._target / 2)
        if not 0.8 * more < records < more or spent > longer:
            self._before = records, spent
        return min(self._fixed, 0.95 * spent)

    def _work(self, overhead: float) -> float:
        """Return the seconds available for records.

        If overhead takes more than half of the target, fewer records would not make the epoch much shorter. The work
        then gets as long as the overhead, but at most the target.
        """
        rest = self._target - overhead
        return rest if rest >= overhead else min(overhead, self._target)


@dataclass(frozen=True, slots=True)
class Demand:
    """The known load of one source."""

    backlog: int | None
    """Waiting records, or None if the source cannot report them."""
    granted: int
    """Credits of the last epoch."""
    given: int
    """Records that the source emitted in the last epoch."""

    @property
    def expected(self) -> int:
        """Expected records in the next epoch. Without a backlog it is twice the last count, to allow growth."""
        return self.backlog if self.backlog is not None else 2 * self.given

    @property
    def pressure(self) -> float:
        """The fraction of waiting records that the last credits held back, from 0 to 1."""
        if self.backlog is None:
            return 1.0 if self.given >= self.granted > 0 else 0.0
        return self.backlog / (self.backlog + self.given) if self.backlog else 0.0


def shared(total: int, demands: Mapping[str, Demand]) -> dict[str, int]:
    """Split credits over the sources in proportion to their waiting records.

    Every source gets at least one credit, because more records might arrive. The sum is `total`, or one per source if
    that is more.
    """
    if not demands:
        return {}
    count = len(demands)
    total = max(total, count)
    # A tenth is split evenly, to keep a busy source from starving the others.
    least = max(1, total // (10 * count))
    waiting = {name: max(0, demand.expected - least) for name, demand in demands.items()}
    rest, asked = total - least * count, sum(waiting.values())
    if asked <= rest:
        # All backlogs fit. Split the rest evenly for records that arrive in the meantime.
        even = (rest - asked) // count
        shares = {name: least + wanted + even for name, wanted in waiting.items()}
    else:
        shares = {name: least + rest * wanted // asked for name, wanted in waiting.items()}
    left = total - sum(shares.values())
    for name in sorted(shares, key=lambda name: (-demands[name].expected, name))[:left]:
        shares[name] += 1
    return shares
