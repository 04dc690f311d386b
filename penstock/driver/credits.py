"""Credits: how many records the sources may give the next epoch, so that it takes about as long as it should.

Pure: told what an epoch took, it says what the next one may have. Spark runs an epoch's stages one after the other, so
an epoch takes what all of them take together for its records, and what it takes without any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

FIRST = 10_000
"""Credits before anything is measured: an epoch of so many is short on any machine, unless records are costly."""
_GROWTH = 8
"""At most so many times the credits of the epoch before: what is measured at a few records may not hold for many."""
_MEMORY = 0.5
"""What an epoch counts in the average, against the one after it."""
_FADING = 0.9
"""What is left of the fixed part of an epoch after another one that did not show it."""


class StageCost:
    """What a stage takes for a record of the sources: over the last epochs, each with the weight of its records."""

    def __init__(self) -> None:
        self._records = self._seconds = 0.0
        self.cost = 0.0
        """Seconds per record: that of the last epoch, or of the last epochs together if that is more. So credits fall
        at once, and rise when it has been faster for some epochs."""

    def add(self, records: int, seconds: float) -> None:
        self._records = self._records * _MEMORY + records
        self._seconds = self._seconds * _MEMORY + seconds
        self.cost = max(seconds / records, self._seconds / self._records)


class Controller:
    """Order of calls: `observe` after each completed epoch."""

    def __init__(self, target: float, first: int = FIRST) -> None:
        """`target`: the seconds that an epoch should take."""
        self._target = target
        self.total = first
        """Credits for the next epoch, of all sources together."""
        self._stages: dict[str, StageCost] = {}
        self._before = 0, 0.0
        """Records and seconds of an epoch, to compare with that of fewer records."""
        self._fixed = 0.0
        """What the stages take without any record, as far as it shows."""

    @property
    def capacity(self) -> dict[str, float]:
        """By stage: records of the sources that it can do in a second."""
        return {name: 1 / stage.cost for name, stage in self._stages.items() if stage.cost > 0}

    def observe(self, records: int, unheld: int, stages: Mapping[str, float], duration: float) -> None:
        """An epoch had `records`, `unheld` of them from sources that cannot be held back; it took `duration` seconds in
        all, and each stage its share of them."""
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
        # What cannot be held back may be all there is time for: a tenth is for the others still.
        wanted = math.inf if cost <= 0 else max(work / cost - unheld, 0.1 * work / cost)
        if spent - fixed <= work and 2 * (records - unheld) >= self.total:
            self.total = max(self.total, int(min(wanted, self.total * (2 if fixed else _GROWTH))))
        else:
            # Too slow; or few came, which is no reason to have more at once when many do.
            self.total = max(1, int(min(wanted, self.total)))

    def _fixed_part(self, records: int, spent: float) -> float:
        """Of what the stages took. It shows where fewer records did not take less, as on a machine that is busy with
        other things; fewer still would be of no use then. Half an epoch is the most that is believed."""
        more, longer = self._before
        self._fixed *= _FADING
        if spent > 1.5 * self._target:
            # Something has become slower, and it is best to think that it is for every record.
            self._before, self._fixed = (records, spent), 0.0
            return 0.0
        if records <= 0.8 * more:
            slope = max(0.0, (longer - spent) / (more - records))
            self._fixed = min(max(self._fixed, spent - slope * records), self._target / 2)
        if not 0.8 * more < records < more or spent > longer:
            self._before = records, spent
        return min(self._fixed, 0.95 * spent)

    def _work(self, overhead: float) -> float:
        """The seconds that are left for records. Fewer records would not make an epoch shorter that is planned and
        scheduled longer than it works: then it works as long as that, but no longer than it should take."""
        rest = self._target - overhead
        return rest if rest >= overhead else min(overhead, self._target)


@dataclass(frozen=True, slots=True)
class Demand:
    """What one source has, as far as anybody knows."""

    backlog: int | None
    """Records that wait; None where the source cannot say."""
    granted: int
    """What it might have given the last epoch, and what it gave."""
    given: int

    @property
    def expected(self) -> int:
        """What it would give if it might: of a source that cannot say, twice what it gave, so that it may grow."""
        return self.backlog if self.backlog is not None else 2 * self.given

    @property
    def pressure(self) -> float:
        """The part of what waits that the last credits held back: 0 for none of it."""
        if self.backlog is None:
            return 1.0 if self.given >= self.granted > 0 else 0.0
        return self.backlog / (self.backlog + self.given) if self.backlog else 0.0


def shared(total: int, demands: Mapping[str, Demand]) -> dict[str, int]:
    """Each source's credits: by what waits in it, and never nothing, for more may come than was there.

    Together they are `total`, or one for each source where that is more.
    """
    if not demands:
        return {}
    count = len(demands)
    total = max(total, count)
    # A tenth is dealt out evenly, so that a source beside a full one does not starve.
    least = max(1, total // (10 * count))
    waiting = {name: max(0, demand.expected - least) for name, demand in demands.items()}
    rest, asked = total - least * count, sum(waiting.values())
    if asked <= rest:
        # All get what they have; what is left over is for what comes meanwhile.
        even = (rest - asked) // count
        shares = {name: least + wanted + even for name, wanted in waiting.items()}
    else:
        shares = {name: least + rest * wanted // asked for name, wanted in waiting.items()}
    left = total - sum(shares.values())
    for name in sorted(shares, key=lambda name: (-demands[name].expected, name))[:left]:
        shares[name] += 1
    return shares
