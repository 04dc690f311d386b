"""Collecting an epoch: the engine runs the tasks, with retries, until all of them have acknowledged the epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.driver.clock import DriverClocks
from penstock.driver.coordinator import (
    Abort,
    Acknowledge,
    AllIn,
    CheckpointStatus,
    Coordinator,
    Decline,
    Expire,
    Publish,
    TriggerCheckpoint,
)
from penstock.driver.epoch_errors import EngineLost, TookTooLong, failed
from penstock.driver.epoch_metrics import EpochMetrics
from penstock.driver.epoch_settings import Settings
from penstock.driver.epoch_steps import CollectedEpoch
from penstock.driver.statistics import CheckpointLog
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.metrics import NOWHERE, WorkerPlace, decode_metrics
from penstock.runtime.report import decode_report
from penstock.runtime.rows import FAILURE, METRICS, REPORT, Failure, decode_failure

Rows = Iterable[tuple[int, bytes]]
"""The engine's output for an epoch: reports, failures and metrics, each with its kind."""


class Collector:
    """Turns the engine's rows into coordinator events. Call `collect` once per epoch."""

    def __init__(
        self,
        coordinator: Coordinator,
        settings: Settings,
        checkpoints: CheckpointLog,
        clocks: DriverClocks,
        metrics_of: Callable[[int], EpochMetrics],
    ) -> None:
        """`metrics_of` returns the metrics of an attempt at an epoch, before its first task."""
        self._coordinator = coordinator
        self._settings = settings
        self._checkpoints = checkpoints
        self._clocks = clocks
        self._metrics_of = metrics_of

    def collect(
        self, epoch: int, graph: PhysicalGraph, run: Callable[[], Rows], on_abort: Callable[[Abort], None]
    ) -> CollectedEpoch:
        """Run attempts until one of them is complete.

        `run` starts the engine. `on_abort` cleans up after a failed attempt; an exception from it ends the epoch.
        Raises EpochFailed once more attempts have failed than are tolerated.
        """
        attempts = 0
        while True:
            triggered_at, started = self._clocks.now_ms(), self._clocks.monotonic()
            self._trigger(epoch, graph)
            metrics = self._gather(epoch, run)
            instruction = self._coordinator.handle(AllIn(epoch, self._clocks.ticks()))
            if isinstance(instruction, Publish):
                break
            current = self._coordinator.current
            acknowledged = {} if current is None else current.acknowledged_after()
            elapsed_ms = self._clocks.elapsed_ms(started)
            self._checkpoints.add_failed(instruction, graph, acknowledged, triggered_at, elapsed_ms)
            on_abort(instruction)
            attempts += 1
            if attempts > self._tolerated(instruction):
                error = failed(instruction)
                error.place = _place_of(error.failures, graph, metrics)
                raise error
        totals = instruction.totals
        return CollectedEpoch(
            totals=totals,
            metrics=metrics,
            records=sum(totals.records_in.get(chain.id, 0) for chain in graph.sources()),
            triggered_at=triggered_at,
            started=started,
        )

    def _trigger(self, epoch: int, graph: PhysicalGraph) -> None:
        sources = frozenset(chain.id for chain in graph.sources())
        self._coordinator.handle(TriggerCheckpoint(epoch, self._clocks.ticks(), frozenset(graph.subtasks()), sources))

    def _gather(self, epoch: int, run: Callable[[], Rows]) -> EpochMetrics:
        handle, ticks = self._coordinator.handle, self._clocks.ticks
        metrics = self._metrics_of(epoch)
        try:
            rows = run()
            for kind, payload in rows:
                if kind == REPORT:
                    handle(Acknowledge(decode_report(payload), ticks()))
                elif kind == FAILURE:
                    handle(Decline(epoch, decode_failure(payload), ticks()))
                elif kind == METRICS:
                    metrics.add(decode_metrics(payload))
        except TookTooLong:
            handle(Expire(epoch, ticks()))
        except EngineLost as lost:
            failure = Failure(
                operator="", uid="", subtask=-1, error=str(lost), traceback="", from_user=False, fix=lost.fix
            )
            handle(Decline(epoch, failure, ticks()))
        return metrics

    def _tolerated(self, abort: Abort) -> int:
        """Return how often an epoch that failed this way is retried."""
        # An error in user code would recur; an engine failure might not.
        if any(failure.from_user for failure in abort.failures):
            return 0
        tolerable = self._settings.tolerable_failures
        return tolerable if abort.status is CheckpointStatus.EXPIRED else max(tolerable, self._settings.retries)


def _place_of(failures: Iterable[Failure], graph: PhysicalGraph, metrics: EpochMetrics) -> WorkerPlace:
    """Return where the task of the first failure ran, if the engine tells."""
    failure = next(iter(failures), None)
    if failure is None:
        return NOWHERE
    chains = {
        chain.id
        for chain in graph.chains
        if failure.uid in (chain.source_uid, *(operator.uid for operator in chain.operators))
    }
    found = (
        task.place
        for chain, tasks in metrics.arrived.items()
        for task in tasks
        if chain in chains and task.subtask == failure.subtask
    )
    return next(found, NOWHERE)
