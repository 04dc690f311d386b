"""A job in this process. Executes the instructions of the life cycle in place of Spark's driver and executors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from penstock.checkpoint.lineages import SharedStorage
from penstock.checkpoint.manifest import Manifest, Version
from penstock.common.job import JobStatus
from penstock.common.program import Program
from penstock.driver.committing import CommittingSink
from penstock.driver.epoch_parameters import EpochParameters
from penstock.driver.epoch_settings import Settings
from penstock.driver.epoch_statistics import EpochStatistics
from penstock.driver.epochs import EpochDriver
from penstock.driver.event_time import moved_backwards
from penstock.driver.flow_control import FlowControl, FlowSettings
from penstock.driver.instructions import (
    AwaitRestart,
    End,
    JobFailure,
    JobTraits,
    Recover,
    RunEpoch,
    StartQuery,
    StopQuery,
)
from penstock.driver.job_observer import JobFacts, JobObserver
from penstock.driver.life_cycle import LifeCycle, Phase
from penstock.driver.recovery import recover
from penstock.driver.restarts import RestartStrategy
from penstock.errors import PenstockError
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.event_time import Times
from penstock.savepoint.restoring import RestoreSettings
from penstock.savepoint.saving import make_savepoint
from penstock.state.storage import Storage
from penstock.testing.clock import HarnessClock
from penstock.testing.engine import LocalEngine
from penstock.testing.feed import Feed
from penstock.testing.late import Late
from penstock.testing.pace import Pace
from penstock.testing.watching import WatermarkMovedBackwards

NAME = "harness"
"""The name of the job in savepoints and messages."""


class SimulatedCrash(BaseException):
    """Raised inside an epoch at the crash point of a test. Not an Exception, so user code does not catch it."""


class LocalExecution:
    """Runs a job.

    Call ``start``, then ``run_epoch`` for each epoch, ``start`` again after a crash, and ``stop`` at the end.
    """

    def __init__(
        self,
        graph: PhysicalGraph,
        program: Program,
        storage: Storage,
        settings: Settings,
        sinks: dict[str, CommittingSink],
        strategy: RestartStrategy,
        feed: Feed,
        clock: HarnessClock,
        *,
        flow: FlowSettings | None,
        restore: RestoreSettings | None,
        commits_late: bool,
        derived_uids: frozenset[str],
        collect: Callable[[], None],
        facts: JobFacts,
    ) -> None:
        """Create an execution.

        `derived_uids` are those that the program did not set. `collect` is called after each epoch, even a failed one.
        """
        self._graph, self._program, self._storage, self._settings = graph, program, storage, settings
        self._sinks, self._strategy, self._feed, self._clock = sinks, strategy, feed, clock
        self._flow, self._restore, self._commits_late = flow, restore, commits_late
        self._derived_uids, self._collect, self._facts = derived_uids, collect, facts
        self.pace = Pace(clock.wait)
        self.single_epoch = False
        """Whether the next start runs the job as a batch job."""
        self.crash_point: str | None = None
        self._passed: list[str] = []
        self.epochs_run = 0
        self.last_failure: BaseException | None = None
        self._times: Times = {}
        """The event times of the last checkpoint that was checked."""
        self._started = False
        self.observer: JobObserver
        self.life: LifeCycle
        self.engine: LocalEngine
        self.driver: EpochDriver

    def start(self) -> None:
        """Start the program, as in a new process."""
        self._follow(self.begin())
        self._check_watermarks()

    def start_again_if_over(self) -> None:
        """Start the program again if it has failed, as a user would."""
        if self.life.phase is not Phase.RUNNING:
            self.start()

    def begin(self) -> Recover:
        """Create a new driver and return its first instruction."""
        if self._started:
            self.driver.abandon()
        self._open_engine()
        # The test decides when epochs run and when the input ends, so the input is bounded regardless of the sources.
        # Checkpoints are always taken and never removed from the storage.
        self._traits = JobTraits(single_epoch=self.single_epoch)
        self.observer = JobObserver(self._facts, lambda: self._clock.now() / 1000)
        self.life = LifeCycle(self._traits, self._strategy, self.observer.changed)
        self.driver = EpochDriver(
            self._graph,
            self._storage,
            self._settings,
            lambda parameters: self.engine.execute(parameters),
            self._sinks,
            self._driver_probe,
            prepare=lambda parameters, chains: self.engine.prepare(parameters, chains),
            clock=lambda: self._clock.now() / 1000,
            monotonic=lambda: self._clock.elapsed() / 1000,
            wait=self._clock.wait,
            executor=Late() if self._commits_late else None,
            flow=None if self._flow is None else FlowControl(self._flow, self._feed.logs, self._feed.credits),
            single_epoch=self.single_epoch,
            stores_manifests=not self.single_epoch,
            parallelism=self._facts.parallelism,
            observe=lambda epoch: self.observer.completed(self.driver, epoch),
        )
        return self.life.start()

    def _open_engine(self) -> None:
        if self._started:
            self.engine.abandon()
        self.engine = LocalEngine(
            self._graph,
            self._program,
            self._storage,
            self._settings.backend,
            self._feed.pending,
            self._probe,
            self.pace,
        )
        self._started = True

    def _follow(self, instruction: Recover | StartQuery | RunEpoch | AwaitRestart | End) -> EpochStatistics | None:
        """Execute instructions until an epoch completes, or until the job waits for the next epoch.

        Return the statistics of the completed epoch.
        """
        while not isinstance(instruction, End):
            try:
                match instruction:
                    case Recover():
                        instruction = self._recover()
                    case AwaitRestart(number, delay_ms):
                        self._clock.wait(delay_ms / 1000)
                        self._open_engine()
                        self.driver.metrics.restarted(number)
                        instruction = self.life.delay_over()
                    case StartQuery():
                        self.life.query_started()
                        return None
                    case RunEpoch(ends_input):
                        statistics = self.driver.run_epoch(None, {}, ends_input)
                        self.life.epoch_done(ended=ends_input)
                        return statistics
            except Exception as error:  # user sinks can raise anything
                self.last_failure = error
                self.observer.failed(error, self)
                instruction = self.life.failed(JobFailure.of(error, int(self._clock.elapsed())))
        self._end(instruction)
        return None

    def _recover(self) -> StartQuery | RunEpoch | End:
        last = recover(self.driver, self._traits, self._restore)
        self._feed.follow(self._storage)
        return self.life.recovered(None if last is None else last.id, last is not None and last.ended)

    def _end(self, end: End) -> None:
        self.life.ended()
        if end.status is JobStatus.FAILED:
            assert self.last_failure is not None
            raise self.last_failure
        try:
            if end.close:
                self.driver.close()
        finally:
            if end.finish_sinks:
                self.driver.finish_sinks()

    def run_epoch(self, epoch: RunEpoch, records: int | None = 0) -> EpochStatistics | None:
        """Run an epoch over at most ``records`` of each source.

        The epoch that ends the input reads all waiting records. Return None if the epoch crashed as requested.
        """
        self.start_again_if_over()
        if not epoch.ends_input:
            self._feed.draw(records)
        self._feed.take(None if epoch.ends_input else records)
        return self.run(lambda: self._next_epoch(epoch.ends_input))

    def _next_epoch(self, ends_input: bool) -> RunEpoch:
        epoch = self.life.query_ended() if ends_input else self.life.batch_ready(self.life.generation)
        if not isinstance(epoch, RunEpoch):
            raise PenstockError("The job has ended and cannot run another epoch.", fix="Create another harness.")
        return epoch

    def run(self, begin: Callable[[], RunEpoch | Recover]) -> EpochStatistics | None:
        """Run an epoch, restarting after failures as the restart strategy allows.

        Return None if the epoch crashed as requested. The program has then been started again, unless it is a batch
        job.
        """
        self._passed = []
        try:
            statistics = self._run_over_failures(begin)
            if self.crash_point is not None:
                points = ", ".join(dict.fromkeys(self._passed))
                raise PenstockError(
                    f"The epoch did not reach the crash point '{self.crash_point}'. It reached only {points}."
                )
            self._check_watermarks()
        except SimulatedCrash:
            self.crash_point = None
            if not self.single_epoch:
                self.start()
            return None
        finally:
            self._collect()
        if statistics is not None:
            self.epochs_run += 1
        return statistics

    def _run_over_failures(self, begin: Callable[[], RunEpoch | Recover]) -> EpochStatistics | None:
        """Run an epoch until it completes. Return None if the recovery of a failed epoch completed its checkpoint."""
        statistics: EpochStatistics | None = None
        while statistics is None:
            statistics = self._follow(begin())
            if self.life.phase is Phase.ENDED:
                break
        return statistics

    def _check_watermarks(self) -> None:
        times = {} if self.driver.last is None else self.driver.last.times
        moves = [*self.engine.moves_backwards, *moved_backwards(self._times, times)]
        self._times = times
        if moves:
            raise WatermarkMovedBackwards(moves)

    def _probe(self, point: str) -> None:
        self._passed.append(point)
        if point == self.crash_point:
            raise SimulatedCrash(point)

    def _driver_probe(self, point: str) -> None:
        self._probe(f"driver.{point}")

    # -- interface for requests: see `driver/requests.py` ----------------------------------------------------------

    def between_epochs(self) -> AbstractContextManager[None]:
        """Return an empty context: nothing runs between the calls of a test."""
        return nullcontext()

    def save(self, directory: SharedStorage, manifest: Manifest, version: Version) -> str:
        """Take a savepoint of a pinned checkpoint and return its path."""
        held = self._feed.with_positions(manifest, self.driver.sources)
        return make_savepoint(directory, NAME, self._graph, self._storage, held, version, self._derived_uids)

    def stop(self, stop: StopQuery) -> None:
        """End the job as requested. The harness has no query to stop."""
        end = self.life.query_ended()
        assert isinstance(end, End)
        self._end(end)

    def parameters(self) -> EpochParameters:
        """Return the parameters of an epoch that would start now."""
        return EpochParameters(
            number=self.driver.next_number,
            ends_input=False,
            wanted=self.driver.version,
            storage="",
            lineage=self.driver.lineage,
            backend=self._settings.backend,
            inline_bytes=self._settings.inline_bytes,
            timestamp=self.driver.epoch_clock(),
            scale=self.driver.scale,
            blocks=self.driver.blocks,
        )
