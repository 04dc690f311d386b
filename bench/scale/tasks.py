"""The engine of the simulation: yields what the tasks of an epoch send to the driver, and runs none of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import add
from random import Random

from bench.scale.size import Size, changed_groups, file_bytes, groups_of
from bench.scale.storage import CountingStorage, digest_with
from penstock.checkpoint.bases import Block, base_folder
from penstock.checkpoint.manifest import BaseHandle, Version
from penstock.driver.epoch_parameters import EpochParameters
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.metrics import EdgeMetrics, OperatorMetrics, TaskMetrics, WorkerPlace, encode_metrics
from penstock.runtime.plan import Chain, ChainedOperator
from penstock.runtime.report import (
    DeltaHandle,
    EdgeTotals,
    OperatorReport,
    Report,
    channel_fingerprint,
    encode_report,
)
from penstock.runtime.rows import METRICS, REPORT, channel_of, route_to
from penstock.state.access import delta_name
from penstock.state.shares import SPLIT, Share
from penstock.state.storage import Storage

_STATES = {"count": "value long", "last": "map str, double"}
_COMMITTABLE = bytes(64)
_RECORDS_PER_KEY = 2

Task = tuple[int, int]
"""Chain and subtask."""


class SimulatedTasks:
    """`execute` is the engine of an `EpochDriver`, `merge` its merge of bases. `cpu_s` is the CPU time of both."""

    def __init__(self, graph: PhysicalGraph, storage: CountingStorage, size: Size) -> None:
        self._graph, self._storage, self._size = graph, storage, size
        self._dice = Random(1)
        self._places = [WorkerPlace(host=f"host-{n}", executor=str(n), memory=1 << 36) for n in range(125)]
        self._sent, self._received = self._channels()
        self.cpu_s = 0.0
        self.collected_bytes = 0
        """Bytes of the rows of the last epoch."""

    @contextmanager
    def _apart(self) -> Iterator[None]:
        began = time.process_time()
        try:
            yield
        finally:
            self.cpu_s += time.process_time() - began

    def execute(self, parameters: EpochParameters) -> list[tuple[int, bytes]]:
        """Return the reports and metrics of an epoch. Its delta files exist when this returns."""
        with self._apart():
            rows = []
            for chain in self._graph.chains:
                for subtask in range(chain.parallelism or self._size.subtasks):
                    rows.append((REPORT, encode_report(self._report(chain, subtask, parameters))))
                    rows.append((METRICS, encode_metrics(self._metrics(chain, subtask, parameters.number))))
            self.collected_bytes = sum(len(payload) for _, payload in rows)
            return rows

    def merge(
        self, storage: Storage, version: Version, blocks: list[Block], into: Storage | None = None
    ) -> list[BaseHandle]:
        """Write bases, as tasks do."""
        with self._apart():
            return [self._base(version.id, block) for block in blocks]

    def _base(self, number: int, block: Block) -> BaseHandle:
        size = self._size.base_bytes(len(block.groups))
        name = f"{base_folder(number)}/{digest_with(size, self._dice.randbytes(8))}.arrow"
        self._storage.put_empty(name)
        return BaseHandle(id=number, name=name, size=size, end=block.groups.stop)

    def _report(self, chain: Chain, subtask: int, parameters: EpochParameters) -> Report:
        timestamp = parameters.timestamp
        source = chain.source_uid is not None
        marks = {f"events-{subtask}": timestamp} if source else {"": timestamp}
        return Report(
            chain=chain.id,
            subtask=subtask,
            epoch=parameters.number,
            records_in=self._size.changed_in(subtask) * _RECORDS_PER_KEY,
            sent=self._sent.get((chain.id, subtask), []),
            received=self._received.get((chain.id, subtask), []),
            operators=[self._operator(chain, each, subtask, parameters) for each in chain.operators],
            watermarks={each.uid: marks for each in chain.operators if not source or each.assigns_time},
        )

    def _channels(self) -> tuple[dict[Task, list[EdgeTotals]], dict[Task, list[EdgeTotals]]]:
        """Return what each task sends and receives over all of its channels, the same in every epoch."""
        sent: dict[Task, list[EdgeTotals]] = {}
        received: dict[Task, list[EdgeTotals]] = {}
        for edge in self._graph.edges:
            before, behind = self._graph.chains[edge.from_chain], self._graph.chains[edge.to_chain]
            producers, targets = before.parallelism or self._size.subtasks, behind.parallelism
            routes = [route_to(behind.level, behind.first_target + subtask) for subtask in range(targets)]
            arrived, records_in = [0] * targets, 0
            for producer in range(producers):
                records = self._size.changed_in(producer) * _RECORDS_PER_KEY // targets
                records_in += records
                channel = channel_of(edge.id, producer)
                prints = [channel_fingerprint(channel, route, 1, records, 0) for route in routes]
                arrived = list(map(add, arrived, prints))
                sent.setdefault((before.id, producer), []).append(
                    _totals(edge.id, targets, targets * records, sum(prints))
                )
            for subtask, prints_in in enumerate(arrived):
                received.setdefault((behind.id, subtask), []).append(_totals(edge.id, producers, records_in, prints_in))
        return sent, received

    def _operator(
        self, chain: Chain, operator: ChainedOperator, subtask: int, parameters: EpochParameters
    ) -> OperatorReport:
        if not operator.keyed:
            is_sink = chain.level == len(self._graph.levels) - 1
            state = Share(mode=SPLIT, schema="value bytes", elements=[_COMMITTABLE[:32]])
            return OperatorReport(
                uid=operator.uid,
                states={},
                deltas=[],
                committable=_COMMITTABLE if is_sink else None,
                operator_state={"writer": state} if is_sink else {},
            )
        keys = self._size.changed_in(subtask)
        groups = changed_groups(groups_of(chain, subtask), keys, self._dice)
        blocks = sorted(set(map(parameters.blocks[operator.uid].of, groups)))
        return OperatorReport(
            uid=operator.uid,
            states=_STATES,
            deltas=[self._delta(parameters, groups, blocks, keys)] if keys else [],
            timers={"EVENT_TIME": dict.fromkeys(blocks, parameters.timestamp)},
        )

    def _delta(self, parameters: EpochParameters, groups: Sequence[int], blocks: list[int], keys: int) -> DeltaHandle:
        size = file_bytes(len(groups), keys)
        name = delta_name(parameters.number, digest_with(size, self._dice.randbytes(8)))
        inline = bytes(size) if size <= parameters.inline_bytes else None
        if inline is None:
            self._storage.put_empty(name)
        return DeltaHandle(name=name, size=size, entries=keys, blocks=blocks, inline=inline)

    def _metrics(self, chain: Chain, subtask: int, epoch: int) -> TaskMetrics:
        records = self._size.changed_in(subtask) * _RECORDS_PER_KEY
        return TaskMetrics(
            chain=chain.id,
            subtask=subtask,
            epoch=epoch,
            records_in=records,
            sent=[EdgeMetrics(edge=edge, records=records, buffers=500, bytes=40 * records) for edge in chain.outputs],
            operators=[
                OperatorMetrics(
                    uid=operator.uid,
                    counters={"hits": records, "misses": 3},
                    gauges={"largest": subtask},
                    meters={"updates": (records, 60)},
                    distributions={"size": (records, 9.5 * records, 1, 99)},
                )
                for operator in chain.operators
            ],
            busy_ms=800.0 + subtask,
            bytes_in=40 * records,
            snapshot_ms=50.0,
            place=self._places[subtask // 4 % len(self._places)],
        )


def _totals(edge: int, channels: int, records: int, prints: int) -> EdgeTotals:
    return EdgeTotals(
        edge=edge, channels=channels, buffers=channels, records=records, fingerprint=prints & 0xFFFF_FFFF_FFFF_FFFF
    )
