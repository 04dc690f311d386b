"""Runs an epoch's tasks in this process, in the place of Spark: the same tasks, rows and levels, no JVM."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.common.class_pickling import dump_records
from penstock.common.program import Program
from penstock.driver.epoch_errors import EngineLost
from penstock.driver.epoch_parameters import EpochParameters
from penstock.driver.event_time import reported_backwards
from penstock.driver.rescaling import Scale
from penstock.errors import PenstockError
from penstock.graph.physical import PhysicalGraph, pack, unpack
from penstock.runtime.chain import ChainRun
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


class LocalEngine:
    """`pending(uid)` gives a source's records of the epoch, one list per input partition.

    Tasks run inside `program`, which has copies of the classes that a worker of Spark could not import.
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
        # As on Spark, what runs is a copy of what the program holds.
        self._shipped = unpack(pack(graph))
        self._program = program
        self._graph, self._scale = self._shipped, Scale()
        self._storage = storage
        self._replicas = ReplicaStore(backend)
        self._pending = pending
        self._probe = probe
        self._pace = pace
        self.runs: dict[tuple[int, int | None], ChainRun] = {}
        self._measured: list[bytes] = []
        self.moves_backwards: list[str] = []
        """Of watermarks, in words: there must be none."""

    def execute(self, parameters: EpochParameters) -> list[tuple[int, bytes]]:
        """Run the tasks of an epoch, and return their reports and metrics."""
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

    def state_access(self, parameters: EpochParameters) -> StateAccess:
        """Return the committed state that tasks of this epoch start from."""
        return StateAccess(
            ManifestChain(self._storage, parameters.wanted),
            None if self._storage.in_memory else self._storage,
            self._replicas.opener(parameters.lineage),
            parameters.inline_bytes,
            parameters.overlay_bytes,
        )

    def _sources(self, parameters: EpochParameters) -> Iterator[ExchangeRow]:
        producer = 0
        for chain in self._graph.sources():
            assert chain.source_uid is not None
            silent = parameters.ends_input and not parameters.single_epoch
            for records in [[]] if silent else self._pending(chain.source_uid):
                epoch = self._epoch(parameters, "source")
                # A copy: records reach tasks by pickling on Spark too.
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
        name = chain, subtask
        with self._program.entered():
            run = self.runs.pop(name, None) or self._new_run(chain, subtask)
            task = Task(run, producer)
            try:
                result = list(rows(task))
            except PenstockError as error:
                # What a task does not report itself is on Spark a lost task.
                run.abandon()
                raise EngineLost(str(error)) from error
            except BaseException:
                run.abandon()
                raise
            if task.failed:
                # As on Spark: another failure while closing would only hide the one that is on its way to the driver.
                with suppress(Exception, SystemExit):
                    run.close()
            else:
                self.runs[name] = run
            return result

    def _new_run(self, chain: int, subtask: int | None) -> ChainRun:
        return WatchedRun(self._graph, self._graph.chains[chain], subtask, self.moves_backwards)

    def opened(self, chain: int, parameters: EpochParameters) -> ChainRun:
        """A run of this chain, of whatever subtask; opened now if none has run since the last crash."""
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
        """Close every function that is open, as when a job ends."""
        with self._program.entered():
            for run in self.runs.values():
                run.close()
        self.runs.clear()

    def abandon(self) -> None:
        """Lose every task, as when processes are killed: no function is closed."""
        for run in self.runs.values():
            run.abandon()
        self.runs.clear()

    def _epoch(self, parameters: EpochParameters, scope: str) -> TaskEpoch:
        def probe(point: str) -> None:
            self._probe(f"{scope}.{point}")

        return TaskEpoch(
            parameters.number,
            parameters.ends_input,
            self.state_access(parameters),
            parameters.lineage,
            parameters.timestamp,
            probe,
            lambda measured: self._measured.append(self._pace.of_task(self._graph, measured)),
            parameters.single_epoch,
            parameters.token,
            parameters.jumped,
        )
