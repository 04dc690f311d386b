"""The harness runs a complete program, or one function, epoch by epoch in this process."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import uuid
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from penstock.common.options.program import PARALLELISM
from penstock.common.options.query import QUERYABLE_STATE
from penstock.common.program import Program
from penstock.common.watermark_strategy import Watermark
from penstock.connectors.driver_sinks import CollectSink
from penstock.connectors.flow_settings import flow_if_asked
from penstock.datastream.data_stream import DataStream
from penstock.datastream.environment import StreamExecutionEnvironment
from penstock.datastream.local_program import local_program
from penstock.driver.checkpoint_settings import (
    checkpoint_facts,
    checkpoint_interval,
    restart_strategy,
    retains_checkpoints,
)
from penstock.driver.epoch_settings import Settings
from penstock.driver.epoch_statistics import EpochStatistics
from penstock.driver.epochs import EpochDriver
from penstock.driver.instructions import RunEpoch
from penstock.driver.job_observer import JobFacts
from penstock.driver.job_snapshot import JobSnapshot
from penstock.driver.metrics import JobMetrics
from penstock.driver.requests import Requests
from penstock.driver.restarts import describe_strategy
from penstock.driver.statistics import CheckpointLog
from penstock.graph.plan_json import execution_plan
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
    """Runs a program epoch by epoch in this process.

    Records wait in the sources, as in a log, until an epoch takes them. A crash rolls back everything since the last
    checkpoint. The program's restart strategy applies; its delays only advance the clock set by the test. After each
    epoch the harness checks that no watermark moved backwards within the epoch, since the last checkpoint, or across
    crashes, rescales and savepoints, and raises ``WatermarkMovedBackwards`` if one did.

    Args:
        stream: The stream whose records to collect, or an environment whose sinks are all declared.
        parallelism: The default parallelism. By default the program's own applies.
        max_parallelism: The number of key groups. By default the program's own applies.
        backend: A value of ``state.backend.type``. Checkpoints go to a temporary directory, or to memory with
            ``memory``.
        storage: The storage of another harness, whose last checkpoint this one resumes from, at any parallelism.
        settings: The driver's settings.
        from_savepoint: The path of a savepoint to start from.
        allow_non_restored_state: Whether to drop savepoint state that the program no longer declares.
        claim_mode: Who owns the savepoint after the restore.
        commits_late: Whether sinks that commit concurrently with the next epoch wait until its tasks are done.
        main: The imported module of a program that normally runs as ``__main__``. Its functions and classes reach tasks
            by value, as those of ``__main__`` do.

    Example:
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> job = JobHarness(env.from_collection([]).key_by(lambda v: v).process(Count()))
        >>> job.push("a", "b", "a").epoch()
        >>> assert job.output == [("a", 1), ("b", 1), ("a", 2)]
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
        """The records of the stream, epoch after epoch."""
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
            # As on Spark, the limit applies to checkpoints in the driver's memory, so not without checkpoints.
            settings = Settings(memory_limit=sys.maxsize)
        self._settings = replace(settings or Settings(), backend=self._backend, queryable=config.get(QUERYABLE_STATE))
        owner: object = self
        if storage is None:
            storage = DriverStorage() if in_driver else LocalStorage(f"{self._directory}/checkpoints")
            # A harness that resumes from these checkpoints can outlive this one.
            owner = storage
        self.storage = storage
        # Removes the files even if the test does not close its harness.
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
            facts=JobFacts(
                id=uuid.uuid4().hex,
                name=NAME,
                parallelism=parallelism or config.get(PARALLELISM) or 1,
                batch=self._batch,
                plan=execution_plan(logical, self._graph, indent=None),
                checkpointing=checkpoint_facts(
                    self._settings,
                    checkpoint_interval(config),
                    retains_checkpoints(config),
                    None if in_driver else storage.where,
                ),
                configuration=config.to_dict(),
                parameters=self._graph.job_parameters,
                restart_strategy=describe_strategy(restart_strategy(config, checkpointing=False)),
                savepoint=from_savepoint or "",
            ),
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
        """The last failure of the job, even if it was restarted, or None if it has not failed."""
        return self._execution.last_failure

    @property
    def epochs_run(self) -> int:
        """The number of epochs completed, across all crashes."""
        return self._execution.epochs_run

    def _collect(self) -> None:
        while not self._sink.results.empty():
            self.output.extend(self._sink.results.get())

    # -- input -----------------------------------------------------------------------------------------------------

    def push(self, *records: Any, source: str | None = None, timestamp: int | None = None) -> JobHarness:
        """Append records to a source.

        Args:
            records: The records.
            source: The uid or name of the source. It is required if there are several.
            timestamp: The event time of the records, as from a source that assigns timestamps.
        """
        uid = self._feed.uid(source)
        if timestamp is not None:
            self._give_time(uid)
            records = tuple(Timestamped(record, timestamp) for record in records)
        self._feed.logs[uid].extend(records)
        return self

    def push_watermark(self, timestamp: int, source: str | None = None) -> JobHarness:
        """Emit a watermark from a source after the records pushed so far.

        Args:
            timestamp: The watermark.
            source: The uid or name of the source. It is required if there are several.
        """
        uid = self._feed.uid(source)
        self._give_time(uid)
        self._feed.logs[uid].append(Watermark(timestamp))
        return self

    def set_clock(self, milliseconds: int) -> JobHarness:
        """Let time pass until the wall clock reaches a value, and run an epoch if a timer or idle source is due.

        Setting the clock back works like a clock correction: no time passes.
        """
        return self._set_clock(self.clock.pass_until, milliseconds)

    def jump_clock(self, milliseconds: int) -> JobHarness:
        """Correct the wall clock, forward or back, without letting time pass. Run an epoch if a timer is due."""
        return self._set_clock(self.clock.jump, milliseconds)

    def _set_clock(self, change: Callable[[int], bool], milliseconds: int) -> JobHarness:
        if change(milliseconds):
            # Readings of the system clock no longer count.
            self._driver.forget_clock()
        if self._driver.wakeup_is_due:
            self.epoch(0)
        return self

    @property
    def next_wakeup(self) -> int | None:
        """The time in milliseconds at which an epoch would run even without records, or None."""
        return self._driver.next_wakeup

    def set_pace(self, seconds: float, operator: str) -> JobHarness:
        """Set the time that each record takes in an operator or source, identified by uid or name.

        From then on the test controls the clock, and only these times pass during an epoch.
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
        """Set the number of input partitions of a source, starting with the next epoch."""
        self._feed.partitions[self._feed.uid(source)] = count

    def epoch(self, records: int | None = None) -> EpochStatistics | None:
        """Run one epoch over the waiting records, at most ``records`` of each source.

        With flow control, an epoch reads at most the granted credits. Return None if the epoch crashed as requested.
        """
        return self._execution.run_epoch(RunEpoch(), records)

    def epochs(self, records: int) -> JobHarness:
        """Run epochs of at most ``records`` each until no records wait."""
        while self._feed.anything_waits(records):
            self.epoch(records)
        return self

    def end(self) -> JobHarness:
        """End the input: run the waiting records and then the final epoch, which flushes every operator.

        Retry after a crash.
        """
        while (waits := self._feed.anything_waits(None)) or self._feed.can_get_more():
            if waits:
                self.epoch()
        while self._driver.last is None or not self._driver.last.ended:
            self._execution.run_epoch(RunEpoch(ends_input=True))
        return self

    def run(self, records: int | None = None) -> list[Any]:
        """Run the complete program and return the output.

        In BATCH mode and without ``records``, the program runs as one epoch without checkpoints, as on Spark.
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
        """Return how many records wait in a source, or None if it cannot tell."""
        return self._feed.backlog(source)

    # -- requests --------------------------------------------------------------------------------------------------

    def savepoint(self, directory: str | os.PathLike[str]) -> str:
        """Take a savepoint of the last checkpoint below a directory and return its path. The job continues."""
        storage = savepoint_storage(os.fspath(directory))
        check_savepoint_directory(storage)
        self._execution.start_again_if_over()
        return self._requests.savepoint(storage)

    def stop_with_savepoint(self, directory: str | os.PathLike[str], drain: bool = False) -> str:
        """End the job with a savepoint and return its path.

        With ``drain``, end the input first, so all timers and windows fire.
        """
        storage = savepoint_storage(os.fspath(directory))
        check_savepoint_directory(storage)
        self._execution.start_again_if_over()
        path = self._requests.stop_with_savepoint(storage, drain)
        self.close()
        return path

    def rescale(self, parallelism: int | Mapping[str, int]) -> JobHarness:
        """Run an epoch without records at another parallelism, which then stays; see ``JobClient.rescale``."""
        self._execution.start_again_if_over()
        self._requests.rescale(parallelism)
        return self

    def cancel(self) -> None:
        """End the job as ``JobClient.cancel`` does, and raise any error of the sinks.

        The output of the current epoch stays invisible. Sinks commit or abort their pending output.
        """
        self._execution.start_again_if_over()
        stop = self._execution.life.cancel_requested()
        if stop is not None:
            self._execution.stop(stop)

    # -- failures --------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose every process of the job and restart from the last checkpoint."""
        self._execution.start()

    def crash_at(self, point: str) -> None:
        """Crash when the next epoch reaches a point, such as ``source.processed`` or ``driver.published``.

        An epoch that does not reach the point raises an error that lists the points it reached.
        """
        self._execution.crash_point = point

    @property
    def restarts(self) -> int:
        """The number of restarts by the restart strategy since the start or the last crash."""
        return self._execution.life.restarts

    def lose_replicas(self) -> None:
        """Delete all local replicas, which are caches."""
        shutil.rmtree(f"{self._directory}/replicas", ignore_errors=True)

    # -- inspection ------------------------------------------------------------------------------------------------

    def committed(self) -> CommittedState:
        """Return a reader of the last checkpoint."""
        return CommittedState(
            self._graph, self._program, self._names, self._engine, self._execution.parameters(), self._driver.last
        )

    def state(self, name: str, key: Any, operator: str | None = None) -> Any:
        """Return the committed state of a key: a value, a list or a dict.

        Pass ``operator`` (uid or name) if several hold it.
        """
        return self.committed().state(name, key, operator)

    def states(self, name: str, operator: str | None = None) -> dict[Any, Any]:
        """Return the committed state of every key that has one, by key."""
        return self.committed().states(name, operator)

    def operator_state(self, name: str, operator: str | None = None) -> list[Any]:
        """Return committed operator state, as one list or dict per subtask; see ``CommittedState.operator_state``."""
        return self.committed().operator_state(name, operator)

    def timers(self, operator: str | None = None) -> list[tuple[int, Any, str]]:
        """Return (time, key, kind) of every committed timer, in order.

        Pass ``operator`` (uid or name) if several are keyed.
        """
        return self.committed().timers(operator)

    def watermark_of(self, operator: str) -> int:
        """Return the lowest watermark of an operator's subtasks at the last checkpoint."""
        return self.committed().watermark_of(operator)

    @property
    def watermark(self) -> int:
        """The lowest watermark of all tasks at the last checkpoint."""
        times = {} if self._driver.last is None else self._driver.last.times
        return min((watermark for each in times.values() for watermark in each.subtasks), default=LEAST)

    @property
    def checkpoint(self) -> int:
        """The ID of the last completed checkpoint, or 0 before the first."""
        return 0 if self._driver.last is None else self._driver.last.id

    @property
    def checkpoints(self) -> CheckpointLog:
        """The log of checkpoints since the start or the last crash."""
        return self._driver.checkpoints

    def metrics(self) -> JobMetrics:
        """Return the metrics of the epochs completed since the start or the last crash."""
        return self._driver.metrics.read()

    def snapshot(self) -> JobSnapshot:
        """Return the job as the REST interface shows it, since the start or the last crash."""
        return self._execution.observer.snapshot(self._execution, self._requests.savepoint_at_end)

    def close(self) -> None:
        """End the job: close its functions and delete its files."""
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
    """Return a harness for a single keyed function.

    Args:
        function: A ``KeyedProcessFunction``, or a function of a record and its context.
        key: Returns the key of a record. By default the record is its own key.
        options: Further arguments of ``JobHarness``.
    """
    env = StreamExecutionEnvironment.get_execution_environment()
    return JobHarness(env.from_collection([]).key_by(key).process(function).uid("function"), **options)


__all__ = ["JobHarness", "SimulatedCrash", "keyed_harness"]
