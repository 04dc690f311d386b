"""Flow control in the driver: turns task measurements into credits and grants them to the sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from penstock.driver.credits import Controller, Demand, shared
from penstock.driver.epoch_metrics import EpochMetrics
from penstock.driver.report_totals import ReportTotals
from penstock.driver.snapshots import records_by_source
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.metrics import BACK_PRESSURE, BACKLOG, CAPACITY, CREDITS, Number

_COMMIT = "commit"


class Planning(Protocol):
    """Plans how far the sources read in the next epoch."""

    def grant(self, uid: str, records: int) -> None:
        """Limit the source to this many records per epoch, starting with the next one."""

    def backlog(self, uid: str) -> int | None:
        """Return the number of records waiting after the last epoch, or None if unknown."""


@dataclass(frozen=True)
class FlowSettings:
    target_ms: int
    """Target duration of an epoch."""
    most: int | None = None
    """Maximum records per epoch from one source, regardless of the target."""


class FlowControl:
    """Call `completed` after each epoch. `gauges` can be called at any time, from any thread."""

    def __init__(self, settings: FlowSettings, held: Iterable[str], planning: Planning) -> None:
        """`held`: the uids of the sources that honor credits."""
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
        totals: ReportTotals,
        metrics: EpochMetrics,
        slots: int,
        committing: float,
        concurrent: float,
        duration: float,
    ) -> None:
        """Account for an epoch that took `duration` seconds, of which sinks committed for `committing` seconds.

        Other sinks commit for `concurrent` seconds while the tasks of the next epoch run. `slots`: how many tasks run
        concurrently, or 0 for all.
        """
        given = records_by_source(graph, totals)
        tasks = {(chain, subtask) for chain, subtasks in totals.by_task.items() for subtask in subtasks}
        records = sum(given.values())
        times = {
            (chain, task.subtask): task.busy_ms / 1000 for chain, tasks in metrics.arrived.items() for task in tasks
        }
        if not records or not times.keys() >= tasks:
            # Spark can lose a task's metrics. An incomplete stage time would be misleading.
            return
        unheld = sum(count for uid, count in given.items() if uid not in self._demands)
        stages = {f"level {level}": _wall(levels, slots) for level, levels in _by_level(graph, tasks, times).items()}
        # A concurrent commit prolongs an epoch only if it takes longer than the tasks.
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
            # Credits above a source's limit go to the other sources.
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
        """Return the gauges of the last epoch, by operator uid and metric name."""
        return self._gauges


def _by_level(
    graph: PhysicalGraph, tasks: Iterable[tuple[int, int]], times: dict[tuple[int, int], float]
) -> dict[int, list[float]]:
    levels: dict[int, list[float]] = {}
    for task in tasks:
        levels.setdefault(graph.chains[task[0]].level, []).append(times[task])
    return levels


def _wall(times: list[float], slots: int) -> float:
    """Return how long a stage takes if its tasks run concurrently in `slots` slots."""
    return max(max(times), sum(times) / slots if slots else 0.0)
