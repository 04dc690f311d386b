"""The harness: a whole program, or one function, run epoch by epoch in this process.

env = StreamExecutionEnvironment.get_execution_environment()
job = JobHarness(env.from_collection([]).key_by(lambda v: v).process(Count()))
job.push("a", "b", "a")
job.epoch()
assert job.output == [("a", 1), ("b", 1), ("a", 2)]
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from penstock.common.program import Program
from penstock.common.watermark_strategy import Watermark
from penstock.connectors.driver_sinks import CollectSink
from penstock.connectors.flow_settings import flow_if_asked
from penstock.datastream.data_stream import DataStream
from penstock.datastream.environment import StreamExecutionEnvironment
from penstock.datastream.local_program import local_program
from penstock.driver.checkpoint_settings import checkpoint_interval, restart_strategy
from penstock.driver.epoch_settings import Settings
from penstock.driver.epoch_statistics import EpochStatistics
from penstock.driver.epochs import EpochDriver
from penstock.driver.instructions import RunEpoch
from penstock.driver.metrics import JobMetrics
from penstock.driver.requests import Requests
from penstock.driver.statistics import CheckpointLog
from penstock.runtime.moment import Timestamped
from penstock.runtime.watermarks import LEAST
from penstock.savepoint.format import check_savepoint_directory, savepoint_storage
from penstock.savepoint.restoring import RecoveryClaimMode, RestoreSettings
from penstock.state.backend_settings import backend_name
from penstock.state.backends import Backend
from penstock.state.driver_storage import DriverStorage
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import Storage
from penstock.testing.clock import HarnessClock
from penstock.testing.committed_state import CommittedState
from penstock.testing.engine import LocalEngine
from penstock.testing.execution import NAME, LocalExecution, SimulatedCrash
from penstock.testing.feed import Feed


class JobHarness:
    """Runs the program that ends in `stream` (or, given an environment, one whose sinks are all declared).

    Records wait in the sources, as in a log, until an epoch takes them; a crash takes back what no checkpoint holds.
    Given the `storage` of another harness, it goes on from that one's last checkpoint, at whatever parallelism.
    Given `from_savepoint`, it begins with that.
    A restart strategy of the program is obeyed; where a driver would wait, the clock that was set goes on at once.
    After each epoch it checks that no operator's watermark moved backwards, and raises WatermarkMovedBackwards if one
    did: within the epoch, from one checkpoint to the next, over crashes, rescales and savepoints.
    `backend` is what `state.backend.type` is in a configuration; checkpoints are in a directory of the harness, with
    `memory` in the driver's memory.
    With `commits_late`, sinks that commit beside the next epoch do so when its tasks are done, and not at once.
    `main` is the module of the program that a test has imported and that otherwise is run itself: its functions and
    classes then reach tasks by value, as those of `__main__` do.
    """

    def __init__(
        self,
        stream: DataStream | StreamExecutionEnvironment,
        *,
        parallelism: int | None = None,
        max_parallelism: int | None = None,
        backend: str = "memory",
        storage: Storage | None = None,
        settings: Settings | None = None,
        from_savepoint: str | None = None,
        allow_non_restored_state: bool = False,
        claim_mode: RecoveryClaimMode = RestoreSettings.claim_mode,
        commits_late: bool = False,
        main: ModuleType | None = None,
    ) -> None:
        self.output: list[Any] = []
        """Everything the stream gave, epoch after epoch."""
        self._sink = CollectSink()
        logical, self._graph, config, self._batch = local_program(
            stream,
            self._sink,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            own_modules=() if main is None else (main.__name__,),
        )
        self._directory = tempfile.mkdtemp(prefix="penstock-harness-")
        engine, in_driver = backend_name(backend)
        self._backend = Backend(name=engine, directories=[f"{self._directory}/replicas"])
        if settings is None and checkpoint_interval(config) <= 0:
            # As on Spark, the limit is that of checkpoints in the driver's memory; a program without any has none.
            settings = Settings(memory_limit=sys.maxsize)
        self._settings = replace(settings or Settings(), backend=self._backend)
        owner: object = self
        if storage is None:
            storage = DriverStorage() if in_driver else LocalStorage(f"{self._directory}/checkpoints")
            # A harness that goes on from this one's checkpoints may outlive it.
            owner = storage
        self.storage = storage
        # A test that does not close its harness leaves no files either.
        self._remove_files = weakref.finalize(owner, shutil.rmtree, self._directory, ignore_errors=True)
        self._restore = (
            None if from_savepoint is None else RestoreSettings(from_savepoint, allow_non_restored_state, claim_mode)
        )
        self._program = Program(self._graph.program)
        self._names = {node.name: node.uid for node in logical.nodes.values()}
        self.clock = HarnessClock()
        self._feed = Feed(logical, self._graph, self._program, parallelism or 1, lambda: self._driver.last)
        self._execution = LocalExecution(
            self._graph,
            self._program,
            storage,
            self._settings,
            logical.sinks(),
            restart_strategy(config, checkpointing=False),
            self._feed,
            self.clock,
            flow=flow_if_asked(config),
            restore=self._restore,
            commits_late=commits_late,
            derived_uids=logical.derived_uids(),
            collect=self._collect,
        )
        self._requests = Requests(NAME, self._execution)
        self._execution.start()

    @property
    def _driver(self) -> EpochDriver:
        return self._execution.driver

    @property
    def _engine(self) -> LocalEngine:
        return self._execution.engine

    @property
    def last_failure(self) -> BaseException | None:
        """What the job failed with last, whether it was restarted then or not; None if it has not failed."""
        return self._execution.last_failure

    @property
    def epochs_run(self) -> int:
        """How many epochs the harness has completed, over all crashes."""
        return self._execution.epochs_run

    def _collect(self) -> None:
        while not self._sink.results.empty():
            self.output.extend(self._sink.results.get())

    # -- input -----------------------------------------------------------------------------------------------------

    def push(self, *records: Any, source: str | None = None, timestamp: int | None = None) -> JobHarness:
        """Add records to a source; `source` is its uid or name, needed only where there are several.

        With a `timestamp` they have this event time from the start, as from a source that knows it.
        """
        uid = self._feed.uid(source)
        if timestamp is not None:
            self._give_time(uid)
            records = tuple(Timestamped(record, timestamp) for record in records)
        self._feed.logs[uid].extend(records)
        return self

    def push_watermark(self, timestamp: int, source: str | None = None) -> JobHarness:
        """Let the source say, at this place among its records, that event time has come this far."""
        uid = self._feed.uid(source)
        self._give_time(uid)
        self._feed.logs[uid].append(Watermark(timestamp))
        return self

    def set_clock(self, milliseconds: int) -> JobHarness:
        """Let time pass until the machine's clock shows this, and run the epoch for what is then due.

        A timer or an idle source can be due. A clock that is set back is as one that is corrected: no time passes.
        """
        return self._set_clock(self.clock.pass_until, milliseconds)

    def jump_clock(self, milliseconds: int) -> JobHarness:
        """Let the machine's clock show this from now on, forward or back, although no time passes.

        That happens when a time server or an operator corrects it. If a timer is due by then, run the epoch for it.
        """
        return self._set_clock(self.clock.jump, milliseconds)

    def _set_clock(self, change: Callable[[int], bool], milliseconds: int) -> JobHarness:
        if change(milliseconds):
            # What the machine's own clocks showed before no longer counts.
            self._driver.forget_clock()
        if self._driver.wakeup_is_due:
            self.epoch(0)
        return self

    @property
    def next_wakeup(self) -> int | None:
        """When an epoch would run even without records, in ms."""
        return self._driver.next_wakeup

    def set_pace(self, seconds: float, operator: str) -> JobHarness:
        """Let every record take this long in an operator or source, named by uid or name.

        The clock is then the test's: an epoch takes what its records take at the paces that were set, and nothing else.
        """
        if self.clock.shown is None:
            self.set_clock(0)
        self._execution.pace.set(self._names.get(operator, operator), seconds)
        return self

    def _give_time(self, uid: str) -> None:
        chain = next(chain for chain in self._graph.sources() if chain.source_uid == uid)
        if not chain.gives_time:
            self._graph.give_time(chain)
            self._execution.start()

    def set_partitions(self, count: int, source: str | None = None) -> None:
        """How many input partitions the source has from the next epoch on."""
        self._feed.partitions[self._feed.uid(source)] = count

    def epoch(self, records: int | None = None) -> EpochStatistics | None:
        """Run one epoch over the records that wait, at most `records` of each source.

        A program with flow control takes at most its credits. Returns None if a crash was asked for and came.
        """
        return self._execution.run_epoch(RunEpoch(), records)

    def epochs(self, records: int) -> JobHarness:
        """Epochs of at most `records` each, until nothing waits."""
        while self._feed.anything_waits(records):
            self.epoch(records)
        return self

    def end(self) -> JobHarness:
        """End the input: run what waits, then the epoch that flushes every operator; again after a crash."""
        while (waits := self._feed.anything_waits(None)) or self._feed.may_get_more():
            if waits:
                self.epoch()
        while self._driver.last is None or not self._driver.last.ended:
            self._execution.run_epoch(RunEpoch(ends_input=True))
        return self

    def run(self, records: int | None = None) -> list[Any]:
        """The whole program: epochs until the input is used up, then the end. Returns the output.

        In the runtime mode BATCH, and without `records`, it is one epoch and no checkpoint, as on Spark.
        """
        if records is None and self._batch and self._driver.last is None and self._restore is None:
            self._feed.anything_waits(None)
            self._feed.take(None)
            self._execution.single_epoch = True
            while self._driver.last is None:
                self._execution.run(self._execution.begin)
            return self.output
        if records is not None:
            self.epochs(records)
        self.end()
        return self.output

    def backlog(self, source: str | None = None) -> int | None:
        """How many records wait in a source; None where it cannot say."""
        return self._feed.backlog(source)

    # -- requests --------------------------------------------------------------------------------------------------

    def savepoint(self, directory: str | os.PathLike[str]) -> str:
        """Make a savepoint of the last checkpoint below this directory, and give its path. The job goes on."""
        storage = savepoint_storage(os.fspath(directory))
        check_savepoint_directory(storage)
        self._execution.start_again_if_over()
        return self._requests.savepoint(storage)

    def stop_with_savepoint(self, directory: str | os.PathLike[str], drain: bool = False) -> str:
        """End the job with a savepoint. `drain`: end its input first, so that all timers and windows fire."""
        storage = savepoint_storage(os.fspath(directory))
        check_savepoint_directory(storage)
        self._execution.start_again_if_over()
        path = self._requests.stop_with_savepoint(storage, drain)
        self.close()
        return path

    def rescale(self, parallelism: int | Mapping[str, int]) -> JobHarness:
        """From the next epoch on, other numbers of subtasks, as `JobClient.rescale`."""
        self._execution.start_again_if_over()
        self._requests.rescale(parallelism)
        return self

    def cancel(self) -> None:
        """End the job as `JobClient.cancel` does.

        Nothing of the epoch in progress is visible, and sinks show and abort what they hold. Raises what they fail
        with.
        """
        self._execution.start_again_if_over()
        stop = self._execution.life.cancel_requested()
        if stop is not None:
            self._execution.stop(stop)

    # -- failures --------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose every process of the job and start again from the last checkpoint."""
        self._execution.start()

    def crash_at(self, point: str) -> None:
        """Crash when the next epoch reaches a point, such as `source.processed` or `driver.published`.

        An epoch that does not reach it is an error, which says what points there are.
        """
        self._execution.crash_point = point

    @property
    def restarts(self) -> int:
        """How often the program's restart strategy has restarted it, since the start or the last crash."""
        return self._execution.life.restarts

    def lose_replicas(self) -> None:
        """Delete every local replica; they are caches."""
        shutil.rmtree(f"{self._directory}/replicas", ignore_errors=True)

    # -- looking ---------------------------------------------------------------------------------------------------

    def committed(self) -> CommittedState:
        """What the last checkpoint holds."""
        return CommittedState(
            self._graph, self._program, self._names, self._engine, self._execution.parameters(), self._driver.last
        )

    def state(self, name: str, key: Any, operator: str | None = None) -> Any:
        """Committed state of a key: a value, a list, or a dict. `operator` is a uid or name, if several hold it."""
        return self.committed().state(name, key, operator)

    def states(self, name: str, operator: str | None = None) -> dict[Any, Any]:
        """Committed state of every key that has any, by key."""
        return self.committed().states(name, operator)

    def operator_state(self, name: str, operator: str | None = None) -> list[Any]:
        """Committed operator state, one list or dict per subtask. `operator` is a uid or name, if several hold it.

        A union list has the elements that each subtask wrote. Raw state, under "raw operator state", and that of a
        sink's writers, under "writers", is bytes.
        """
        return self.committed().operator_state(name, operator)

    def timers(self, operator: str | None = None) -> list[tuple[int, Any, str]]:
        """(time, key, kind) of every timer that is set, in order; `operator` is a uid or name, if several have any."""
        return self.committed().timers(operator)

    def watermark_of(self, operator: str) -> int:
        """The least watermark of an operator's subtasks at the last checkpoint; by uid or name."""
        return self.committed().watermark_of(operator)

    @property
    def watermark(self) -> int:
        """The least watermark of all tasks at the last checkpoint."""
        times = {} if self._driver.last is None else self._driver.last.times
        return min((watermark for each in times.values() for watermark in each.subtasks), default=LEAST)

    @property
    def checkpoint(self) -> int:
        """Number of the last completed checkpoint; 0 before the first."""
        return 0 if self._driver.last is None else self._driver.last.id

    @property
    def checkpoints(self) -> CheckpointLog:
        """What the driver knows of its checkpoints, since the start or the last crash."""
        return self._driver.checkpoints

    def metrics(self) -> JobMetrics:
        """Counted in completed epochs since the start or the last crash, as on Spark since the driver started."""
        return self._driver.metrics.read()

    def close(self) -> None:
        """End the job: close its functions, delete its files."""
        try:
            self._engine.close()
        finally:
            self._feed.close()
            self._driver.stop()
            self.storage.close()
            self._remove_files()

    def __enter__(self) -> JobHarness:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def keyed_harness(function: Any, key: Callable[[Any], Any] = lambda value: value, **options: Any) -> JobHarness:
    """One keyed function alone: a KeyedProcessFunction, or a plain function of (value, context)."""
    env = StreamExecutionEnvironment.get_execution_environment()
    return JobHarness(env.from_collection([]).key_by(key).process(function).uid("function"), **options)


__all__ = ["JobHarness", "SimulatedCrash", "keyed_harness"]
