"""The driver's side of an epoch, the same on Spark and in the harness: run it, publish its manifest, commit sinks."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.checkpoint.bases import merge_bases
from penstock.checkpoint.committing import Committer, CommittingSink, committables_of
from penstock.checkpoint.coordinator import (
    Abort,
    Acknowledge,
    AllIn,
    CommitSinks,
    Coordinator,
    Decline,
    Publish,
    Published,
    Trigger,
)
from penstock.checkpoint.event_time import next_wakeup, times_after
from penstock.checkpoint.failed import failed
from penstock.checkpoint.manifest import (
    FORMAT,
    BaseHandle,
    Manifest,
    OperatorSnapshot,
    Version,
    latest,
    manifest_name,
    publish,
)
from penstock.checkpoint.metrics import MetricTotals
from penstock.errors import PenstockError
from penstock.runtime.metrics import TaskMetrics, decode_metrics
from penstock.runtime.plan import Chain, PhysicalGraph
from penstock.runtime.report import Report, decode_report
from penstock.runtime.rows import FAILURE, METRICS, REPORT, Failure, decode_failure
from penstock.state.storage import Storage

_STATISTICS_KEPT = 10_000
"""Epochs whose statistics the driver remembers; a job may run for months."""
_LONGEST_WALK = 500
"""Epochs after which the driver merges deltas however small: a new replica walks through all of them."""


class EngineLost(PenstockError):
    """The engine could not run the epoch to its end: a lost worker or executor, or rows that changed on a retry."""


class StateTooLarge(PenstockError):
    """A state outgrew the Memory backend. Operator action: set a checkpoint directory, or raise the limit."""


class EpochParameters(msgspec.Struct, frozen=True):
    """What the driver tells the tasks of one epoch."""

    number: int
    ends_input: bool
    wanted: Version | None
    storage: str
    lineage: str
    backend: str
    inline_bytes: int
    replica_root: str
    timestamp: int = 0
    """The epoch's clock, in milliseconds."""


class EpochStatistics(msgspec.Struct, frozen=True):
    number: int
    records: int
    duration_ms: float
    """From trigger to committed sinks."""
    cycle_ms: float
    """From the end of the epoch before, with what the engine does between two epochs."""
    delta_bytes: int
    delta_entries: int
    state_bytes: int


@dataclass
class Settings:
    """How a job checkpoints; made from the configuration."""

    backend: str = "memory"
    inline_bytes: int = 16 * 1024
    """Deltas up to this size ride inside the manifest."""
    memory_limit: int = 5 * 1024 * 1024
    """Largest state of one operator under the Memory backend."""
    merge_bytes: int = 256 * 1024
    """Deltas up to this size are not worth merging into a base."""
    timeout_ms: int = 10 * 60 * 1000
    replica_root: str = ""
    retries: int = 3
    """How many times an epoch is run again, from the same input, before the job fails."""


