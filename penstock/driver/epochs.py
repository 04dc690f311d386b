"""The driver's side of an epoch, on Spark and in the test harness: run it, publish its manifest, commit the sinks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import InitVar, dataclass, field

from penstock.checkpoint import fencing
from penstock.checkpoint.housekeeping import Housekeeping, Merge, merge_here
from penstock.checkpoint.lineages import SharedStorage
from penstock.checkpoint.manifest import Manifest, Version, latest
from penstock.checkpoint.resume_check import check_restorable
from penstock.checkpoint.wal import WriteAheadLog
from penstock.common.garbage import CollectionPause, collection_paused
from penstock.driver.clock import DriverClocks
from penstock.driver.collecting import Collector, Rows
from penstock.driver.committing import Committer, CommittingSink
from penstock.driver.coordinator import Abort, Coordinator, Published
from penstock.driver.epoch_parameters import EpochParameters
from penstock.driver.epoch_settings import Settings
from penstock.driver.epoch_statistics import EpochLog, EpochStatistics
from penstock.driver.epoch_steps import CollectedEpoch, DecidedEpoch, MeasuredEpoch, PublishedEpoch, TriggeredEpoch
from penstock.driver.event_time import next_wakeup
from penstock.driver.flow_control import FlowControl
from penstock.driver.manifests import ManifestMaker
from penstock.driver.memory_limit import check_memory_limit
from penstock.driver.metrics import MetricTotals
from penstock.driver.rescaling import Scale, blocks_after, recalled, scale_for
from penstock.driver.slots import Slots
from penstock.driver.statistics import CheckpointLog
from penstock.errors import PenstockError
from penstock.graph.physical import PhysicalGraph
from penstock.savepoint.format import dispose_claimed, savepoint_storage
from penstock.state.blocks import Blocks
from penstock.state.storage import Storage, StorageError


@dataclass
class EpochDriver:
    """Runs one epoch at a time. `execute` is the engine: it runs all tasks and yields reports, failures and metrics."""

    graph: PhysicalGraph
    storage: Storage
    settings: Settings
    execute: Callable[[EpochParameters], Rows]
    sinks: dict[str, CommittingSink] = field(default_factory=dict)
    """Sinks by operator uid."""
    probe: Callable[[str], None] = lambda point: None
    lineage: str = field(default_factory=lambda: uuid.uuid4().hex)
    clock: Callable[[], float] = time.time
    """Seconds since 1970, for timestamps only: this clock can jump in both directions."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds, for pauses, timeouts and durations."""
    merge: Merge = merge_here
    """Merges deltas into bases."""
    wait: Callable[[float], object] = time.sleep
    """Waits for some seconds between two checkpoints. It can raise to stop the job."""
    open_savepoint: Callable[[str], SharedStorage] = savepoint_storage
    """Opens the savepoint that the lineage started from, to remove it."""
    prepare: Callable[[EpochParameters, list[int]], Rows] = lambda parameters, chains: ()
    """Opens one subtask of each of these chains with its checkpointed state; yields failures."""
    single_epoch: bool = False
    """Whether one epoch is the entire job (a batch). Its state is not stored, and it starts over after a failure."""
    stores_manifests: bool = True
    """Whether manifests outlive this driver. Those of a batch that is run by hand do not."""
    executor: Executor | None = None
    """Runs concurrent commits; the driver shuts it down. None: all sinks commit between epochs."""
    flow: FlowControl | None = None
    """Limits the sources, if flow control is on."""
    await_tasks: Callable[[], None] = lambda: None
    """Waits until no task of an abandoned epoch is running, up to a limit."""
    slots: Slots | None = None
    """The job's slots, if the engine counts them."""
    parallelism: int = 1
    """The job's parallelism, which statistics show as that of its sources: Spark chooses how many tasks read them."""
    observe: Callable[[MeasuredEpoch], None] = lambda epoch: None
    """Called with each completed epoch. It must not raise."""
    source_lines: InitVar[list[str] | None] = None
    """The source uid for each line of Spark's offsets. None: each source of the graph is one line."""

    def __post_init__(self, source_lines: list[str] | None) -> None:
        self.token = uuid.uuid4().hex
        self.number = 0
        """The epoch in progress, or the last one."""
        self.last: Manifest | None = None
        self.version: Version | None = None
        self.scale: Scale = {}
        uids = [chain.source_uid for chain in self.graph.sources() if chain.source_uid is not None]
        self.sources = uids if source_lines is None else source_lines
        """The source uid for each line of Spark's offsets."""
        self.coordinator = Coordinator(self.settings.timeout_ms)
        self.metrics = MetricTotals(self.graph, self.monotonic, self.flow, self.slots)
        self._clocks = DriverClocks(self.clock, self.monotonic)
        self.checkpoints = CheckpointLog(self._clocks, self.parallelism)
        self._log = EpochLog(self.monotonic)
        self.statistics = self._log.recent
        self._collector = Collector(self.coordinator, self.settings, self.checkpoints, self._clocks, self.metrics.epoch)
        self._program = self.graph
        self._recovered = self._begun = self._prepared = False
        self._claimed: tuple[str, str] | None = None
        wal, settings = WriteAheadLog(self.storage), self.settings
        self._committer = Committer(
            self.sinks, self.lineage, wal, settings.at_least_once, self.executor, self.monotonic
        )
        self._housekeeping = Housekeeping(
            self.storage, blocks_after(None, self.graph).keys(), self.merge, settings.retained, settings.asynchronous,
            settings.merge_bytes, settings.base_bytes, settings.memory_limit,
            settings.pins if settings.queryable else None,
        )  # fmt: skip
        self._manifests = ManifestMaker(self.graph, self._housekeeping, self.token, self.sources, settings)

    def start_sinks(self) -> None:
        """Start the sinks. Call before `recover`, or before the first epoch if there is nothing to recover."""
        self._committer.start()

    def recover(self) -> Manifest | None:
        """Resume from the last manifest in storage, if there is one, and commit its sinks again.

        Call before the first epoch, and after each failure that this driver survives. Raises Fenced if another driver
        has continued the job in the meantime.
        """
        found = latest(self.storage)
        if not self.stores_manifests:
            # The batch is run again after its sinks failed. Storage holds nothing of it.
            self.last = None
        if self._recovered:
            fencing.check_owner(self.storage, None if found is None else found[0], self.last, self.token)
        self._recovered = True
        self._prepared = False
        self._clocks.jumps.forget()
        self.coordinator.forget(self._clocks.ticks())
        self._committer.forget()
        self._housekeeping.recovered()
        if found is None:
            fencing.begin(self.storage)
            self._begun = True
            self._committer.abort_uncommitted(0, self.token)
            return None
        manifest, version = found
        check_restorable(manifest, self._program, self.sources, self._manifests.key_types, self.storage.where)
        self.set_scale(recalled(self._program, manifest.rescaled))
        self.last, self.version, self.lineage = manifest, version, manifest.lineage
        self._clocks.processing.reach(manifest.timestamp)
        self._committer.lineage = manifest.lineage
        with self._fenced_if_published(manifest.id + 1):
            self._committer.commit_now(manifest.id, manifest.committables, again=True)
            # The next attempt might need resources that earlier attempts of this driver still hold.
            self._committer.abort_uncommitted(manifest.id, self.token)
            if manifest.ended:
                # No epoch follows that would remove what attempts at the last one left behind.
                self._committer.clean_up(manifest)
        self.checkpoints.add_restored(manifest)
        self._claimed = manifest.claimed
        self._dispose_claimed(manifest)
        return manifest

    def check_rescale(self, wanted: int | Mapping[str, int]) -> Scale:
        """Check a request, at any time, and return the scale that it asks for.

        Raises CannotRescale, or TooFewSlotsToRescale if the job would wait for slots.
        """
        scale = scale_for(self._program, wanted, self.scale)
        if self.slots is not None and scale != self.scale:
            self.slots.check_rescale(self._program.rescaled(scale))
        return scale

    def set_scale(self, scale: Scale) -> None:
        """Change the scale. Call between epochs. It is stored with the checkpoint of the next one."""
        self.scale = scale
        self.graph = self._program.rescaled(scale)

    def has_published(self, number: int) -> bool | None:
        """Return whether this driver has published a checkpoint, or None if the storage does not tell.

        An epoch can fail after its checkpoint: a sink could not commit, or the storage's answer was lost.
        """
        if number < self.next_number:
            return True
        try:
            found = latest(self.storage)
        except StorageError:
            return None
        return found is not None and found[0].id == number and found[0].token == self.token

    @property
    def blocks(self) -> dict[str, Blocks]:
        """The blocks of keyed operators in the next epoch, by uid."""
        return blocks_after(self.last, self.graph)

    @contextmanager
    def pinned_last(self) -> Iterator[tuple[Manifest, Version]]:
        """Keep the files of the last checkpoint while a savepoint is made from it. Its sinks have committed.

        Enter between two epochs; the body can run concurrently with later epochs.
        """
        self._committer.join()
        if self.last is None or self.version is None:
            raise PenstockError(
                "A savepoint needs a completed checkpoint, and this job has none yet.", fix="Run an epoch."
            )
        with self._housekeeping.pinned(self.last.id):
            yield self.last, self.version

    def _dispose_claimed(self, manifest: Manifest) -> None:
        """Remove the savepoint that this lineage started from, once a later checkpoint is complete."""
        if self._claimed and manifest.parent:
            identity, path = self._claimed
            dispose_claimed(self.open_savepoint(path), identity)
            self._claimed = None

    def close(self) -> None:
        """End the job before its input ends. No driver can resume this lineage afterwards.

        Aborts all output that was prepared but is not in the last checkpoint. Raises Fenced if another driver has
        continued the job, and the exception of a sink that failed.
        """
        last, failed = self.last, None
        self._committer.forget()
        try:
            if last is not None:
                # A sink might have failed to commit. After the close, no driver would find these committables again.
                self._committer.commit_now(last.id, last.committables, again=True)
                self._committer.settle()
        except Exception as error:  # from the user's sink; the lineage closes nevertheless
            failed = error
        self.last, self.version = fencing.close(self.storage, last, self.version, self.lineage, self.token)
        try:
            if failed is not None:
                raise failed
            if last is not None:
                self._committer.clean_up(last)
        finally:
            self.await_tasks()
            self._committer.abort_uncommitted(0 if last is None else last.id, None)

    def abort_uncommitted(self, everything: bool = False) -> None:
        """Abort what this driver's attempts prepared and no checkpoint holds. This driver runs no more epochs.

        Another driver might continue the lineage; its output is left alone. `everything`: abort all prepared output,
        because the lineage has no checkpoints to resume from.
        """
        self._committer.forget()
        self.await_tasks()
        if everything:
            self._committer.abort_uncommitted(-1, None)
            return
        found = latest(self.storage)
        self._committer.abort_uncommitted(0 if found is None else found[0].id, self.token)

    def finish_sinks(self) -> None:
        """Finish the sinks with the last checkpoint, because the job ends before its input does."""
        self._committer.join()
        if self.last is not None:
            self._committer.finish(self.last)

    def stop(self) -> None:
        """Release resources after the last epoch."""
        self._housekeeping.close()
        self._committer.close()

    def abandon(self) -> None:
        """Replace `stop` if the driver is lost but this process lives on. Sinks no longer commit."""
        self._housekeeping.abandon()

    def check_commits(self) -> None:
        """Raise the exception of a sink that failed during a concurrent commit, if any."""
        self._committer.check()

    @property
    def next_wakeup(self) -> int | None:
        """When the next epoch must run even without data, in milliseconds."""
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
        """Run one epoch from trigger to committed sinks. Concurrent commits finish during the next epoch.

        Raises EpochFailed after several attempts, Fenced, or the exception of a sink that failed in this epoch or the
        previous one.
        """
        epoch = self._trigger(batch, spark_log, ends_input, log_index)
        with collection_paused() as pause:
            # In a separate frame: the reports are gone when the pause ends, and the collector need not visit them.
            return self._run(epoch, pause)

    def _run(self, epoch: TriggeredEpoch, pause: CollectionPause) -> EpochStatistics:
        collected = self._collect(epoch, pause)
        decided = self._decide(epoch, collected)
        with pause.lifted():
            waited = self._await_commits()
            committing = self._commit_before_checkpoint(decided)
        published = self._publish(epoch, collected, decided)
        with pause.lifted():
            committing += self._commit(epoch, collected, decided)
        self.checkpoints.add_commit(published.manifest.id, round(committing * 1000))
        return self._account(collected, published, committing, waited)

    def _trigger(
        self, batch: int | None, spark_log: dict[str, bytes], ends_input: bool, log_index: dict[str, int] | None
    ) -> TriggeredEpoch:
        """Wait until the next epoch can begin, then set its number and clock."""
        pause = self.pause_left()
        if pause > 0:
            self.wait(pause)
        self.check_commits()
        self.number = self.next_number
        self.probe("triggered")
        # The input ends at the time of its last record, however late this epoch begins.
        timestamp = self.last.timestamp if ends_input and self.last is not None else self.epoch_clock()
        return TriggeredEpoch(
            number=self.number,
            batch=self.last.batch if batch is None and self.last is not None else batch,
            spark_log=spark_log,
            log_index=log_index,
            ends_input=ends_input,
            timestamp=timestamp,
            jumped=self._clocks.jumps.since_last(timestamp),
            began_at=self.monotonic(),
            blocks=self.blocks,
        )

    def _collect(self, epoch: TriggeredEpoch, pause: CollectionPause) -> CollectedEpoch:
        """Run the tasks until all of them have acknowledged the epoch. Raises EpochFailed or Fenced."""
        parameters = EpochParameters(
            number=epoch.number,
            ends_input=epoch.ends_input,
            wanted=self.version,
            storage=self.storage.uri,
            lineage=self.lineage,
            backend=self.settings.backend,
            inline_bytes=self.settings.inline_limit(self._keyed_tasks()),
            timestamp=epoch.timestamp,
            overlay_bytes=self.settings.overlay_bytes,
            scale=self.scale,
            single_epoch=self.single_epoch,
            token=self.token,
            jumped=epoch.jumped,
            blocks=epoch.blocks,
        )

        def run() -> Rows:
            with pause.lifted():
                return self._prepare(parameters) or self.execute(parameters)

        def abort(failed: Abort) -> None:
            with pause.lifted():
                self._abort(failed)

        return self._collector.collect(epoch.number, self.graph, run, abort)

    def _keyed_tasks(self) -> int:
        return sum(chain.parallelism for chain in self.graph.chains if any(each.keyed for each in chain.operators))

    def _abort(self, abort: Abort) -> None:
        self._committer.abort(abort.epoch, abort.totals.committables())
        fencing.check_unpublished(self.storage, abort.epoch)

    def _prepare(self, parameters: EpochParameters) -> list[tuple[int, bytes]]:
        """Check stored state types before the first epoch after a recovery, before any record is read."""
        if self._prepared or self.last is None:
            return []
        stored = self.last.operators.keys()
        chains = [chain for chain in self.graph.chains if any(each.uid in stored for each in chain.operators)]
        failures = list(self.prepare(parameters, [chain.id for chain in chains])) if chains else []
        self._prepared = not failures
        return failures

    def _decide(self, epoch: TriggeredEpoch, collected: CollectedEpoch) -> DecidedEpoch:
        """Build the manifest. No output is visible yet."""
        commits = self._committer.plan(collected.totals.committables())
        manifest = self._manifests.make(
            epoch,
            collected.totals,
            commits.in_manifest,
            last=self.last,
            version=self.version,
            lineage=self.lineage,
            scale=self.scale,
            claimed=self._claimed,
        )
        return DecidedEpoch(manifest=manifest, commits=commits)

    def _await_commits(self) -> float:
        """Wait until the commits that began with the previous epoch are complete. Return the seconds taken.

        At most one epoch then needs to be committed again.
        """
        began = self.monotonic()
        self._committer.join()
        return self.monotonic() - began

    def _commit_before_checkpoint(self, decided: DecidedEpoch) -> float:
        """Commit sinks that publish records before the checkpoint is complete. Return the seconds taken."""
        began = self.monotonic()
        self._committer.commit_now(decided.manifest.id, decided.commits.before_checkpoint)
        return self.monotonic() - began

    def _publish(self, epoch: TriggeredEpoch, collected: CollectedEpoch, decided: DecidedEpoch) -> PublishedEpoch:
        """Complete the checkpoint. It stands from here on, even if a sink fails to commit. Raises Fenced."""
        manifest = decided.manifest
        self.probe("collected")
        began = self.monotonic()
        # A manifest that is not stored acts as a checkpoint within this process only.
        version = fencing.publish_as_owner(self.storage, manifest, self._begun) if self.stores_manifests else None
        publishing = self._clocks.elapsed_ms(began)
        self.probe("published")
        self.last, self.version = manifest, version
        self._clocks.jumps.completed(epoch.timestamp, epoch.began_at)
        took_ms, names = self._clocks.elapsed_ms(collected.started), self._manifests.names
        state_bytes = self.checkpoints.add_completed(
            manifest,
            self.graph,
            collected.totals,
            collected.metrics.arrived,
            names,
            collected.triggered_at,
            took_ms,
            publishing,
        )
        self.metrics.add(collected.metrics, collected.totals.by_task)
        return PublishedEpoch(manifest=manifest, version=version, state_bytes=state_bytes)

    def _commit(self, epoch: TriggeredEpoch, collected: CollectedEpoch, decided: DecidedEpoch) -> float:
        """Commit the sinks, or start to. Return the seconds taken. Raises the exception of a sink that failed."""
        began = self.monotonic()
        instruction = self.coordinator.handle(Published(epoch.number, self._clocks.ticks()))
        with self._fenced_if_published(instruction.epoch + 1):
            # Commit output that is in no manifest first: if a sink fails here, the others recommit after the restart.
            self._committer.commit_now(instruction.epoch, decided.commits.unrecorded)
            self._committer.commit(decided.manifest, collected.records)
            if epoch.ends_input:
                self._committer.join()
        took = self.monotonic() - began
        self.probe("committed")
        return took

    def _account(
        self, collected: CollectedEpoch, published: PublishedEpoch, committing: float, waited: float
    ) -> EpochStatistics:
        """Pass the checkpoint to housekeeping, check limits, grant credits and record statistics.

        The sinks committed for `committing` seconds. Before, the epoch `waited` for commits of the previous one, which
        the credits know by their cost.
        """
        manifest, totals = published.manifest, collected.totals
        if published.version is not None and not self.single_epoch:
            self._housekeeping.published(manifest, published.version)
        self._dispose_claimed(manifest)
        if self.storage.in_memory and not self.single_epoch:
            limit, merged = self.settings.memory_limit, self._housekeeping.merged
            check_memory_limit(self.storage, manifest, self._manifests.names, merged, limit)
        duration = self.monotonic() - collected.started
        concurrent = self._committer.concurrent_seconds(manifest, collected.records)
        slots = 0 if self.slots is None else self.slots.available
        if self.flow is not None and concurrent is not None:
            self.flow.completed(self.graph, totals, collected.metrics, slots, committing, concurrent, duration)
        written = self._housekeeping.bases_written
        statistics = self._log.add(
            manifest.id, published.state_bytes, totals, collected.records, duration * 1000, written
        )
        self.observe(
            MeasuredEpoch(
                graph=self.graph,
                manifest=manifest,
                collected=collected,
                statistics=statistics,
                committing=waited + committing,
                slots=slots,
            )
        )
        return statistics

    def _fenced_if_published(self, number: int) -> AbstractContextManager[None]:
        return fencing.fenced_if_published(self.storage, number) if self.stores_manifests else nullcontext()

    def pause_left(self) -> float:
        """Return the seconds until the next checkpoint can be triggered."""
        return self._log.pause_left(self.settings.min_pause_ms)

    def epoch_clock(self) -> int:
        """Return the processing time of an epoch that begins now. It never goes back, even if the clock does."""
        return self._clocks.processing.now()

    def forget_clock(self) -> None:
        """Reset after the clocks were replaced. Only the timestamp of the last checkpoint is kept."""
        self._log.forget_clock()
        self._clocks.forget(None if self.last is None else self.last.timestamp)

    @property
    def wakeup_is_due(self) -> bool:
        """Whether an epoch must run now even without data."""
        due = self.next_wakeup
        return due is not None and due <= self.epoch_clock()
