"""The driver's side of an epoch, the same on Spark and in the harness: run it, publish its manifest, commit sinks."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.checkpoint.bases import Block, largest_state
from penstock.checkpoint.fencing import begin, check_owner, close, publish_as_owner
from penstock.checkpoint.housekeeping import Housekeeping, Merge, merge_here
from penstock.checkpoint.key_types import declared_key_types, key_type_text
from penstock.checkpoint.lineages import SharedStorage
from penstock.checkpoint.manifest import (
    FORMAT,
    Manifest,
    Version,
    fenced,
    latest,
    manifest_name,
)
from penstock.checkpoint.redistribution import sizes
from penstock.checkpoint.resume_check import check_restorable
from penstock.checkpoint.wal import WriteAheadLog
from penstock.driver.clock import Jumps, ProcessingClock
from penstock.driver.committing import Committer, CommittingSink, committables_of
from penstock.driver.coordinator import (
    Abort,
    Acknowledge,
    AllIn,
    CheckpointStatus,
    CommitSinks,
    Coordinator,
    Decline,
    Expire,
    Publish,
    Published,
    Trigger,
)
from penstock.driver.epoch_errors import failed
from penstock.driver.event_time import next_wakeup, times_after
from penstock.driver.flow_control import FlowControl
from penstock.driver.metrics import MetricTotals
from penstock.driver.rescaling import Scale, recalled, remembered, scale_for
from penstock.driver.snapshots import add_deltas, in_order, operator_snapshots, records_since
from penstock.driver.statistics import CheckpointLog
from penstock.errors import PenstockError
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.metrics import TaskMetrics, decode_metrics
from penstock.runtime.report import Report, decode_report
from penstock.runtime.rows import FAILURE, METRICS, REPORT, Failure, decode_failure
from penstock.savepoint.format import dispose_claimed, savepoint_storage
from penstock.state.backends import Backend
from penstock.state.key_groups import block_count
from penstock.state.overlay import OVERLAY_BYTES
from penstock.state.storage import Storage

_STATISTICS_KEPT = 10_000
"""Epochs whose statistics the driver remembers; a job may run for months."""


class EngineLost(PenstockError):
    """The engine could not run the epoch to its end: a lost worker or executor, or rows that changed on a retry."""


class TookTooLong(EngineLost):
    """The engine was told to stop because the checkpoint's timeout had passed."""


class StateTooLarge(PenstockError):
    """A state outgrew the Memory backend. Operator action: set a checkpoint directory, or raise the limit."""

    retryable = False


class EpochParameters(msgspec.Struct, frozen=True):
    """What the driver tells the tasks of one epoch."""

    number: int
    ends_input: bool
    wanted: Version | None
    storage: str
    lineage: str
    backend: Backend
    inline_bytes: int
    timestamp: int = 0
    """The epoch's clock, in milliseconds."""
    overlay_bytes: int = OVERLAY_BYTES
    scale: Scale = {}
    single_epoch: bool = False
    """Whether the epoch is the whole job, so that nothing of its state is kept."""
    token: str = ""
    """Of the driver that runs the epoch."""
    jumped: int = 0
    """By how many milliseconds the clock jumped forward since the epoch before; no channel was silent for them."""


class EpochStatistics(msgspec.Struct, frozen=True):
    number: int
    records: int
    duration_ms: float
    """From trigger to committed sinks, where they commit beside the next epoch those of the one before."""
    cycle_ms: float
    """From the end of the epoch before, with what the engine does between two epochs."""
    delta_bytes: int
    delta_entries: int
    state_bytes: int
    base_bytes: int = 0
    """Of bases made since the epoch before, beside the epochs."""


