"""Runs an epoch's tasks in this process, in the place of Spark: the same tasks, rows and levels, no JVM."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

from penstock.checkpoint.epochs import EpochParameters
from penstock.checkpoint.history import ManifestHistory
from penstock.runtime.plan import PhysicalGraph
from penstock.runtime.rows import ExchangeRow
from penstock.runtime.task import ChainRun, Task, TaskEpoch
from penstock.state.access import StateAccess
from penstock.state.engines.base import Engine
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.engines.memory import MemoryEngine
from penstock.state.storage import Storage


class LocalEngine:
    """`pending(uid)` gives a source's records of the epoch, one list per input partition."""

    def __init__(
        self,
        graph: PhysicalGraph,
        storage: Storage,
        replica_root: str,
        pending: Callable[[str], list[list[Any]]],
        probe: Callable[[str], None],
    ) -> None:
        # As on Spark, what runs is a copy of what the program holds.
        self._graph: PhysicalGraph = pickle.loads(pickle.dumps(graph))
        self._storage = storage
        self._replica_root = replica_root
        self._pending = pending
        self._probe = probe
        self.runs: dict[tuple[int, int | None], ChainRun] = {}
        self._memory: dict[tuple[str, int], Engine] = {}

    def execute(self, parameters: EpochParameters) -> list[tuple[int, bytes]]:
        rows = list(self._sources(parameters))
        for level in range(1, len(self._graph.levels)):
            received: dict[int, list[ExchangeRow]] = {target: [] for target in range(self._graph.targets(level))}
            for row in rows:
                received[row.target].append(row)
            rows = []
            for target, arrived in received.items():
                chain, subtask = self._graph.at_target(level, target)
                epoch = self._epoch(parameters, f"level{level}")
                rows += self._task(
                    chain.id, subtask, subtask, lambda task, e=epoch, a=arrived: task.over_rows(e, iter(a))
                )
        return [(row.kind, row.payload) for row in rows]

    def state_access(self, parameters: EpochParameters) -> StateAccess:
        memory = parameters.backend == "memory"
        return StateAccess(
            ManifestHistory(self._storage, parameters.wanted),
            None if memory else self._storage,
            self._memory_engine if memory else self._lmdb_engine,
            parameters.inline_bytes,
        )

    def _sources(self, parameters: EpochParameters) -> Iterator[ExchangeRow]:
        producer = 0
        for chain in self._graph.sources():
            assert chain.source_uid is not None
            for records in [[]] if parameters.ends_input else self._pending(chain.source_uid):
                epoch = self._epoch(parameters, "source")
                # A copy: records reach tasks by pickling on Spark too.
                batch = pickle.loads(pickle.dumps(records))
                yield from self._task(
                    chain.id,
                    None,
                    producer,
                    lambda task, e=epoch, b=batch: task.over_records(e, [b] if b else []),
                )
                producer += 1

    def _task(
        self, chain: int, subtask: int | None, producer: int, rows: Callable[[Task], Iterator[ExchangeRow]]
    ) -> list[ExchangeRow]:
        name = chain, subtask
        run = self.runs.pop(name, None) or ChainRun(self._graph, self._graph.chains[chain], subtask)
        task = Task(run, producer)
        result = list(rows(task))
        if not task.failed:
            self.runs[name] = run
        return result

    def _epoch(self, parameters: EpochParameters, scope: str) -> TaskEpoch:
        def probe(point: str) -> None:
            self._probe(f"{scope}.{point}")

        return TaskEpoch(parameters.number, parameters.ends_input, self.state_access(parameters), probe)

    def _memory_engine(self, uid: str, block: int) -> Engine:
        return self._memory.setdefault((uid, block), MemoryEngine())

    def _lmdb_engine(self, uid: str, block: int) -> Engine:
        return LmdbEngine(os.path.join(self._replica_root, f"{uid}-{block}"))
