"""Flow control in the driver: what tasks measured becomes credits, and credits go to those who plan the sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from penstock.driver.credits import Controller, Demand, shared
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.metrics import BACK_PRESSURE, BACKLOG, CAPACITY, CREDITS, Number, TaskMetrics
from penstock.runtime.report import Report

_COMMIT = "commit"


class Planning(Protocol):
    """Whoever asks the sources how far the next epoch reads."""

    def grant(self, uid: str, records: int) -> None:
        """From the next epoch on, at most so many."""

    def backlog(self, uid: str) -> int | None:
        """The records that wait behind the last epoch; None where nobody knows."""


@dataclass(frozen=True)
class FlowSettings:
    target_ms: int
    """How long an epoch should take."""
    most: int | None = None
    """Records that an epoch may have of one source, whatever there is time for."""


class FlowControl:
    """Order of calls: `completed` after each epoch. `gauges` at any time, from any thread."""

    def __init__(self, settings: FlowSettings, held: Iterable[str], planning: Planning) -> None:
        """`held`: the uids of the sources that go by their credits."""
        self._settings = settings
        self._planning = planning
        self._controller = Controller(settings.target_ms / 1000)
        self._demands = dict.fromkeys(held, Demand(None, 0, 0))
        self._granted: dict[str, int] = {}
        self._gauges: dict[tuple[str, str], Number] = {}
        self._grant()

    def completed(
        self,
        graph: PhysicalGraph,
        reports: Iterable[Report],
        measured: Iterable[TaskMetrics],
        slots: int,
        committing: float,
        concurrent: float,
        duration: float,
    ) -> None:
        """An epoch took `duration` seconds, of which sinks committed for `committing`.

        Other sinks commit for `concurrent` seconds while the tasks of the next epoch run. `slots`: how many tasks run
        at once; 0 for all.
        """
        given: dict[str, int] = {}
        tasks = set()
        for report in reports:
            tasks.add((report.chain, report.subtask))
            uid = graph.chains[report.chain].source_uid
            if uid is not None:
                given[uid] = given.get(uid, 0) + report.records_in
        records = sum(given.values())
        times = {(task.chain, task.subtask): task.busy_ms / 1000 for task in measured}
        if not records or not times.keys() >= tasks:
            # Spark may lose what a task measured, and half of a stage's time would be a wrong one.
            return
        unheld = sum(count for uid, count in given.items() if uid not in self._demands)
        stages = {f"level {level}": _wall(levels, slots) for level, levels in _by_level(graph, tasks, times).items()}
        # Only what tasks do not cover makes epochs longer.
        committing += max(0.0, concurrent - sum(stages.values()))
        self._controller.observe(records, unheld, stages | {_COMMIT: committing}, duration)
        self._demands = {
            uid: Demand(self._planning.backlog(uid), self._granted[uid], given.get(uid, 0)) for uid in self._demands
        }
        self._grant()
        self._measure(graph)

    def _grant(self) -> None:
        most = self._settings.most
        demands = self._demands
        if most is not None:
            # What a source may not give is of use to the others.
            demands = {
                uid: Demand(min(demand.expected, most), demand.granted, demand.given) for uid, demand in demands.items()
            }
        for uid, records in shared(self._controller.total, demands).items():
            records = records if most is None else min(records, most)
            if self._granted.get(uid) != records:
                self._granted[uid] = records
                self._planning.grant(uid, records)

    def _measure(self, graph: PhysicalGraph) -> None:
        gauges: dict[tuple[str, str], Number] = {}
        for uid, demand in self._demands.items():
            gauges[uid, CREDITS] = self._granted[uid]
            gauges[uid, BACK_PRESSURE] = demand.pressure
            if demand.backlog is not None:
                gauges[uid, BACKLOG] = demand.backlog
        capacity = self._controller.capacity
        for chain in graph.chains:
            rate = capacity.get(f"level {chain.level}")
            if rate is not None:
                head = chain.source_uid if chain.source_uid is not None else chain.operators[0].uid
                gauges[head, CAPACITY] = rate
        self._gauges = gauges

    def gauges(self) -> dict[tuple[str, str], Number]:
        """By operator uid and name, as of the last epoch."""
        return self._gauges


def _by_level(
    graph: PhysicalGraph, tasks: Iterable[tuple[int, int]], times: dict[tuple[int, int], float]
) -> dict[int, list[float]]:
    levels: dict[int, list[float]] = {}
    for task in tasks:
        levels.setdefault(graph.chains[task[0]].level, []).append(times[task])
    return levels


def _wall(times: list[float], slots: int) -> float:
    """How long a stage takes whose tasks run concurrently, `slots` at once."""
    return max(max(times), sum(times) / slots if slots else 0.0)