@dataclass
class Settings:
    """How a job checkpoints; made from the configuration."""

    backend: Backend = field(default_factory=Backend)
    inline_bytes: int = 16 * 1024
    """Deltas up to this size ride inside the manifest."""
    memory_limit: int = 5 * 1024 * 1024
    """Largest state of one operator under the Memory backend."""
    merge_bytes: int = 256 * 1024
    """Memory backend: deltas up to this size, all together, are not worth merging into bases."""
    base_bytes: int = 1024 * 1024
    """Deltas of a block up to this size are not worth merging into a base."""
    retained: int = 1
    """Completed checkpoints that stay usable."""
    asynchronous: bool = True
    """Whether bases are made, and files removed, beside the epochs."""
    timeout_ms: int = 10 * 60 * 1000
    min_pause_ms: int = 0
    """Least time from the end of a checkpoint to the trigger of the next."""
    tolerable_failures: int = 0
    """How many times an epoch that expired or was declined is run again in its place."""
    overlay_bytes: int = OVERLAY_BYTES
    """Memory that the keyed state of one task may take in one epoch before it spills to local disk."""
    retries: int = 3
    """The least of that for an epoch the engine lost: Spark gives up what one lost worker can make whole."""
    at_least_once: bool = False
    """Whether sinks that can show an epoch's records before its checkpoint is complete."""


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
    """Seconds since 1970, for timestamps only: it may jump in both directions."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds, for pauses, timeouts and durations."""
    merge: Merge = merge_here
    """How bases are made."""
    wait: Callable[[float], object] = time.sleep
    """Lets seconds pass between two checkpoints; may raise, if the job is to stop."""
    open_savepoint: Callable[[str], SharedStorage] = savepoint_storage
    """Opens the savepoint that the lineage began with, if it is to be removed."""
    prepare: Callable[[EpochParameters, list[int]], Iterable[tuple[int, bytes]]] = lambda parameters, chains: ()
    """Opens a subtask of each of these chains, with what the last checkpoint holds of it; gives failures."""
    single_epoch: bool = False
    """Whether one epoch is the whole job: a batch. Then there is no checkpoint, and who fails begins again."""
    executor: Executor | None = None
    """Where sinks commit that can do it beside the next epoch; the driver shuts it down. None: they do not."""
    flow: FlowControl | None = None
    """What holds the sources back, if anything does."""
    await_tasks: Callable[[], None] = lambda: None
    """Returns when no task runs any more of an epoch that was given up, or when it has waited long enough."""

    def __post_init__(self) -> None:
        self.token = uuid.uuid4().hex
        # The functions may be exchanged while the job runs.
        self._processing = ProcessingClock(lambda: self.clock(), lambda: self.monotonic())
        self._jumps = Jumps(lambda: self.monotonic())
        self.coordinator = Coordinator(self.settings.timeout_ms)
        self.last: Manifest | None = None
        self.version: Version | None = None
        self.statistics: deque[EpochStatistics] = deque(maxlen=_STATISTICS_KEPT)
        self.metrics = MetricTotals(self.graph, self.monotonic)
        self.metrics.flow = self.flow
        self.checkpoints = CheckpointLog()
        self._measured: list[TaskMetrics] = []
        self._epoch_ended_at = self.monotonic()
        self._bases_counted = 0
        self._recovered = self._begun = self._prepared = False
        self._program = self.graph
        self.scale: Scale = {}
        self._committer = Committer(
            self.sinks,
            self.lineage,
            WriteAheadLog(self.storage),
            self.settings.at_least_once,
            self.executor,
            self.monotonic,
        )
        self.number = 0
        """The epoch under way, or the last one."""
        self.sources = [chain.source_uid for chain in self.graph.sources() if chain.source_uid is not None]
        """For each line of Spark's offsets the uid of its source; whoever plans a source as several says so here."""
        self._claimed: tuple[str, str] | None = None
        self._key_types = declared_key_types(self.graph)
        self.uids = {operator.uid: operator for chain in self.graph.chains for operator in chain.operators}
        self._names = {uid: operator.name for uid, operator in self.uids.items()}
        self._housekeeping = Housekeeping(
            self.storage,
            [
                Block(chain.operators[0].uid, block, chain.max_parallelism)
                for chain in self.graph.chains
                if chain.operators and chain.operators[0].keyed
                for block in range(block_count(chain.max_parallelism))
            ],
            self.merge,
            self.settings.retained,
            self.settings.asynchronous,
            self.settings.merge_bytes,
            self.settings.base_bytes,
            self.settings.memory_limit,
        )

    def start_sinks(self) -> None:
        """Called before `recover`, or before the first epoch where there is nothing to recover."""
        self._committer.start()

    def recover(self) -> Manifest | None:
        """Go on from the last manifest in storage, if there is one, and commit its sinks again.

        Called before the first epoch, and after any failure of this driver that it is to survive. Raises Fenced if
        another driver has gone on meanwhile.
        """
        found = latest(self.storage)
        if self.single_epoch:
            # A batch whose sinks failed is run again: nothing of it is in storage.
            self.last = None
        if self._recovered:
            check_owner(self.storage, None if found is None else found[0], self.last, self.token)
        self._recovered = True
        self._prepared = False
        self._jumps.forget()
        self.coordinator.forget(self._ticks())
        self._committer.forget()
        if found is None:
            begin(self.storage)
            self._begun = True
            self._committer.abort_uncommitted(0, self.token)
            return None
        manifest, version = found
        check_restorable(manifest, self._program, self.sources, self._key_types, self.storage.where)
        self._set_scale(recalled(self._program, manifest.rescaled))
        self.last, self.version, self.lineage = manifest, version, manifest.lineage
        self._processing.reach(manifest.timestamp)
        self._committer.lineage = manifest.lineage
        with self._unless_fenced(manifest.id + 1):
            self._committer.commit_now(manifest.id, manifest.committables, again=True)
            # The next attempt may need what those of this driver still hold.
            self._committer.abort_uncommitted(manifest.id, self.token)
        self.checkpoints.restored = manifest.id
        self._claimed = manifest.claimed
        self._dispose_claimed(manifest)
        return manifest

    def rescale(self, wanted: int | Mapping[str, int]) -> None:
        """From the next epoch on, other numbers of subtasks. Called between epochs. Raises CannotRescale."""
        self._set_scale(scale_for(self._program, wanted, self.scale))

    def _set_scale(self, scale: Scale) -> None:
        self.scale = scale
        self.graph = self._program.rescaled(scale)

    @contextmanager
    def pinned_last(self) -> Iterator[tuple[Manifest, Version]]:
        """The last checkpoint, whose files stay while a savepoint is made of it: its sinks have committed. Entered
        between two epochs; what is within may run beside those that follow."""
        self._committer.join()
        if self.last is None or self.version is None:
            raise PenstockError("There is no checkpoint yet that a savepoint could be made of.", fix="Run an epoch.")
        with self._housekeeping.pinned(self.last.id):
            yield self.last, self.version

    def _dispose_claimed(self, manifest: Manifest) -> None:
        """Remove the savepoint that this lineage began with, once a later checkpoint is complete."""
        if self._claimed and manifest.parent:
            identity, path = self._claimed
            dispose_claimed(self.open_savepoint(path), identity)
            self._claimed = None

    def close(self) -> None:
        """The job is over before its input was: no driver goes on with this lineage. Raises Fenced if one does, and
        what sinks failed with. All that was prepared and is not in the last checkpoint is aborted."""
        last = self.last
        self._committer.forget()
        self.last, self.version = close(self.storage, last, self.version, self.lineage, self.token)
        try:
            if last is not None:
                # It may be that a sink failed here, and nobody comes after this driver to commit again.
                self._committer.commit_now(last.id, last.committables, again=True)
                self._committer.settle()
        finally:
            self.await_tasks()
            self._committer.abort_uncommitted(0 if last is None else last.id, None)

    def abort_uncommitted(self, everything: bool = False) -> None:
        """This driver runs no more epochs: abort what its attempts prepared and no checkpoint holds.

        Another driver may go on with the lineage; what that one prepared is left alone. `everything`: nothing will be
        committed any more, because the lineage has no checkpoints to go on from.
        """
        self._committer.forget()
        self.await_tasks()
        if everything:
            self._committer.abort_uncommitted(-1, None)
            return
        found = latest(self.storage)
        self._committer.abort_uncommitted(0 if found is None else found[0].id, self.token)

    def finish_sinks(self) -> None:
        """The job is over before its input was: what the last checkpoint holds is all there will be."""
        self._committer.join()
        if self.last is not None:
            self._committer.finish(self.last)

    def stop(self) -> None:
        """No epoch will follow."""
        self._housekeeping.close()
        self._committer.close()

    def abandon(self) -> None:
        """Instead of `stop`, where the driver is lost and this process lives on: no sink commits any more."""
        self._housekeeping.abandon()

    def check_commits(self) -> None:
        """Raise what a sink failed with beside the epochs, if one did."""
        self._committer.check()

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
        """One epoch from trigger to committed sinks, but for those that commit beside the next one. Raises EpochFailed
        after a few attempts, or Fenced; and what a sink failed with in this epoch or the one before."""
        pause = self.pause_left()
        if pause > 0:
            self.wait(pause)
        self.check_commits()
        number = self.number = self.next_number
        self.probe("triggered")
        attempt = 0
        # The end of the input comes with its last record, however long the epoch for it takes to begin.
        timestamp = self.last.timestamp if ends_input and self.last is not None else self.epoch_clock()
        jumped, began_at = self._jumps.since_last(timestamp), self.monotonic()
        if batch is None and self.last is not None:
            batch = self.last.batch
        while True:
            triggered_at, started = self._now(), self.monotonic()
            instructions = self._collect(number, ends_input, timestamp, jumped)
            instruction = instructions[0]
            if isinstance(instruction, Publish):
                break
            assert isinstance(instruction, Abort)
            self.checkpoints.add_failed(instruction, triggered_at, self._took_ms(started))
            self._committer.abort(number, instruction.reports)
            self._check_fenced(number)
            attempt += 1
            if attempt > self._tolerated(instruction):
                raise failed(instruction)
        manifest = self._manifest(
            number, batch, spark_log, log_index, ends_input, instruction.reports, timestamp, jumped
        )
        records = sum(
            report.records_in
            for report in instruction.reports
            if self.graph.chains[report.chain].source_uid is not None
        )
        committables = committables_of(instruction.reports)
        passing = [
            each
            for each in committables
            if not self._committer.durable(each.uid) and not self._committer.commits_before_checkpoint(each)
        ]
        # Here, so that there is never more than one epoch to be committed again.
        self._committer.join()
        began = self.monotonic()
        self._committer.commit_now(
            number, [each for each in committables if self._committer.commits_before_checkpoint(each)]
        )
        committing = self.monotonic() - began
        self.probe("collected")
        # A batch's stands for a checkpoint only in this process: what follows goes by it.
        version = None if self.single_epoch else publish_as_owner(self.storage, manifest, self._begun)
        self.probe("published")
        self.last, self.version = manifest, version
        self._jumps.completed(timestamp, began_at)
        self.checkpoints.add_completed(
            manifest, instruction.reports, self._measured, self._names, triggered_at, self._took_ms(started)
        )
        self.metrics.add(number, self._measured, {(report.chain, report.subtask) for report in instruction.reports})
        began = self.monotonic()
        for follow in self.coordinator.handle(Published(number, self._ticks())):
            assert isinstance(follow, CommitSinks)
            # First what is in no manifest: if a sink fails, the others commit again after the restart.
            with self._unless_fenced(number + 1):
                self._committer.commit_now(number, passing)
                self._committer.commit(manifest, records)
        if ends_input:
            with self._unless_fenced(number + 1):
                self._committer.join()
        committing += self.monotonic() - began
        self.probe("committed")
        if version is not None:
            self._housekeeping.published(manifest, version)
        self._dispose_claimed(manifest)
        if self.storage.in_memory and not self.single_epoch:
            for uid in manifest.keyed() | manifest.operators.keys():
                self._check_memory(uid)
        duration = self.monotonic() - started
        self._control_flow(manifest, instruction.reports, records, committing, duration)
        return self._count(instruction.reports, records, duration * 1000)

    def _control_flow(
        self, manifest: Manifest, reports: tuple[Report, ...], records: int, committing: float, duration: float
    ) -> None:
        if self.flow is None:
            return
        beside = 0.0
        if self._committer.commits_concurrently(manifest):
            cost = self._committer.concurrent_cost
            if cost is None:
                # The first one is under way, and nobody knows yet whether more would be too many.
                return
            beside = cost * records
        slots = 0 if self.metrics.slots is None else self.metrics.slots.available
        self.flow.completed(self.graph, reports, self._measured, slots, committing, beside, duration)

    def pause_left(self) -> float:
        """Seconds until the next checkpoint may be triggered."""
        if not self.statistics:
            return 0
        return self._epoch_ended_at + self.settings.min_pause_ms / 1000 - self.monotonic()

    def _tolerated(self, abort: Abort) -> int:
        """How often an epoch may fail like this and be run again in its place."""
        # A user's error will come again; what the engine lost may not.
        if any(failure.from_user for failure in abort.failures):
            return 0
        tolerable = self.settings.tolerable_failures
        return tolerable if abort.status is CheckpointStatus.EXPIRED else max(tolerable, self.settings.retries)

    def _collect(self, number: int, ends_input: bool, timestamp: int, jumped: int) -> list[Any]:
        coordinator = self.coordinator
        coordinator.handle(
            Trigger(
                number,
                self._ticks(),
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
            timestamp,
            self.settings.overlay_bytes,
            self.scale,
            self.single_epoch,
            self.token,
            jumped,
        )
        self._measured = []
        try:
            for kind, payload in self._prepare(parameters) or self.execute(parameters):
                if kind == REPORT:
                    coordinator.handle(Acknowledge(decode_report(payload), self._ticks()))
                elif kind == FAILURE:
                    coordinator.handle(Decline(number, decode_failure(payload), self._ticks()))
                elif kind == METRICS:
                    self._measured.append(decode_metrics(payload))
        except TookTooLong:
            coordinator.handle(Expire(number, self._ticks()))
        except EngineLost as lost:
            failure = Failure("", "", -1, str(lost), "", from_user=False, fix=lost.fix)
            coordinator.handle(Decline(number, failure, self._ticks()))
        return list(coordinator.handle(AllIn(number, self._ticks())))

    def _prepare(self, parameters: EpochParameters) -> list[tuple[int, bytes]]:
        """Before the first epoch after a recovery, so that no record is read if a state's type does not allow it."""
        if self._prepared or self.last is None:
            return []
        stored = self.last.operators.keys()
        chains = [chain for chain in self.graph.chains if any(each.uid in stored for each in chain.operators)]
        failures = list(self.prepare(parameters, [chain.id for chain in chains])) if chains else []
        self._prepared = not failures
        return failures

    def _manifest(
        self,
        number: int,
        batch: int | None,
        spark_log: dict[str, bytes],
        log_index: dict[str, int] | None,
        ends_input: bool,
        reports: tuple[Report, ...],
        timestamp: int,
        jumped: int,
    ) -> Manifest:
        last, reports = self.last, tuple(in_order(reports))
        bases = {} if last is None else self._housekeeping.bases(last)
        since_base = {} if last is None else self._housekeeping.since_base(last)
        add_deltas(since_base, reports)
        return Manifest(
            FORMAT,
            self.lineage,
            number,
            batch,
            b"" if self.version is None else self.version.digest,
            self.token,
            timestamp,
            ends_input,
            operator_snapshots(last, self.graph, self._names, self._key_type_of, reports),
            [
                each
                for each in committables_of(reports)
                if self._committer.durable(each.uid) and not self._committer.commits_before_checkpoint(each)
            ],
            records_since(last, self.graph, reports),
            spark_log,
            log_index if log_index is not None else (last.log_index if last is not None else {}),
            bases,
            since_base,
            times_after({} if last is None else last.times, self.graph, reports, timestamp, jumped),
            self.sources,
            self._claimed,
            remembered(self._program, self.scale),
        )

    def _check_memory(self, uid: str) -> None:
        assert self.last is not None
        snapshot = self.last.operators.get(uid)
        bases = self._housekeeping.merged(uid)
        held = {} if snapshot is None else sizes(snapshot.operator_state)
        keyed, limit = sum(base.size for base in bases), self.settings.memory_limit
        size = keyed + sum(held.values())
        if size <= limit:
            return
        # The driver's frame limit: MemoryStateBackend takes no more.
        raised = f", or raise the limit: env.set_state_backend(MemoryStateBackend(max_state_size={2 * size}))"
        alternative = raised if 2 * size <= 10 * 1024 * 1024 else ""
        state = largest_state(self.storage, bases, snapshot.states if snapshot else ())
        if 2 * keyed < size:
            state = max(held, key=lambda name: held[name])
        raise StateTooLarge(
            f"State '{state}' of operator '{self.uids[uid].name}' (uid '{uid}') is too large for the Memory backend: "
            f"the operator's state has {size:,} bytes, and state.backend.memory.max-state-size is {limit:,}.",
            fix=f"Keep checkpoints in files: set state.checkpoints.dir, e.g. to file:///path/to/checkpoints, and leave "
            f"state.backend out, or env.set_state_backend(FsStateBackend('file:///path/to/checkpoints')){alternative}.",
        )

    def _check_fenced(self, number: int) -> None:
        """A driver that was thought dead may fail for lack of files that its successor has removed."""
        if self.storage.exists(manifest_name(number)):
            raise fenced(self.storage, number)

    @contextmanager
    def _unless_fenced(self, number: int) -> Iterator[None]:
        """A sink may fail because the driver that came after this one has committed the epoch, and gone on."""
        try:
            yield
        except Exception:
            if not self.single_epoch:
                self._check_fenced(number)
            raise

    def _key_type_of(self, uid: str) -> str:
        """As declared, or as a program before this one did."""
        if uid in self._key_types:
            return key_type_text(self._key_types[uid])
        before = None if self.last is None else self.last.operators.get(uid)
        return "" if before is None else before.key_type

    def _count(self, reports: tuple[Report, ...], records: int, duration_ms: float) -> EpochStatistics:
        deltas = [delta for report in reports for part in report.operators for delta in part.deltas]
        assert self.last is not None
        statistics = EpochStatistics(
            self.last.id,
            records,
            duration_ms,
            (self.monotonic() - self._epoch_ended_at) * 1000,
            sum(delta.size for delta in deltas),
            sum(delta.entries for delta in deltas),
            sum(self.last.state_bytes(uid) for uid in self.last.keyed()),
            self._housekeeping.bases_written - self._bases_counted,
        )
        self._bases_counted = self._housekeeping.bases_written
        self._epoch_ended_at = self.monotonic()
        self.statistics.append(statistics)
        return statistics

    def epoch_clock(self) -> int:
        """Processing time of an epoch that begins now. It never goes back, whatever the machine's clock does."""
        return self._processing.now()

    def forget_clock(self) -> None:
        """The clocks are others from now on; only what a checkpoint holds is still true."""
        self._epoch_ended_at = self.monotonic()
        self._processing.forget()
        self._jumps.forget()
        if self.last is not None:
            self._processing.reach(self.last.timestamp)

    @property
    def wakeup_is_due(self) -> bool:
        """Whether an epoch is to run now even if no data came."""
        due = self.next_wakeup
        return due is not None and due <= self.epoch_clock()

    def _now(self) -> int:
        return int(self.clock() * 1000)

    def _ticks(self) -> int:
        """Milliseconds by the monotonic clock."""
        return int(self.monotonic() * 1000)

    def _took_ms(self, started: float) -> int:
        return int((self.monotonic() - started) * 1000)