@dataclass
class EpochDriver:
    """Runs epochs one after the other. `execute` is the engine: it runs all tasks; gives reports, failures, metrics."""

    graph: PhysicalGraph
    storage: Storage
    settings: Settings
    execute: Callable[[EpochParameters], Iterable[tuple[int, bytes]]]
    sinks: dict[str, CommittingSink] = field(default_factory=dict)
    """Sinks by operator uid."""
    probe: Callable[[str], None] = lambda point: None
    lineage: str = field(default_factory=lambda: uuid.uuid4().hex)
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.token = uuid.uuid4().hex
        self.coordinator = Coordinator(self.settings.timeout_ms)
        self.last: Manifest | None = None
        self.version: Version | None = None
        self.statistics: deque[EpochStatistics] = deque(maxlen=_STATISTICS_KEPT)
        self.metrics = MetricTotals(self.graph, self.clock)
        self._measured: list[TaskMetrics] = []
        self._merged: dict[str, dict[int, BaseHandle]] = {}
        self._epoch_ended_at = self.clock()
        self._committer = Committer(self.sinks, self.lineage)
        self.number = 0
        """The epoch under way, or the last one."""
        self.uids = {operator.uid: operator for chain in self.graph.chains for operator in chain.operators}

    def recover(self) -> Manifest | None:
        """Go on from the last manifest in storage, if there is one, and commit its sinks again."""
        found = latest(self.storage)
        if found is None:
            return None
        manifest, version = found
        self._check_restorable(manifest)
        self.last, self.version, self.lineage = manifest, version, manifest.lineage
        self._committer.lineage = manifest.lineage
        self._committer.commit(manifest.id, manifest.committables, again=True)
        return manifest

    def finish_sinks(self) -> None:
        """The job is over before its input was: what the last checkpoint holds is all there will be."""
        if self.last is not None:
            self._committer.finish(self.last)

    @property
    def next_wakeup(self) -> int | None:
        """When an epoch is to run even if no data comes, in ms."""
        return next_wakeup(self.last, self.graph)

    @property
    def next_number(self) -> int:
        return 1 if self.last is None else self.last.id + 1

    def run_epoch(
        self,
        batch: int | None,
        spark_log: dict[str, bytes],
        ends_input: bool = False,
        log_index: dict[str, int] | None = None,
    ) -> EpochStatistics:
        """One epoch from trigger to committed sinks. Raises EpochFailed after a few attempts, or Fenced."""
        number = self.number = self.next_number
        self.probe("triggered")
        attempt = 0
        # The end of the input comes with its last record, however long the epoch for it takes to begin.
        timestamp = self.last.timestamp if ends_input and self.last is not None else self.epoch_clock()
        if batch is None and self.last is not None:
            batch = self.last.batch
        while True:
            started = self.clock()
            instructions = self._collect(number, ends_input, timestamp)
            instruction = instructions[0]
            if isinstance(instruction, Publish):
                break
            assert isinstance(instruction, Abort)
            self._committer.abort(number, instruction.reports)
            attempt += 1
            # A user's error will come again; what the engine lost may not.
            if attempt > self.settings.retries or any(failure.from_user for failure in instruction.failures):
                raise failed(instruction)
        manifest = self._manifest(number, batch, spark_log, log_index, ends_input, instruction.reports, timestamp)
        committables = committables_of(instruction.reports)
        passing = [each for each in committables if not self._committer.durable(each.uid)]
        self.probe("collected")
        version = publish(self.storage, manifest)
        self.probe("published")
        self.last, self.version = manifest, version
        self.metrics.add(number, self._measured, {(report.chain, report.subtask) for report in instruction.reports})
        for follow in self.coordinator.handle(Published(number, self._now())):
            assert isinstance(follow, CommitSinks)
            self._committer.commit(number, manifest.committables)
            self._committer.commit(number, passing)
        self.probe("committed")
        self._committer.published(manifest)
        if self.settings.backend == "memory":
            self._forget()
            self._merge_bases()
        return self._count(instruction.reports, (self.clock() - started) * 1000)

    def _collect(self, number: int, ends_input: bool, timestamp: int) -> list[Any]:
        coordinator = self.coordinator
        coordinator.handle(
            Trigger(
                number,
                self._now(),
                frozenset(self.graph.subtasks()),
                frozenset(chain.id for chain in self.graph.sources()),
            )
        )
        parameters = EpochParameters(
            number,
            ends_input,
            self.version,
            self.storage.uri,
            self.lineage,
            self.settings.backend,
            self.settings.inline_bytes,
            self.settings.replica_root,
            timestamp,
        )
        self._measured = []
        try:
            for kind, payload in self.execute(parameters):
                if kind == REPORT:
                    coordinator.handle(Acknowledge(decode_report(payload), self._now()))
                elif kind == FAILURE:
                    coordinator.handle(Decline(number, decode_failure(payload), self._now()))
                elif kind == METRICS:
                    self._measured.append(decode_metrics(payload))
        except EngineLost as lost:
            coordinator.handle(Decline(number, Failure("", "", -1, str(lost), "", from_user=False), self._now()))
        return list(coordinator.handle(AllIn(number, self._now())))

    def _manifest(
        self,
        number: int,
        batch: int | None,
        spark_log: dict[str, bytes],
        log_index: dict[str, int] | None,
        ends_input: bool,
        reports: tuple[Report, ...],
        timestamp: int,
    ) -> Manifest:
        last = self.last
        operators: dict[str, OperatorSnapshot] = {}
        records = dict(last.records) if last is not None else {}
        delta_bytes = dict(last.delta_bytes) if last is not None else {}
        bases = dict(last.bases) if last is not None else {}
        for uid, merged in self._merged.items():
            bases[uid] = merged
            delta_bytes[uid] = 0
        for report in sorted(reports, key=lambda report: (report.chain, report.subtask)):
            chain = self.graph.chains[report.chain]
            if chain.source_uid is not None:
                records[chain.source_uid] = records.get(chain.source_uid, 0) + report.records_in
            for part in report.operators:
                if part.states or part.deltas or part.operator_state or part.timers:
                    known = operators.get(part.uid)
                    if known is None:
                        known = operators[part.uid] = OperatorSnapshot(
                            self.uids[part.uid].name,
                            chain.parallelism,
                            chain.max_parallelism,
                            part.states,
                            [],
                            [[] for _ in range(chain.parallelism)],
                            {},
                            {},
                        )
                    known.ttl.update(part.ttl)
                    known.deltas.extend(part.deltas)
                    known.operator_state[report.subtask] = part.operator_state
                    for kind, least in part.timers.items():
                        first = known.timers.setdefault(kind, {})
                        for block, time in least.items():
                            # Two subtasks may share a block.
                            first[block] = min(time, first.get(block, time))
                if part.states or part.deltas:
                    delta_bytes[part.uid] = delta_bytes.get(part.uid, 0) + sum(d.size for d in part.deltas)
        return Manifest(
            FORMAT,
            self.lineage,
            number,
            batch,
            b"" if self.version is None else self.version.digest,
            self.token,
            timestamp,
            ends_input,
            operators,
            [each for each in committables_of(reports) if self._committer.durable(each.uid)],
            records,
            spark_log,
            log_index if log_index is not None else (last.log_index if last is not None else {}),
            bases,
            delta_bytes,
            times_after({} if last is None else last.times, self.graph, reports, timestamp),
        )

    def _merge_bases(self) -> None:
        """Memory backend: fold deltas into bases, so that the driver holds the state and not its history.

        What is merged is announced by the next manifest; until then replicas walk the deltas.
        """
        last, version, settings = self.last, self.version, self.settings
        assert last is not None
        assert version is not None
        self._merged = {}
        deltas = sum(last.delta_bytes.values())
        bases = sum(map(last.state_bytes, last.delta_bytes)) - deltas
        if (
            deltas > max(2 * bases, settings.merge_bytes)
            or any(last.state_bytes(uid) > settings.memory_limit for uid in last.delta_bytes)
            or last.id - self._oldest_base() > _LONGEST_WALK
        ):
            # All operators at once: one old base would keep all the manifests since, with everyone's deltas.
            for uid in last.delta_bytes:
                self._merged[uid] = merge_bases(self.storage, version, uid, self._chain_of(uid).max_parallelism)
                self._check_memory(uid, sum(base.size for base in self._merged[uid].values()))

    def _forget(self) -> None:
        """Memory backend: delete the manifests and bases that are behind the bases of the last manifest."""
        last = self.last
        assert last is not None
        # The last manifest and its parent stay: the link between them is checked at a recovery.
        oldest = min(last.id - 1, self._oldest_base())
        logged = set(map(manifest_name, last.log_index.values()))
        for name in self.storage.list("manifests/"):
            if name < manifest_name(oldest) and name not in logged:
                self.storage.delete(name)
        needed = {base.name for blocks in last.bases.values() for base in blocks.values()}
        for name in self.storage.list("bases/"):
            if name not in needed:
                self.storage.delete(name)

    def _oldest_base(self) -> int:
        """The checkpoint before which no replica needs a manifest; 0 while some operator has no base."""
        last = self.last
        assert last is not None
        bases = (last.bases.get(uid, {}).values() for uid in last.delta_bytes)
        return min((min((base.id for base in blocks), default=0) for blocks in bases), default=last.id)

    def _check_memory(self, uid: str, size: int) -> None:
        if size <= self.settings.memory_limit:
            return
        assert self.last is not None
        snapshot = self.last.operators.get(uid)
        states = ", ".join(f"'{name}'" for name in snapshot.states) if snapshot else "?"
        raise StateTooLarge(
            f"State {states} of operator '{self.uids[uid].name}' (uid '{uid}') has {size:,} bytes, more than the "
            f"Memory backend's limit of {self.settings.memory_limit:,} (max_state_size). Keep it in files with\n"
            f"    config.set_string('state.checkpoints.dir', 'file:///path/to/checkpoints')\n"
            f"or raise the limit: env.set_state_backend(MemoryStateBackend(max_state_size=...))."
        )

    def _chain_of(self, uid: str) -> Chain:
        return next(chain for chain in self.graph.chains if any(op.uid == uid for op in chain.operators))

    def _check_restorable(self, manifest: Manifest) -> None:
        for uid, snapshot in manifest.operators.items():
            if uid not in self.uids:
                raise PenstockError(
                    f"The checkpoint in {self.storage.where} holds state of operator '{snapshot.name}' (uid '{uid}'), "
                    f"which this program does not have. Give its operators the uids they had, or choose another job "
                    f"name or state.checkpoints.dir to start afresh."
                )
            groups = self._chain_of(uid).max_parallelism
            if (snapshot.states or snapshot.timers) and groups != snapshot.max_parallelism:
                raise PenstockError(
                    f"The checkpoint in {self.storage.where} has the state of operator '{snapshot.name}' (uid '{uid}') "
                    f"in {snapshot.max_parallelism} key groups, this program in {groups}. The number cannot change: "
                    f"call set_max_parallelism({snapshot.max_parallelism}) on the operator."
                )

    def _count(self, reports: tuple[Report, ...], duration_ms: float) -> EpochStatistics:
        deltas = [delta for report in reports for part in report.operators for delta in part.deltas]
        assert self.last is not None
        statistics = EpochStatistics(
            self.last.id,
            sum(report.records_in for report in reports if self.graph.chains[report.chain].source_uid is not None),
            duration_ms,
            (self.clock() - self._epoch_ended_at) * 1000,
            sum(delta.size for delta in deltas),
            sum(delta.entries for delta in deltas),
            sum(self.last.state_bytes(uid) for uid in self.last.delta_bytes),
        )
        self._epoch_ended_at = self.clock()
        self.statistics.append(statistics)
        return statistics

    def epoch_clock(self) -> int:
        """Processing time of an epoch that begins now. It never goes back, whatever the machine's clock does."""
        return self._now() if self.last is None else max(self._now(), self.last.timestamp)

    def _now(self) -> int:
        return int(self.clock() * 1000)
