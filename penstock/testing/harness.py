"""The harness: a whole program, or one function, run epoch by epoch in this process.

env = StreamExecutionEnvironment.get_execution_environment()
job = JobHarness(env.from_collection([]).key_by(lambda v: v).process(Count()))
job.push("a", "b", "a")
job.epoch()
assert job.output == [("a", 1), ("b", 1), ("a", 2)]
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

import msgspec

from penstock.checkpoint.manifest import Manifest, load
from penstock.common.options import check_values
from penstock.common.options.program import MAX_PARALLELISM, PARALLELISM
from penstock.common.pickling import Frozen
from penstock.common.program import Program
from penstock.common.watermark_strategy import Watermark
from penstock.connectors.driver_sinks import CollectSink
from penstock.connectors.flow_settings import flow_if_asked
from penstock.connectors.source import at_end
from penstock.datastream.data_stream import DataStream
from penstock.datastream.environment import StreamExecutionEnvironment
from penstock.driver.checkpoint_settings import checkpoint_interval, restart_strategy
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.driver.epochs import EpochDriver, EpochParameters, EpochStatistics, Settings
from penstock.driver.error_identity import error_identity
from penstock.driver.event_time import moved_backwards
from penstock.driver.flow_control import FlowControl
from penstock.driver.metrics import JobMetrics
from penstock.driver.restarts import Completed, Failed, Restart, Restarts, Resumed
from penstock.driver.statistics import CheckpointLog
from penstock.errors import PenstockError
from penstock.graph.physical import build
from penstock.runtime.event_time import Times
from penstock.runtime.moment import Timestamped
from penstock.runtime.watermarks import GREATEST, LEAST
from penstock.savepoint.format import check_savepoint_directory, savepoint_storage
from penstock.savepoint.restoring import RecoveryClaimMode, RestoreSettings, restore_savepoint
from penstock.savepoint.saving import make_savepoint
from penstock.state.backend_settings import backend_name
from penstock.state.backends import Backend
from penstock.state.descriptors import AggregatingState, ListState, MapState, ReducingState
from penstock.state.entries import stored_keys
from penstock.state.key_groups import block_count
from penstock.state.keys import decode_key, encode_key
from penstock.state.overlay import TIMER_KINDS, Overlay
from penstock.state.replica import Replicas
from penstock.state.storage import DriverStorage, LocalStorage, Storage
from penstock.state.ttl import timed_name
from penstock.testing.credits import Credits
from penstock.testing.drawing import DrawnSource
from penstock.testing.engine import LocalEngine
from penstock.testing.inside import from_inside
from penstock.testing.late import Late
from penstock.testing.pace import Pace
from penstock.testing.watching import WatermarkMovedBackwards

_POSITIONS = "offsets/0"


class SimulatedCrash(BaseException):
    """Raised inside an epoch where a test asked for a crash. Not an Exception: user code must not catch it."""


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
        self._commits_late = commits_late
        self.output: list[Any] = []
        """Everything the stream gave, epoch after epoch."""
        env = stream if isinstance(stream, StreamExecutionEnvironment) else stream.get_execution_environment()
        self._sink = CollectSink()
        if isinstance(stream, DataStream):
            stream._end("Collect", self._sink)
        self._directory = tempfile.mkdtemp(prefix="penstock-harness-")
        engine, in_driver = backend_name(backend)
        self._backend = Backend(engine, [f"{self._directory}/replicas"])
        if settings is None and checkpoint_interval(env.get_configuration()) <= 0:
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
        logical = env._graph
        config = env.get_configuration()
        check_values(config.to_dict())
        self._graph = build(
            logical,
            parallelism or config.get(PARALLELISM) or 1,
            max_parallelism or config.get(MAX_PARALLELISM),
            env.is_chaining_enabled(),
            env._job_parameters,
            batch=env._is_batch(),
            own_modules=() if main is None else (main.__name__,),
        )
        self._batch = env._is_batch()
        self._program = Program(self._graph.program)
        self._sinks = logical.sinks()
        self._derived = logical.derived_uids()
        self._log: dict[str, list[Any]] = {}
        self._partitions: dict[str, int] = {}
        self._drawn: dict[str, DrawnSource] = {}
        for node in logical.nodes.values():
            if node.source is not None:
                records = node.source.origin if node.source.reader == "chunks" else []
                self._log[node.uid] = list(records)
                self._partitions[node.uid] = 1
                if node.source.reader == "splits":
                    chain = next(chain for chain in self._graph.sources() if chain.source_uid == node.uid)
                    self._drawn[node.uid] = DrawnSource(chain, parallelism or 1, self._program)
        self._names = {node.name: node.uid for node in logical.nodes.values()}
        self._take: dict[str, int] = {}
        self._pace = Pace(self._wait)
        self._flow = flow_if_asked(config)
        self._credits = Credits(self.backlog)
        self._clock_ms: int | None = None
        self._passed_ms = 0.0
        """What went by on the clock that the test set: a jump is not in it."""
        self._restarts = Restarts(restart_strategy(config, checkpointing=False))
        self.last_failure: Exception | None = None
        self._crash_point: str | None = None
        self._passed: list[str] = []
        self._times: Times = {}
        """Where event time stood at the last checkpoint that was looked at."""
        self.epochs_run = 0
        self._started = False
        self._engine: LocalEngine
        self._driver: EpochDriver
        self._start()

    def _start(self) -> None:
        if self._started:
            self._driver.abandon()
        self._open_engine()
        self._driver = EpochDriver(
            self._graph,
            self.storage,
            self._settings,
            lambda parameters: self._engine.execute(parameters),
            self._sinks,
            self._driver_probe,
            prepare=lambda parameters, chains: self._engine.prepare(parameters, chains),
            clock=lambda: self._now() / 1000,
            monotonic=lambda: self._elapsed() / 1000,
            wait=self._wait,
            executor=Late() if self._commits_late else None,
            flow=None if self._flow is None else FlowControl(self._flow, self._log, self._credits),
        )
        if self._restore is not None:
            driver = self._driver
            restore_savepoint(self.storage, self._graph, driver.sources, driver.lineage, driver.token, self._restore)
        self._recover()

    def _open_engine(self) -> None:
        if self._started:
            self._engine.abandon()
        self._engine = LocalEngine(
            self._graph, self._program, self.storage, self._backend, self._pending, self._probe, self._pace
        )
        self._started = True

    def _now(self) -> float:
        return time.time() * 1000 if self._clock_ms is None else self._clock_ms

    def _elapsed(self) -> float:
        return time.monotonic() * 1000 if self._clock_ms is None else self._passed_ms

    def _wait(self, seconds: float) -> None:
        """Where a driver would wait, the harness's clock goes on at once."""
        if self._clock_ms is not None:
            self._clock_ms += round(seconds * 1000)
            self._passed_ms += seconds * 1000

    def _recover(self) -> None:
        self._driver.start_sinks()
        if self._driver.recover() is not None:
            self._restarts.handle(Resumed())
        self._check_watermarks()
        self._stand_where_saved()
        for uid, log in self._log.items():
            if uid in self._drawn:
                while len(log) < self._position(uid):
                    # What the last checkpoint holds and no more: the source may have changed its mind about the rest.
                    self._draw(0)
            # What another harness on the same storage has read is not here, and will not be asked for.
            log.extend([None] * (self._position(uid) - len(log)))

    # -- input -----------------------------------------------------------------------------------------------------

    def push(self, *records: Any, source: str | None = None, timestamp: int | None = None) -> JobHarness:
        """Add records to a source; `source` is its uid or name, needed only where there are several.

        With a `timestamp` they have this event time from the start, as from a source that knows it.
        """
        uid = self._source(source)
        if timestamp is not None:
            self._give_time(uid)
            records = tuple(Timestamped(record, timestamp) for record in records)
        self._log[uid].extend(records)
        return self

    def push_watermark(self, timestamp: int, source: str | None = None) -> JobHarness:
        """Let the source say, at this place among its records, that event time has come this far."""
        uid = self._source(source)
        self._give_time(uid)
        self._log[uid].append(Watermark(timestamp))
        return self

    def set_clock(self, milliseconds: int) -> JobHarness:
        """Let time pass until the machine's clock shows this. If a timer or an idle source is due by then, run the
        epoch for it. A clock that is set back is as one that is corrected: no time passes."""
        if self._clock_ms is not None:
            self._passed_ms += max(0, milliseconds - self._clock_ms)
        return self.jump_clock(milliseconds)

    def jump_clock(self, milliseconds: int) -> JobHarness:
        """Let the machine's clock show this from now on, forward or back, although no time passes: as when a time
        server or an operator corrects it. If a timer is due by then, run the epoch for it."""
        first, self._clock_ms = self._clock_ms is None, milliseconds
        if first:
            # What the machine's own clocks showed before no longer counts.
            self._passed_ms = milliseconds
            self._driver.forget_clock()
        if self._driver.wakeup_is_due:
            self._run(0, ends_input=False)
        return self

    @property
    def next_wakeup(self) -> int | None:
        """When an epoch would run even without records, in ms."""
        return self._driver.next_wakeup

    def set_pace(self, seconds: float, operator: str) -> JobHarness:
        """Let every record take so long in this operator or source, by uid or name. The clock is then the test's own:
        an epoch takes what its records take at the paces that were set, and nothing else."""
        if self._clock_ms is None:
            self.set_clock(0)
        self._pace.set(self._names.get(operator, operator), seconds)
        return self

    def _give_time(self, uid: str) -> None:
        chain = next(chain for chain in self._graph.sources() if chain.source_uid == uid)
        if not chain.gives_time:
            chain.gives_time = self._graph.timed = True
            self._start()

    def set_partitions(self, count: int, source: str | None = None) -> None:
        """How many input partitions the source has from the next epoch on."""
        self._partitions[self._source(source)] = count

    def epoch(self, records: int | None = None) -> EpochStatistics | None:
        """Run one epoch over what waits, at most `records` of each source, and in a program with flow control at most
        its credits. None if a crash was asked for and came."""
        return self._run(records, ends_input=False)

    def epochs(self, records: int) -> JobHarness:
        """Epochs of at most `records` each, until nothing waits."""
        while self._anything_waits(records):
            self.epoch(records)
        return self

    def end(self) -> JobHarness:
        """End the input: run what waits, then the epoch that flushes every operator; again after a crash."""
        while (waits := self._anything_waits(None)) or self._may_get_more():
            if waits:
                self.epoch()
        while self._driver.last is None or not self._driver.last.ended:
            self._run(None, ends_input=True)
        return self

    def run(self, records: int | None = None) -> list[Any]:
        """The whole program: epochs until the input is used up, then the end. Returns the output.

        In the runtime mode BATCH, and without `records`, it is one epoch and no checkpoint, as on Spark.
        """
        if records is None and self._batch and self._driver.last is None and self._restore is None:
            self._anything_waits(None)
            while self._driver.last is None:
                self._driver.single_epoch = True
                self._run(None, ends_input=True)
            return self.output
        if records is not None:
            self.epochs(records)
        self.end()
        return self.output

    # -- savepoints ------------------------------------------------------------------------------------------------

    def savepoint(self, directory: str | os.PathLike[str]) -> str:
        """Make a savepoint of the last checkpoint below this directory, and give its path. The job goes on."""
        storage = savepoint_storage(os.fspath(directory))
        check_savepoint_directory(storage)
        if self._driver.last is None:
            self.epoch(0)
        with self._driver.pinned_last() as (manifest, version):
            return make_savepoint(
                storage,
                "harness",
                self._graph,
                self.storage,
                self._with_positions(manifest),
                version,
                self._derived,
            )

    def _with_positions(self, manifest: Manifest) -> Manifest:
        """With a log as Spark would have written it: where Python sources are that no record waits of."""
        if manifest.batch is not None:
            return manifest
        lines = [
            json.dumps(self._drawn[uid].positions) if uid in self._drawn and not self._waiting(uid) else "-"
            for uid in self._driver.sources
        ]
        log = {} if set(lines) == {"-"} else {_POSITIONS: "\n".join(["v1", "{}", *lines]).encode()}
        return msgspec.structs.replace(manifest, spark_log=log, log_index=dict.fromkeys(log, manifest.id))

    def _stand_where_saved(self) -> None:
        """Let Python sources go on where they were in the savepoint that this lineage began with."""
        last = self._driver.last
        if last is None or last.batch is not None or _POSITIONS not in last.log_index:
            return
        first = load(self.storage, last.log_index[_POSITIONS])[0]
        for uid, line in zip(first.sources, first.spark_log[_POSITIONS].decode().split("\n")[2:], strict=True):
            if line != "-" and not self._log[uid]:
                self._drawn[uid].positions = json.loads(line)
                self._log[uid].extend([None] * first.records.get(uid, 0))

    def cancel(self) -> None:
        """End the job as `JobClient.cancel` does: nothing of the epoch under way is visible, and sinks show and abort
        what they hold. Raises what they fail with."""
        try:
            self._driver.close()
        finally:
            self._driver.finish_sinks()

    def stop_with_savepoint(self, directory: str | os.PathLike[str], drain: bool = False) -> str:
        """End the job with a savepoint. `drain`: end its input first, so that all timers and windows fire."""
        check_savepoint_directory(savepoint_storage(os.fspath(directory)))
        if drain:
            self._run(None, ends_input=True)
        path = self.savepoint(directory)
        if not drain:
            self._driver.close()
        self.close()
        return path

    # -- failures --------------------------------------------------------------------------------------------------

    def rescale(self, parallelism: int | Mapping[str, int]) -> JobHarness:
        """From the next epoch on, other numbers of subtasks, as `JobClient.rescale`."""
        self._driver.rescale(parallelism)
        return self

    def crash(self) -> None:
        """Lose every process of the job and start again from the last checkpoint."""
        self._start()

    def crash_at(self, point: str) -> None:
        """Crash when the next epoch reaches a point: `source.processed`, `level1.snapshot`, `driver.published`, …

        An epoch that does not reach it is an error, which says what points there are.
        """
        self._crash_point = point

    @property
    def restarts(self) -> int:
        """How often the program's restart strategy has restarted it after a failure."""
        return self._restarts.number

    def _restart_after(self, error: Exception) -> None:
        """Go on from the last checkpoint in the same driver, if the program's restart strategy says so."""
        self.last_failure = error
        if isinstance(error, PenstockError) and not error.retryable:
            raise error
        from_user = isinstance(error, UserFunctionFailed)
        decision = self._restarts.handle(Failed(int(self._elapsed()), from_user, error_identity(error)))
        if not isinstance(decision, Restart):
            raise error
        self._wait(decision.delay_ms / 1000)
        self._open_engine()
        try:
            self._recover()
        except Exception as again:  # a sink may fail again when it is to commit again
            self._restart_after(again)
        self._driver.metrics.restarts = self.restarts

    def lose_replicas(self) -> None:
        """Delete every local replica; they are caches."""
        shutil.rmtree(f"{self._directory}/replicas", ignore_errors=True)

    # -- looking ---------------------------------------------------------------------------------------------------

    def state(self, name: str, key: Any, operator: str | None = None) -> Any:
        """Committed state of a key: a value, a list, or a dict. `operator` is a uid or name, if several hold it."""
        with self._reading(name, operator) as (overlay, _):
            overlay.key = encode_key(key)
            return from_inside(self._program, lambda: _plain(overlay._states[name]))

    def states(self, name: str, operator: str | None = None) -> dict[Any, Any]:
        """Committed state of every key that has any, by key."""
        with self._reading(name, operator) as (overlay, replicas):
            keys: set[bytes] = set()
            timed = name in overlay.ttl.forms()
            for group in range(overlay.max_parallelism):
                reader = replicas.reader(group)
                if reader is not None:
                    keys.update(stored_keys(reader, group, name))
                    if timed:
                        keys.update(stored_keys(reader, group, timed_name(name)))
            result = {}
            for key in sorted(keys):
                overlay.key = key
                held = from_inside(self._program, lambda: _plain(overlay._states[name]))
                if timed and held in (None, [], {}):
                    # Stored, but expired.
                    keys.discard(key)
                else:
                    result[decode_key(key)] = held
            if len(result) < len(keys):
                raise PenstockError(
                    f"Some of the {len(keys)} keys of '{name}' are equal in Python, as 1 and True: ask for each."
                )
            return result

    def operator_state(self, name: str, operator: str | None = None) -> list[Any]:
        """Committed operator state, one list or dict per subtask. `operator` is a uid or name, if several hold it.

        A union list has the elements that each subtask wrote. Raw state, under "raw operator state", and that of a
        sink's writers, under "writers", is bytes.
        """
        uid = None if operator is None else self._names.get(operator, operator)
        last = self._driver.last
        held = {} if last is None else {each: of.operator_state for each, of in last.operators.items()}
        found = [each for each, states in held.items() if name in states and uid in (None, each)]
        if len(found) != 1:
            known = {each: sorted(states) for each, states in held.items() if states}
            raise PenstockError(
                f"{len(found)} operators hold operator state '{name}'; there are {known}. Say which: operator=uid."
            )
        chain = next(chain for chain in self._graph.chains if any(op.uid == found[0] for op in chain.operators))
        run = self._engine.opened(chain.id, self._parameters())
        holder = next(operator for operator in run.operators if operator.uid == found[0])
        shares = held[found[0]][name].by_subtask
        assert last is not None
        parallelism = last.operators[found[0]].parallelism
        elements = [shares[subtask % len(shares)] for subtask in range(parallelism)]
        if not holder.keeps_state:
            return elements
        decoded: list[Any] = from_inside(
            self._program, lambda: [holder.store.decode(name, share) for share in elements]
        )
        return decoded

    def metrics(self) -> JobMetrics:
        """Counted in completed epochs since the start or the last crash, as on Spark since the driver started."""
        return self._driver.metrics.read()

    @property
    def checkpoints(self) -> CheckpointLog:
        """What the driver knows of its checkpoints, since the start or the last crash."""
        return self._driver.checkpoints

    def timers(self, operator: str | None = None) -> list[tuple[int, Any, str]]:
        """(time, key, kind) of every timer that is set, in order; `operator` is a uid or name, if several have any."""
        found = []
        with self._reading(None, operator) as (overlay, _):
            for kind in TIMER_KINDS:
                timers = overlay.timers[kind]
                least = dict.fromkeys(range(block_count(overlay.max_parallelism)), LEAST)
                timers.begin(least, range(overlay.max_parallelism))
                found += [(time, decode_key(key), kind) for time, key, _ in timers.due(GREATEST)]
        return sorted(found, key=lambda timer: (timer[0], timer[2], repr(timer[1])))

    @property
    def watermark(self) -> int:
        """The least watermark of all tasks at the last checkpoint."""
        times = {} if self._driver.last is None else self._driver.last.times
        return min((watermark for each in times.values() for watermark in each.subtasks), default=LEAST)

    def watermark_of(self, operator: str) -> int:
        """The least watermark of an operator's subtasks at the last checkpoint; by uid or name."""
        times = {} if self._driver.last is None else self._driver.last.times
        time = times.get(self._names.get(operator, operator))
        return LEAST if time is None else min(time.subtasks, default=LEAST)

    @property
    def checkpoint(self) -> int:
        """Number of the last completed checkpoint; 0 before the first."""
        return 0 if self._driver.last is None else self._driver.last.id

    def close(self) -> None:
        """End the job: close its functions, delete its files."""
        try:
            self._engine.close()
        finally:
            for drawn in self._drawn.values():
                drawn.source.close()
            self._driver.stop()
            self.storage.close()
            self._remove_files()

    def __enter__(self) -> JobHarness:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _source(self, name: str | None) -> str:
        if name is None:
            if len(self._log) != 1:
                raise PenstockError(
                    f"The program has {len(self._log)} sources: say which with source=, by uid or name."
                )
            return next(iter(self._log))
        uid = name if name in self._log else self._names.get(name, name)
        if uid not in self._log:
            raise PenstockError(f"The program has no source '{name}'; it has {sorted(self._log)}.")
        return uid

    def _position(self, uid: str) -> int:
        return 0 if self._driver.last is None else self._driver.last.records.get(uid, 0)

    def _waiting(self, uid: str) -> int:
        return len(self._log[uid]) - self._position(uid)

    def _anything_waits(self, records: int | None) -> bool:
        self._draw(records)
        return any(self._waiting(uid) for uid in self._log)

    def _may_get_more(self) -> bool:
        """Whether a source that ends by itself has not done so; it waits a moment itself, when it is asked for more."""
        return any(drawn.source.may_end and not at_end(drawn.source, drawn.positions) for drawn in self._drawn.values())

    def _draw(self, records: int | None) -> None:
        """Let Python sources add to their logs what the next epoch may read."""
        for uid, drawn in self._drawn.items():
            limit = self._limit(uid, records)
            while limit is None or self._waiting(uid) < limit:
                more = drawn.draw(None if limit is None else limit - self._waiting(uid))
                self._log[uid].extend(more)
                if not more or not drawn.source.bounded:
                    break

    def _limit(self, uid: str, records: int | None) -> int | None:
        """What an epoch may have of a source, for which `records` were asked."""
        granted = self._credits.granted.get(uid)
        return records if granted is None else granted if records is None else min(granted, records)

    def backlog(self, source: str | None = None) -> int | None:
        """How many records wait in a source; None where it cannot say."""
        uid = self._source(source)
        waiting = self._waiting(uid)
        if uid not in self._drawn:
            return waiting
        behind = self._drawn[uid].source.backlog(self._drawn[uid].positions)
        return None if behind is None else waiting + behind

    def _pending(self, uid: str) -> list[list[Any]]:
        start = self._position(uid)
        records = self._log[uid][start : start + self._take[uid]]
        count = self._partitions[uid]
        size = -(-len(records) // count) or 1
        return [records[index * size : (index + 1) * size] for index in range(count)]

    def _run(self, records: int | None, ends_input: bool) -> EpochStatistics | None:
        if not ends_input:
            self._draw(records)
        limits = {uid: self._limit(uid, records) for uid in self._log}
        self._take = {uid: self._waiting(uid) if limit is None else limit for uid, limit in limits.items()}
        self._passed = []
        try:
            while True:
                try:
                    statistics = self._driver.run_epoch(None, {}, ends_input)
                    break
                except Exception as error:  # the user's sinks may raise anything
                    self._restart_after(error)
            self._restarts.handle(Completed())
        except SimulatedCrash:
            self._crash_point = None
            self._start()
            return None
        finally:
            while not self._sink.results.empty():
                self.output.extend(self._sink.results.get())
        if self._crash_point is not None:
            points = ", ".join(dict.fromkeys(self._passed))
            raise PenstockError(f"The epoch was to crash at '{self._crash_point}', but passed only {points}.")
        self._check_watermarks()
        self.epochs_run += 1
        return statistics

    def _check_watermarks(self) -> None:
        times = {} if self._driver.last is None else self._driver.last.times
        moves = [*self._engine.moves_backwards, *moved_backwards(self._times, times)]
        self._times = times
        if moves:
            raise WatermarkMovedBackwards(moves)

    def _probe(self, point: str) -> None:
        self._passed.append(point)
        if point == self._crash_point:
            raise SimulatedCrash(point)

    def _driver_probe(self, point: str) -> None:
        self._probe(f"driver.{point}")

    def _parameters(self) -> EpochParameters:
        return EpochParameters(
            self._driver.next_number,
            False,
            self._driver.version,
            "",
            self._driver.lineage,
            self._backend,
            self._settings.inline_bytes,
            timestamp=self._driver.epoch_clock(),
            scale=self._driver.scale,
        )

    @contextmanager
    def _reading(self, state: str | None, operator: str | None) -> Iterator[tuple[Overlay, Replicas]]:
        """The overlay of the operator that holds a state, over what is committed."""
        uid = None if operator is None else self._names.get(operator, operator)
        heads = [(chain, chain.operators[0]) for chain in self._graph.chains if chain.operators]
        parameters = self._parameters()
        runs = [
            self._engine.opened(chain.id, parameters) for chain, head in heads if head.keyed and uid in (None, head.uid)
        ]
        overlays = [
            (run, run.overlay)
            for run in runs
            if run.overlay is not None and (state is None or state in run.overlay._states)
        ]
        if len(overlays) != 1:
            what = "keyed state" if state is None else f"a state '{state}'"
            known = {run.chain.operators[0].uid: sorted(run.overlay._states) for run in runs if run.overlay is not None}
            raise PenstockError(f"{len(overlays)} operators hold {what}; there are {known}. Say which: operator=uid.")
        run, overlay = overlays[0]
        access = self._engine.state_access(parameters)
        # What has expired by now is not there, though it may be stored.
        run.moment.processing_time = parameters.timestamp
        run.operators[0].watermark = self.watermark_of(run.chain.operators[0].uid)
        replicas = access.replicas(run.chain.operators[0].uid, run.chain.max_parallelism)
        try:
            overlay.begin(0, replicas)
            yield overlay, replicas
        finally:
            replicas.close()
            overlay.release()


def _plain(state: Any) -> Any:
    """What a state holds for the current key."""
    if isinstance(state, MapState):
        return dict(state.items())
    if isinstance(state, ListState):
        return list(state)
    held = state.get() if isinstance(state, (ReducingState, AggregatingState)) else state.value()
    return held.thaw() if type(held) is Frozen else held


def keyed_harness(function: Any, key: Callable[[Any], Any] = lambda value: value, **options: Any) -> JobHarness:
    """One keyed function alone: a KeyedProcessFunction, or a plain function of (value, context)."""
    env = StreamExecutionEnvironment.get_execution_environment()
    return JobHarness(env.from_collection([]).key_by(key).process(function).uid("function"), **options)
