"""Runs an epoch's tasks in this process instead of Spark: the same tasks, rows and levels without a JVM."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.common.class_pickling import dump_records
from penstock.common.machine import physical_memory
from penstock.common.program import Program
from penstock.driver.epoch_errors import EngineLost
from penstock.driver.epoch_parameters import EpochParameters
from penstock.driver.event_time import reported_backwards
from penstock.driver.rescaling import Scale
from penstock.driver.tasks import TaskRuns, state_access, task_epoch
from penstock.errors import PenstockError
from penstock.graph.physical import PhysicalGraph, pack, unpack
from penstock.runtime.chain import ChainRun
from penstock.runtime.metrics import WorkerPlace
from penstock.runtime.moment import OfSplit
from penstock.runtime.report import decode_report
from penstock.runtime.rows import METRICS, REPORT, ExchangeRow
from penstock.runtime.task import Task
from penstock.runtime.task_epoch import TaskEpoch
from penstock.state.access import StateAccess
from penstock.state.backends import Backend, ReplicaStore
from penstock.state.storage import Storage
from penstock.testing.pace import Pace
from penstock.testing.watching import WatchedRun

_PLACE = WorkerPlace(host=socket.gethostname(), memory=physical_memory())


class LocalEngine:
    """Runs the tasks of epochs in this process.

    ``pending(uid)`` returns a source's records for the epoch, as one list per input partition. Tasks run inside
    ``program``, which holds copies of the classes that a Spark worker could not import.
    """

    def __init__(
        self,
        graph: PhysicalGraph,
        program: Program,
        storage: Storage,
        backend: Backend,
        pending: Callable[[str], list[list[Any]]],
        probe: Callable[[str], None],
        pace: Pace,
    ) -> None:
        # As on Spark, a copy of the program's graph runs.
        self._shipped = unpack(pack(graph))
        self._program = program
        self._graph, self._scale = self._shipped, Scale()
        self._storage = storage
        self._replicas = ReplicaStore(backend)
        self._pending = pending
        self._probe = probe
        self._pace = pace
        self._kept: TaskRuns[tuple[int, int | None]] = TaskRuns()
        self._measured: list[bytes] = []
        self.moves_backwards: list[str] = []
        """Descriptions of watermarks that moved backwards. Must stay empty."""

    def execute(self, parameters: EpochParameters) -> list[tuple[int, bytes]]:
        """Run the tasks of an epoch and return their reports and metrics."""
        self._measured = []
        self._rescale(parameters.scale)
        rows = list(self._sources(parameters))
        self._pace.end_stage()
        for level in range(1, len(self._graph.levels)):
            received: dict[int, list[ExchangeRow]] = {target: [] for target in range(self._graph.targets(level))}
            for row in rows:
                received[row.target].append(row)
            rows = []
            for target, arrived in received.items():
                chain, subtask = self._graph.at_target(level, target)
                epoch = self._epoch(parameters, f"level{level}")
                rows += self._task(chain.id, subtask, subtask, partial(Task.over_rows, epoch=epoch, rows=arrived))
            self._pace.end_stage()
        reports = [(row.kind, row.payload) for row in rows]
        times = ManifestChain(self._storage, parameters.wanted).times()
        reported = [decode_report(payload) for kind, payload in reports if kind == REPORT]
        self.moves_backwards += reported_backwards(times, self._graph, reported)
        return reports + [(METRICS, measured) for measured in self._measured]

    def prepare(self, parameters: EpochParameters, chains: list[int]) -> list[tuple[int, bytes]]:
        """Open chains as an epoch does, without records, and return the failures."""
        self._rescale(parameters.scale)
        epoch = self._epoch(parameters, "prepare")
        rows = [row for chain in chains for row in self._task(chain, 0, 0, partial(Task.prepare, epoch=epoch))]
        return [(row.kind, row.payload) for row in rows]

    def _rescale(self, scale: Scale) -> None:
        if scale != self._scale:
            self.close()
            self._graph, self._scale = self._shipped.rescaled(scale), scale

    @property
    def runs(self) -> dict[tuple[int, int | None], ChainRun]:
        """The open runs, by chain and subtask."""
        return self._kept.runs

    def state_access(self, parameters: EpochParameters) -> StateAccess:
        """Return access to committed state, as tasks have it."""
        return state_access(parameters, self._storage, self._replicas)

    def _sources(self, parameters: EpochParameters) -> Iterator[ExchangeRow]:
        producer = 0
        for chain in self._graph.sources():
            assert chain.source_uid is not None
            silent = parameters.ends_input and not parameters.single_epoch
            for records in [[]] if silent else self._pending(chain.source_uid):
                epoch = self._epoch(parameters, "source")
                # Copied by pickling, as on Spark.
                data = dump_records(records, self._graph.program)
                with self._program.entered():
                    batch = pickle.loads(data)
                split = bool(batch) and type(batch[0]) is OfSplit
                run_task = partial(Task.over_records, epoch=epoch, batches=batch if split else [batch] if batch else [])
                yield from self._task(chain.id, None, producer, run_task)
                producer += 1

    def _task(
        self, chain: int, subtask: int | None, producer: int, rows: Callable[[Task], Iterator[ExchangeRow]]
    ) -> list[ExchangeRow]:
        with self._program.entered():
            try:
                return list(
                    self._kept.run_task((chain, subtask), lambda: self._new_run(chain, subtask), producer, rows)
                )
            except PenstockError as error:
                # On Spark, an error that a task does not report is a lost task.
                raise EngineLost(str(error)) from error

    def _new_run(self, chain: int, subtask: int | None) -> ChainRun:
        return WatchedRun(self._graph, self._graph.chains[chain], subtask, self.moves_backwards)

    def opened(self, chain: int, parameters: EpochParameters) -> ChainRun:
        """Return a run of any subtask of a chain. Open one if none has run since the last crash."""
        self._rescale(parameters.scale)
        for (number, _), run in self.runs.items():
            if number == chain:
                return run
        with self._program.entered():
            run = self._new_run(chain, 0)
            Task(run, 0).open(self._epoch(parameters, "look"))
        self.runs[chain, 0] = run
        return run

    def close(self) -> None:
        """Close every open function, as at the end of a job."""
        with self._program.entered():
            self._kept.close()

    def abandon(self) -> None:
        """Lose every task without closing functions, as if the processes were killed."""
        self._kept.abandon()

    def _epoch(self, parameters: EpochParameters, scope: str) -> TaskEpoch:
        def probe(point: str) -> None:
            self._probe(f"{scope}.{point}")

        return task_epoch(
            parameters,
            self.state_access(parameters),
            probe,
            lambda measured: self._measured.append(self._pace.of_task(self._graph, measured)),
            _PLACE,
        )
