"""Snapshots of jobs in every state, taken from the test harness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.common import Configuration, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.driver.instructions import JobTraits
from penstock.driver.job_observer import JobFacts, JobObserver
from penstock.driver.job_snapshot import ExecutorSnapshot, JobSnapshot
from penstock.driver.life_cycle import LifeCycle
from penstock.driver.restarts import NoRestart
from penstock.rest.views import VIEWS
from penstock.testing import JobHarness

WORDS = ["a", "bb", "ccc", "a", "dd", "a", "e"]

EXECUTOR = ExecutorSnapshot(
    id="0", address="10.0.0.1:7000", cores=4, slots=2, active_tasks=1, heap_max=1000, heap_used=400, seen_ms=5
)


class Parse(MapFunction):
    def open(self, runtime_context):
        self.parsed = runtime_context.get_metrics_group().counter("parsed")
        self.lengths = runtime_context.get_metrics_group().distribution("lengths")

    def map(self, value):
        self.parsed.inc()
        self.lengths.update(len(value))
        if value == "fail":
            raise ValueError("cannot parse this")
        if "hunter2" in value:
            raise ValueError(f"cannot parse {value}")
        return value


class Last(KeyedProcessFunction):
    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", str))

    def process_element(self, value, ctx):
        self.last.update(value)
        yield value


class ByLength(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return len(value) * 1000


def program(**settings: str) -> Any:
    """Return the stream of a job with three vertices: a source that parses, keyed state, and a rebalanced sink."""
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    timed = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByLength())
    words = env.from_collection([]).name("words").uid("words").map(Parse()).name("parse").uid("parse")
    words = words.assign_timestamps_and_watermarks(timed).uid("timed")
    kept = words.key_by(lambda word: word).process(Last()).name("last").uid("last")
    return kept.rebalance().map(lambda word: word.upper()).name("upper").uid("upper")


def harness(**settings: str) -> JobHarness:
    return JobHarness(program(**settings), parallelism=2, backend="filesystem")


class Created:
    """A job that has not started yet."""

    def __init__(self, job: JobHarness) -> None:
        self.life = LifeCycle(JobTraits(), NoRestart())
        self.driver = job._driver


def created() -> JobSnapshot:
    with harness() as job:
        return JobObserver(JobFacts(id="0" * 32, name="created", parallelism=2)).snapshot(Created(job))


def running(tmp_path: Path) -> JobSnapshot:
    with harness() as job:
        job.push("a", "bb", "ccc").epoch()
        job.savepoint(tmp_path / "savepoints")
        job.push("d", "a").epoch()
        return job.snapshot()


def finished(tmp_path: Path) -> JobSnapshot:
    job = harness()
    job.push("a", "bb").epoch()
    job.stop_with_savepoint(tmp_path / "savepoints")
    return job.snapshot()


def cancelled() -> JobSnapshot:
    with harness() as job:
        job.push("a", "bb").epoch()
        job.cancel()
        return job.snapshot()


def failed() -> JobSnapshot:
    with harness() as job:
        job.push("a", "bb").epoch()
        job.push("fail")
        with pytest.raises(UserFunctionFailed):
            job.epoch()
        return job.snapshot()


def restarting() -> JobSnapshot:
    """Take the snapshot while the job waits for its restart."""
    strategy = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1"}
    with harness(**strategy) as job:
        taken: list[JobSnapshot] = []
        wait = job.clock.wait

        def look(seconds: float) -> None:
            taken.append(job.snapshot())
            wait(seconds)

        job.clock.wait = look  # type: ignore[method-assign]
        job.push("a", "bb").epoch()
        job.push("fail")
        with pytest.raises(UserFunctionFailed):
            job.epoch()
        return taken[-1]


def in_every_state(tmp_path: Path) -> dict[str, JobSnapshot]:
    return {
        "CREATED": created(),
        "RUNNING": running(tmp_path),
        "FINISHED": finished(tmp_path),
        "CANCELED": cancelled(),
        "FAILED": failed(),
        "RESTARTING": restarting(),
        "INITIALIZING": JobSnapshot(id="f" * 32, name="bare", state="INITIALIZING"),
    }


def view(path: str, snapshot: JobSnapshot, query: dict[str, str] | None = None, **params: str) -> Any:
    """Return the answer of a path below `/jobs/:jobid`, as a client decodes it."""
    answer = VIEWS[f"/jobs/:jobid{path}"](snapshot, {"jobid": snapshot.id} | params, query or {})
    return msgspec.json.decode(msgspec.json.encode(answer))


def vertex_id(snapshot: JobSnapshot, uid: str) -> str:
    return next(vertex.id for vertex in snapshot.vertices if vertex.uid == uid)
