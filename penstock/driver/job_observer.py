"""Observes a running job and produces its snapshot. The job reports each epoch, failure and change of its state.

A snapshot costs a few microseconds per subtask and never waits for the epoch in progress.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from msgspec.structs import replace

from penstock.common.garbage import collection_paused
from penstock.common.job import JobStatus
from penstock.common.masking import masked_settings, masked_text, secrets_of, secrets_of_arguments
from penstock.driver.assignment import RecordedFailure
from penstock.driver.checkpoint_snapshots import checkpoints_snapshot
from penstock.driver.epoch_steps import MeasuredEpoch
from penstock.driver.epochs import EpochDriver
from penstock.driver.failure_log import FailureLog
from penstock.driver.held_state import Block
from penstock.driver.job_snapshot import (
    CheckpointFacts,
    ExceptionSnapshot,
    ExecutorSnapshot,
    JobSnapshot,
    Number,
    SlotsSnapshot,
    VertexSnapshot,
)
from penstock.driver.life_cycle import LifeCycle, Phase
from penstock.driver.metrics import MetricTotals
from penstock.driver.slots import slots_needed
from penstock.driver.task_states import task_state
from penstock.driver.vertex_log import VertexLog
from penstock.driver.vertices import subtask_of, vertices_of
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.metrics import is_own_metric
from penstock.runtime.plan import Chain

_ENDED = (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED, JobStatus.SUSPENDED)


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """What does not change while a job runs."""

    id: str
    name: str
    attempt: int = 0
    """The attempt of the cluster, from 1; 0 for a program run by hand."""
    parallelism: int = 1
    batch: bool = False
    application: str = ""
    """Spark's id of the application."""
    plan: str = "{}"
    checkpointing: CheckpointFacts = field(default_factory=CheckpointFacts)
    configuration: Mapping[str, str] = field(default_factory=dict)
    """The settings, not masked."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    """The arguments of the program. They are not shown, and their secrets are masked."""
    restart_strategy: str = ""
    savepoint: str = ""
    """The savepoint that the job started from."""


class ObservedJob(Protocol):
    """The parts of a job that can be replaced while it runs. Reading them does not block."""

    @property
    def life(self) -> LifeCycle: ...

    @property
    def driver(self) -> EpochDriver: ...


class JobObserver:
    """The job calls `changed`, `completed` and `failed`. `snapshot` can be called at any time, from any thread."""

    def __init__(
        self,
        facts: JobFacts,
        clock: Callable[[], float] = time.time,
        executors: Callable[[], Sequence[ExecutorSnapshot]] = lambda: (),
        followed: Callable[[], Mapping[str, Collection[Block]]] = dict,
    ) -> None:
        """`clock` returns seconds since 1970, `executors` the executors as last reported by the engine, and `followed`
        the blocks of state that each of them follows as a standby."""
        self._facts, self._clock, self._executors, self._followed = facts, clock, executors, followed
        self._lock = threading.Lock()
        self._started_ms = self._now()
        self._state = JobStatus.CREATED.name
        self._states = {JobStatus.CREATED.name: self._started_ms}
        self._tasks = {"CREATED": self._started_ms}
        self._waits = False
        self._ended_ms = -1
        self._vertices = VertexLog(facts.parallelism)
        secrets = secrets_of(facts.configuration) | secrets_of(facts.parameters)
        secrets |= secrets_of_arguments(facts.arguments)
        self._mask: Callable[[str], str] = lambda text: masked_text(text, secrets)
        self._failures = FailureLog(facts.parallelism, self._mask, facts.attempt)
        self._graph: PhysicalGraph | None = None
        self._outlines: list[tuple[Chain, VertexSnapshot]] = []
        self._configuration = self._masked(facts.configuration)
        self._parameters = self._masked(facts.parameters)

    def _masked(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return settings without secrets. A setting can repeat the secret of another one."""
        return {key: self._mask(value) for key, value in masked_settings(settings).items()}

    def _now(self) -> int:
        return int(self._clock() * 1000)

    # -- reports of the job --------------------------------------------------------------------------------------------

    def changed(self, phase: Phase, status: JobStatus) -> None:
        """Note that the job has entered this phase or status."""
        now = self._now()
        with self._lock:
            if status.name != self._state:
                self._state = status.name
                self._states[self._state] = now
            if phase is Phase.RECOVERING and "INITIALIZING" in self._tasks:
                # Another attempt begins.
                self._tasks = {"CREATED": now}
            self._tasks.setdefault(task_state(phase, status, self._waits), now)
            if phase is Phase.ENDED:
                self._ended_ms = now

    def waits_for_slots(self, waits: bool) -> None:
        """Note that the job, between two epochs, begins to wait for slots, or has them."""
        with self._lock:
            self._waits = waits
            if waits:
                self._tasks.pop("RUNNING", None)
            self._tasks["SCHEDULED" if waits else "RUNNING"] = self._now()

    def completed(self, driver: EpochDriver, epoch: MeasuredEpoch) -> None:
        """Add a completed epoch."""
        gauges = {} if driver.flow is None else driver.flow.gauges()
        self._vertices.completed(epoch, self._now(), gauges)

    def failed(self, error: BaseException, job: ObservedJob) -> ExceptionSnapshot:
        """Add a failure of the job, before the life cycle decides what follows, and return its snapshot."""
        return self._failures.add(error, job.driver.graph, job.life.restarts, self._now())

    def failed_before(self, failures: Sequence[RecordedFailure]) -> None:
        """Add the failures of earlier attempts of a cluster's job."""
        dropped = failures[0].number - 1 if failures else 0
        self._failures.restore([replace(each.exception, attempt=each.attempt) for each in failures], dropped)

    # -- the snapshot --------------------------------------------------------------------------------------------------

    def snapshot(self, job: ObservedJob, savepoint: str | None = None) -> JobSnapshot:
        """Return the present state of the job. `savepoint`: the path of the one that it was stopped with."""
        with collection_paused():
            return self._snapshot(job, savepoint)

    def _snapshot(self, job: ObservedJob, savepoint: str | None) -> JobSnapshot:
        life, driver, facts = job.life, job.driver, self._facts
        phase, status = life.phase, life.status
        slots = self._slots(driver)
        exceptions, dropped = self._failures.read()
        with self._lock:
            states, tasks, ended = dict(self._states), dict(self._tasks), self._ended_ms
            outlines = self._outlines_of(driver.graph)
        failed = status in (JobStatus.FAILED, JobStatus.FAILING, JobStatus.RESTARTING)
        return JobSnapshot(
            id=facts.id,
            name=facts.name,
            state=status.name,
            started_ms=self._started_ms,
            ended_ms=ended if status in _ENDED else -1,
            state_since_ms=states,
            restarts=life.restarts,
            reason=self._reason(slots, exceptions[-1].message if failed and exceptions else ""),
            savepoint=savepoint or "",
            taken_ms=self._now(),
            batch=facts.batch,
            stoppable=status is JobStatus.RUNNING and not facts.batch,
            application=facts.application,
            parallelism=facts.parallelism,
            max_parallelism=max((outline.max_parallelism for _, outline in outlines), default=-1),
            tasks_since_ms=tasks,
            vertices=self._vertices_now(outlines, driver.metrics, driver, task_state(phase, status, slots.waits)),
            plan=facts.plan,
            epochs=driver.next_number - 1,
            recent_epochs=self._vertices.epochs(),
            checkpoints=checkpoints_snapshot(driver, facts.savepoint, self._mask),
            checkpointing=facts.checkpointing,
            exceptions=exceptions,
            exceptions_dropped=dropped,
            configuration=self._configuration,
            parameters=self._parameters,
            restart_strategy=facts.restart_strategy,
            slots=slots,
            executors=self._vertices.with_state(
                [self._vertices.with_workers(each) for each in self._executors()], self._followed()
            ),
        )

    @staticmethod
    def _slots(driver: EpochDriver) -> SlotsSnapshot:
        needed, slots = slots_needed(driver.graph), driver.slots
        if slots is None:
            return SlotsSnapshot(needed=needed)
        return SlotsSnapshot(needed=needed, available=slots.available, waits=slots.waits, takes_turns=slots.takes_turns)

    @staticmethod
    def _reason(slots: SlotsSnapshot, failure: str) -> str:
        if failure:
            return failure
        lacks = f"The job needs {slots.needed} slots, but Spark has {slots.available}"
        if slots.waits:
            return f"{lacks}. It waits for them."
        return f"{lacks}. Its tasks take turns." if slots.takes_turns else ""

    def _outlines_of(self, graph: PhysicalGraph) -> list[tuple[Chain, VertexSnapshot]]:
        if graph is not self._graph:
            self._graph, self._outlines = graph, vertices_of(graph, self._facts.parallelism)
        return self._outlines

    def _vertices_now(
        self, outlines: list[tuple[Chain, VertexSnapshot]], metrics: MetricTotals, driver: EpochDriver, state: str
    ) -> list[VertexSnapshot]:
        measured, counters = metrics.by_operator(), metrics.user_counters()
        gauges = {} if driver.flow is None else driver.flow.gauges()
        culprit = self._failures.culprit if state in ("FAILED", "CANCELED") else None
        vertices = []
        for chain, outline in outlines:
            states = [state] * outline.parallelism
            if culprit is not None and state == "FAILED":
                # Only the task that failed did so; the others were cancelled.
                states = ["CANCELED"] * outline.parallelism
                if culprit[0] == chain.id and culprit[1] < len(states):
                    states[culprit[1]] = "FAILED"
            subtasks, totals = self._vertices.read(chain, states)
            values = self._values_of(chain, outline, measured, counters)
            vertices.append(
                replace(
                    outline,
                    subtasks=subtasks,
                    tasks={each: states.count(each) for each in dict.fromkeys(states)},
                    state="FAILED" if "FAILED" in states else states[0],
                    totals=totals,
                    metrics={f"{uid}.{name}": cells for (uid, name), cells in values.items()},
                    driver_metrics={name: value for (uid, name), value in gauges.items() if uid == outline.uid}
                    | self._stage_metrics(chain.level, runs=state == "RUNNING"),
                    counters={
                        f"{uid}.{name}": [None if cell is None else int(cell) for cell in cells]
                        for (uid, name), cells in values.items()
                        if (uid, name) in counters
                    },
                )
            )
        return vertices

    def _stage_metrics(self, level: int, runs: bool) -> dict[str, Number]:
        """Return how much of a second the stage of this level took in the last cycle. It tells which one is slow."""
        epochs = self._vertices.epochs()
        if not epochs or epochs[-1].cycle_ms <= 0 or level >= len(epochs[-1].stages_ms) - 1:
            return {}
        return {"stageTimeMsPerSecond": 1000 * epochs[-1].stages_ms[level] / epochs[-1].cycle_ms if runs else 0.0}

    def _values_of(
        self,
        chain: Chain,
        outline: VertexSnapshot,
        measured: dict[str, dict[str, dict[int, Number]]],
        counters: set[tuple[str, str]],
    ) -> dict[tuple[str, str], list[Number | None]]:
        values: dict[tuple[str, str], list[Number | None]] = {}
        for operator in outline.operators:
            for name, cells in measured.get(operator.uid, {}).items():
                row = values[operator.uid, name] = [None] * outline.parallelism
                adds_up = (operator.uid, name) in counters or is_own_metric(name)
                for task, value in cells.items():
                    number = subtask_of(chain, task, self._facts.parallelism)
                    # A rescale might have removed the subtask. Gauges can be infinite or NaN, which JSON does not have.
                    if number < outline.parallelism and math.isfinite(value):
                        before = row[number]
                        row[number] = before + value if before is not None and adds_up else value
        return values
