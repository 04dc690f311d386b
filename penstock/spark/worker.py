"""The code that Spark runs in its Python workers: one task per partition of a stage, over Arrow batches of rows."""

from __future__ import annotations

import gc
import hashlib
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from penstock.common.garbage import GarbageCollector
from penstock.common.program import enter_program
from penstock.connectors.dead_letters import LetterBox
from penstock.connectors.source import Source, read_split
from penstock.driver.epoch_parameters import EpochParameters
from penstock.driver.rescaling import Scale
from penstock.driver.tasks import TaskRuns, state_access, task_epoch
from penstock.graph.physical import PhysicalGraph, pack, unpack
from penstock.runtime.chain import ChainRun
from penstock.runtime.columns import RowBatch
from penstock.runtime.exchange import Records
from penstock.runtime.moment import OfSplit
from penstock.runtime.plan import Chain
from penstock.runtime.probe import crash_probe
from penstock.runtime.rows import ExchangeRow
from penstock.runtime.task import Task
from penstock.runtime.task_epoch import TaskEpoch
from penstock.spark.given_up import GivenUp, interruptible
from penstock.spark.metrics import Collected
from penstock.spark.worker_place import worker_place
from penstock.state.access import StateAccess
from penstock.state.backends import Backend, ReplicaStore
from penstock.state.storage import Storage
from penstock.state.storage_uri import open_storage

EPOCH_PROPERTY = "penstock.secret.epoch"
"""Spark local property that passes an epoch's parameters to every task without changing the plan.

It can contain the secret of the driver's memory. Spark redacts properties with `secret` in their name in its logs.
"""

ROW_SCHEMA = "target int, route long, channel long, seq long, kind int, payload binary"
_ARROW_SCHEMA = pa.schema(
    [
        ("target", pa.int32()),
        ("route", pa.int64()),
        ("channel", pa.int64()),
        ("seq", pa.int64()),
        ("kind", pa.int32()),
        ("payload", pa.binary()),
    ]
)
_BATCH_BYTES = 4 * 1024 * 1024
_CAUGHT = (Exception, SystemExit, KeyboardInterrupt)
"""Workers receive no SIGINT from the terminal, so user code raised any KeyboardInterrupt."""

# State of this worker process. Spark assigns partitions to workers arbitrarily, so all of it is checked before use:
# graphs are identified by hash, chains compare their last reports, and replicas carry their version.
_graphs: dict[str, PhysicalGraph] = {}
_runs: TaskRuns[tuple[str, int, int | None]] = TaskRuns(_CAUGHT, given_up=(GivenUp, GeneratorExit))
_sources: dict[tuple[str, int], Source] = {}
_storages: dict[str, Storage] = {}
_replicas: dict[bytes, ReplicaStore] = {}

_TASKS_PER_COLLECTION = 100
"""With the thresholds of `tune_collector`, cycles would otherwise stay until they hold half a million objects."""

_garbage: GarbageCollector | None = None


def tune_collector() -> None:
    """Make Python's garbage collector run rarely in this worker. Never call this in the driver, where cycles keep JVM
    plans alive.

    A task holds hundreds of thousands of records. With Python's default threshold of 700, the collector visits all of
    them repeatedly, which took a quarter of an epoch's Python time at 100,000 keys.
    """
    global _garbage
    gc.set_threshold(500_000, 20, 20)
    _garbage = GarbageCollector(_TASKS_PER_COLLECTION)


class ShippedGraph:
    """A graph in transit: pickled once in the driver, unpickled once per worker."""

    def __init__(self, graph: PhysicalGraph, generation: int) -> None:
        self.data = pack(graph)
        # A restarted job begins with new functions, even in workers that did not fail.
        self.digest = hashlib.blake2b(self.data, digest_size=16, salt=generation.to_bytes(8)).hexdigest()

    def open(self, scale: Scale | None = None) -> PhysicalGraph:
        """Return the graph at that scale, or the program's graph."""
        name = self.name(scale or {})
        graph = _graphs.get(name)
        if graph is None:
            # A worker serves one job at a time, at one scale. Close the chains of the previous one.
            _runs.close()
            for source in _sources.values():
                source.close()
            _sources.clear()
            _graphs.clear()
            program = unpack(self.data)
            enter_program(program.program)
            graph = _graphs[name] = program.rescaled(scale) if scale else program
        return graph

    def name(self, scale: Scale) -> str:
        return f"{self.digest}{sorted(scale.items())}" if scale else self.digest


class LevelStage:
    """Runs the chain of its partition over the rows of an exchange."""

    def __init__(self, graph: ShippedGraph, metrics: Collected, level: int) -> None:
        self._graph = graph
        self._metrics = metrics
        self._level = level

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parameters = epoch_parameters()
        graph = self._graph.open(parameters.scale)
        chain, subtask = graph.at_target(self._level, _partition())
        epoch = _epoch(parameters, f"level{self._level}", self._metrics)
        name = self._graph.name(parameters.scale)
        return _as_batches(
            _with_run(name, chain.id, subtask, subtask, lambda task: task.over_rows(epoch, _as_rows(batches)))
        )


class SourceStage:
    """Runs a source's first chain over one Spark partition, as part of the streaming plan."""

    def __init__(self, graph: ShippedGraph, metrics: Collected, chain: int) -> None:
        self._graph = graph
        self._metrics = metrics
        self._chain = chain

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parameters = epoch_parameters()
        graph = self._graph.open(parameters.scale)
        chain = graph.chains[self._chain]
        records = self._splits(chain, batches) if chain.reader == "splits" else map(_READERS[chain.reader], batches)
        epoch = _epoch(parameters, "source", self._metrics)
        return _as_batches(
            _with_run(
                self._graph.name(parameters.scale),
                self._chain,
                None,
                _partition(),
                lambda task: task.over_records(epoch, records),
            )
        )

    def _splits(self, chain: Chain, batches: Iterator[pa.RecordBatch]) -> Iterator[OfSplit]:
        name = self._graph.digest, chain.id
        source = _sources.get(name)
        if source is None:
            assert chain.pickled_source is not None
            source = _sources[name] = pickle.loads(chain.pickled_source)
            source.use_letter_box(LetterBox.of(chain))
        for batch in batches:
            for row in batch.to_pylist():
                yield from read_split(source, row["split"], row["start"], row["end"])


class Preparation:
    """Opens one subtask of each given chain before the first epoch after a recovery; yields failures."""

    def __init__(self, graph: ShippedGraph, metrics: Collected, chains: list[int]) -> None:
        self._graph = graph
        self._metrics = metrics
        self._chains = chains

    def __call__(self, _: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        parameters = epoch_parameters()
        self._graph.open(parameters.scale)
        epoch = _epoch(parameters, "prepare", self._metrics)
        name = self._graph.name(parameters.scale)
        for chain in self._chains:
            for row in _with_run(name, chain, 0, 0, lambda task: task.prepare(epoch)):
                yield row.kind, row.payload


class SilentStage:
    """Replaces all sources in an epoch without records: the one that ends the input, or one for a timer."""

    def __init__(self, graph: ShippedGraph, metrics: Collected) -> None:
        self._graph = graph
        self._metrics = metrics

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        parameters = epoch_parameters()
        epoch = _epoch(parameters, "source", self._metrics)
        name = self._graph.name(parameters.scale)
        for chain in self._graph.open(parameters.scale).sources():
            yield from _as_batches(_with_run(name, chain.id, None, 0, lambda task: task.over_records(epoch, ())))


def _with_run(
    graph: str,
    chain: int,
    subtask: int | None,
    producer: int,
    rows: Callable[[Task], Iterator[ExchangeRow]],
) -> Iterator[ExchangeRow]:
    """Run a task with the chain kept from an earlier epoch, if any; keep the chain unless the task fails."""
    open_graph = _graphs[graph]
    yield from _runs.run_task(
        (graph, chain, subtask),
        lambda: ChainRun(open_graph, open_graph.chains[chain], subtask),
        producer,
        lambda task: _interruptible(rows(task)),
    )
    if _garbage is not None:
        _garbage.work_done()


def _interruptible(rows: Iterator[ExchangeRow]) -> Iterator[ExchangeRow]:
    with interruptible():
        yield from rows


def epoch_parameters() -> EpochParameters:
    """Return the parameters that the driver passed to this task."""
    context = TaskContext.get()
    assert context is not None
    if _garbage is None:
        # This worker was forked by Spark's standard daemon.
        tune_collector()
    data = context.getLocalProperty(EPOCH_PROPERTY)
    assert data is not None, "a Penstock stage runs only inside an epoch"
    return msgspec.json.decode(data, type=EpochParameters)


def open_state(parameters: EpochParameters) -> StateAccess:
    """Return the access to committed state for the tasks of an epoch in this process."""
    storage = _storages.get(parameters.storage)
    if storage is None:
        storage = _storages[parameters.storage] = open_storage(parameters.storage)
    return state_access(parameters, storage, _replica_store(parameters.backend))


def _epoch(parameters: EpochParameters, scope: str, metrics: Collected) -> TaskEpoch:
    return task_epoch(
        parameters,
        open_state(parameters),
        crash_probe("task", lambda: parameters.number, scope),
        lambda measured: metrics.add([measured]),
        worker_place(parameters.backend.directories),
    )


def _replica_store(backend: Backend) -> ReplicaStore:
    name = msgspec.msgpack.encode(backend)
    store = _replicas.get(name)
    if store is None:
        store = _replicas[name] = ReplicaStore(backend)
    return store


def _partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def _as_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[ExchangeRow]:
    for batch in batches:
        yield from map(ExchangeRow._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _as_batches(rows: Iterator[ExchangeRow]) -> Iterator[pa.RecordBatch]:
    pending: list[ExchangeRow] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += len(row.payload)
        if size >= _BATCH_BYTES:
            yield _batch(pending)
            pending, size = [], 0
    if pending:
        yield _batch(pending)


def _batch(rows: list[ExchangeRow]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _ARROW_SCHEMA, strict=True)],
        schema=_ARROW_SCHEMA,
    )


def _read_chunks(batch: pa.RecordBatch) -> list[Any]:
    records: list[Any] = []
    for chunk in batch.column(0).to_pylist():
        records.extend(pickle.loads(chunk))
    return records


_READERS: dict[str | None, Callable[[pa.RecordBatch], Records]] = {"rows": RowBatch, "chunks": _read_chunks}
