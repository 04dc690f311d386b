"""Snapshots of large jobs, of jobs whose tasks are numbered by Spark, and of jobs that change their state."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.manifest import BaseHandle, Manifest
from penstock.common import WatermarkStrategy
from penstock.common.job import JobStatus
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.assignment import RecordedFailure
from penstock.driver.checkpoint_tasks import completed_tasks, summary, unfinished_tasks
from penstock.driver.instructions import JobFailure, JobTraits
from penstock.driver.job_observer import JobFacts, JobObserver
from penstock.driver.job_snapshot import ExceptionSnapshot, ExecutorSnapshot, JobSnapshot
from penstock.driver.life_cycle import LifeCycle, Phase
from penstock.driver.report_totals import ReportTotals
from penstock.driver.restarts import ExponentialDelay, FailureRate, FixedDelay, NoRestart, describe_strategy
from penstock.driver.vertices import subtask_of, vertex_id
from penstock.graph.physical import PhysicalGraph
from penstock.rest.views.shared import status_durations
from penstock.runtime.plan import Chain, ChainedOperator
from penstock.spark import executor_watch
from penstock.spark.executor_watch import ExecutorWatch
from penstock.state.blocks import Blocks, blocks_for
from penstock.testing import JobHarness


class Itself(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value


def chain(number: int, level: int, parallelism: int, max_parallelism: int = 128) -> Chain:
    operator = ChainedOperator(
        uid=f"op{number}", name=f"op{number}", kind="Map", parent=None, keyed=True, pickled=b"", output_type=None
    )
    made = Chain(id=number, level=level, parallelism=parallelism, max_parallelism=max_parallelism)
    made.add(operator, own_parallelism=False)
    if level == 0:
        made.source_uid, made.source_name = f"source{number}", f"source{number}"
    return made


def manifest(
    bases: dict[str, dict[int, BaseHandle]], since: dict[str, dict[int, int]], blocks: dict[str, Blocks]
) -> Manifest:
    return Manifest(
        format=4,
        lineage="",
        id=1,
        batch=None,
        parent=b"",
        token="",
        timestamp=0,
        ended=False,
        operators={},
        committables=[],
        records={},
        spark_log={},
        log_index={},
        bases=bases,
        since_base=since,
        blocks=blocks,
    )


@given(
    st.integers(1, 300).flatmap(lambda most: st.tuples(st.just(most), st.integers(1, most))),
    st.lists(st.integers(0, 10**9), min_size=16, max_size=16),
    st.lists(st.integers(0, 10**6), min_size=16, max_size=16),
)
def test_state_of_subtasks_adds_up_to_the_state_of_the_operator(sizes, bases, deltas):
    most, parallelism = sizes
    blocks = blocks_for(parallelism, most)
    based = {
        blocks.groups(n).start: BaseHandle(id=1, name="b", size=bases[n % 16], end=blocks.groups(n).stop)
        for n in blocks.numbers
    }
    stored = manifest({"op0": based}, {"op0": {n: deltas[n % 16] for n in blocks.numbers}}, {"op0": blocks})
    graph = PhysicalGraph(chains=[chain(0, 1, parallelism, most)], edges=[], levels=[[], [0]])
    (task,) = completed_tasks(graph, 1, stored, {}, {}, 0, 0)
    assert task.state_bytes == stored.state_bytes("op0")
    assert task.state.min >= 0
    assert (task.subtasks, task.acknowledged) == (parallelism, parallelism)


@given(st.lists(st.integers(0, 10**12), min_size=1))
def test_a_summary_is_ordered_and_within_its_bounds(values):
    found = summary(values)
    ordered = [found.min, found.p50, found.p90, found.p95, found.p99, found.p999, found.max]
    assert ordered == sorted(ordered)
    assert (found.min, found.max) == (min(values), max(values))
    assert found.min <= found.avg <= found.max


def test_a_source_has_a_fixed_parallelism_however_many_tasks_read_it():
    source = chain(0, 0, 0)
    assert [subtask_of(source, task, 3) for task in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    graph = PhysicalGraph(chains=[source, chain(1, 1, 2)], edges=[], levels=[[0], [1]])
    tasks = unfinished_tasks(graph, 3, ReportTotals(), {(0, 5): 7, (1, 1): 9}, 1000)
    assert [(task.subtasks, task.missing) for task in tasks] == [(3, []), (2, [0])]
    assert [(task.latest_ack_ms, task.duration_ms) for task in tasks] == [(1007, 7), (1009, 9)]


def test_a_vertex_that_has_not_acknowledged_has_no_time_of_its_last_acknowledgement():
    graph = PhysicalGraph(chains=[chain(0, 0, 0), chain(1, 1, 2)], edges=[], levels=[[0], [1]])
    tasks = unfinished_tasks(graph, 3, ReportTotals(), {(0, 0): 7}, 1000)
    assert [(task.latest_ack_ms, task.duration_ms) for task in tasks] == [(1007, 7), (-1, 0)]


@pytest.mark.parametrize("records", [(5000, 100), (100, 5000)])
def test_the_watermark_of_a_source_is_the_lowest_of_the_tasks_that_count_for_a_subtask(records):
    env = StreamExecutionEnvironment.get_execution_environment()
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
    stream = env.from_collection([]).uid("in").assign_timestamps_and_watermarks(times).uid("timed")
    with JobHarness(stream.key_by(str).map(str).uid("text"), parallelism=1) as job:
        job.set_partitions(2)
        job.push(*records).epoch()
        assert job.snapshot().vertices[0].subtasks[0].watermark == 99


def test_a_job_that_waits_for_slots_does_not_run():
    now = [1.0]
    observer = JobObserver(JobFacts(id="a" * 32, name="job"), clock=lambda: now[0])
    env = StreamExecutionEnvironment.get_execution_environment()
    life = LifeCycle(JobTraits(bounded=False), NoRestart(), observer.changed)
    with JobHarness(env.from_collection([]).uid("in").map(str).uid("text")) as job:

        def tasks_at(second: float, change: Callable[[], object]) -> dict[str, int]:
            now[0] = second
            change()
            return observer.snapshot(SimpleNamespace(life=life, driver=job._driver)).tasks_since_ms

        tasks_at(2, life.start)
        tasks_at(3, lambda: life.recovered(None))
        assert tasks_at(3, life.query_started) == {"CREATED": 1000, "INITIALIZING": 2000, "RUNNING": 3000}
        waiting = tasks_at(4, lambda: observer.waits_for_slots(True))
        assert waiting == {"CREATED": 1000, "INITIALIZING": 2000, "SCHEDULED": 4000}
        running = tasks_at(9, lambda: observer.waits_for_slots(False))
        assert running == waiting | {"RUNNING": 9000}
        snapshot = observer.snapshot(SimpleNamespace(life=life, driver=job._driver))
    assert status_durations(snapshot, 10_000) == {
        "CREATED": 1000,
        "INITIALIZING": 2000,
        "SCHEDULED": 5000,
        "DEPLOYING": -1,
        "RUNNING": 1000,
    }


def test_the_physical_memory_of_an_executor_is_known_before_the_first_epoch():
    env = StreamExecutionEnvironment.get_execution_environment()
    executor = ExecutorSnapshot(id="driver", physical_memory=17)
    observer = JobObserver(JobFacts(id="a" * 32, name="job"), executors=lambda: [executor])
    with JobHarness(env.from_collection([]).uid("in").map(str).uid("text")) as job:
        observed = SimpleNamespace(life=LifeCycle(JobTraits(), NoRestart()), driver=job._driver)
        assert observer.snapshot(observed).executors == [executor]


def test_failures_of_earlier_attempts_keep_their_attempt():
    observer = JobObserver(JobFacts(id="a" * 32, name="job", attempt=2))
    env = StreamExecutionEnvironment.get_execution_environment()
    before = RecordedFailure(
        number=1,
        attempt=1,
        exception=ExceptionSnapshot(name="KeyError"),
        from_user=True,
        identity="",
        progressed=False,
        counts=True,
    )
    observer.failed_before([before])
    with JobHarness(env.from_collection([]).uid("in").map(str).uid("text")) as job:
        observed = SimpleNamespace(life=LifeCycle(JobTraits(), NoRestart()), driver=job._driver)
        observer.failed(ValueError("x"), observed)
        assert [(each.name, each.attempt) for each in observer.snapshot(observed).exceptions] == [
            ("KeyError", 1),
            ("ValueError", 2),
        ]


def test_the_executors_of_a_dead_jvm_are_gone(monkeypatch):
    answers = [[ExecutorSnapshot(id="0")]]
    seen: list[int] = []
    watch = ExecutorWatch(None)

    def query(spark):
        seen.append(len(watch.executors()))
        if not answers:
            raise ConnectionError("the JVM is gone")
        return answers.pop()

    monkeypatch.setattr(executor_watch, "list_executors", query)
    monkeypatch.setattr(executor_watch, "_SECONDS", 0)
    watch._run()
    assert (seen, watch.executors()) == ([0, 1], [])


def test_the_id_of_a_vertex_depends_on_its_first_uid_only():
    first, second = chain(1, 1, 2), chain(1, 1, 4)
    assert vertex_id(first) == vertex_id(second)
    assert vertex_id(first) != vertex_id(chain(2, 1, 2))
    assert vertex_id(chain(1, 0, 0)) != vertex_id(first)


def test_a_job_with_many_sources_tasks_counts_each_record_once():
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).uid("in").key_by(lambda value: value).map(str).uid("text")
    with JobHarness(stream, parallelism=2) as job:
        job.set_partitions(5)
        job.push(*range(50)).epoch()
        source = job.snapshot().vertices[0]
    assert (source.parallelism, len(source.subtasks)) == (2, 2)
    assert sum(each.records_in for each in source.subtasks) == source.totals.records_in == 50
    assert sum(value or 0 for value in source.metrics["in.numRecordsIn"]) == 50


def test_a_snapshot_of_two_thousand_subtasks_stays_small():
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).uid("in").key_by(lambda value: value).map(str).uid("text")
    with JobHarness(stream, parallelism=2000, max_parallelism=2048) as job:
        for _ in range(3):
            job.push(*range(100)).epoch()
        data = msgspec.json.encode(job.snapshot())
    assert len(data) < 2_000_000
    assert sum(len(vertex.subtasks) for vertex in msgspec.json.decode(data, type=JobSnapshot).vertices) == 4000


def test_snapshots_can_be_taken_from_other_threads_while_epochs_run():
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).uid("in").key_by(lambda value: value).map(str).uid("text")
    errors: list[BaseException] = []
    seen: list[int] = []
    over = threading.Event()
    with JobHarness(stream, parallelism=4) as job:

        def look() -> None:
            try:
                while not over.is_set():
                    snapshot = job.snapshot()
                    seen.append(snapshot.vertices[1].totals.records_in)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(100):
            job.push(*range(10)).epoch()
        job.rescale({"text": 2})
        job.push(*range(10)).epoch()
        over.set()
        for thread in threads:
            thread.join(60)
        assert job.snapshot().vertices[1].totals.records_in == 1010
    assert not errors
    assert all(count % 10 == 0 for count in seen)


def test_every_change_of_phase_or_status_is_reported_once():
    changes: list[tuple[Phase, JobStatus]] = []
    life = LifeCycle(JobTraits(bounded=False), FixedDelay(1, 0), lambda phase, status: changes.append((phase, status)))
    life.start()
    life.recovered(None)
    life.query_started()
    life.batch_ready(0)
    life.epoch_done()
    life.failed(JobFailure(0))
    life.delay_over()
    life.recovered(1)
    life.cancel_requested()
    life.query_ended()
    life.ended()
    assert changes == [
        (Phase.RECOVERING, JobStatus.RUNNING),
        (Phase.RUNNING, JobStatus.RUNNING),
        (Phase.RESTARTING, JobStatus.RESTARTING),
        (Phase.RECOVERING, JobStatus.RUNNING),
        (Phase.RUNNING, JobStatus.RUNNING),
        (Phase.RUNNING, JobStatus.CANCELLING),
        (Phase.ENDING, JobStatus.CANCELLING),
        (Phase.ENDED, JobStatus.CANCELED),
    ]


@pytest.mark.parametrize("strategy", [NoRestart(), FixedDelay(3, 1000), FailureRate(2, 5, 7), ExponentialDelay()])
def test_every_restart_strategy_has_a_description(strategy):
    assert describe_strategy(strategy)


@pytest.mark.parametrize(("arguments", "executor"), [(["--executor-id", "17"], "17"), ([], "driver")])
def test_a_worker_finds_the_executor_among_its_ancestors(arguments, executor):
    child = "from penstock.spark.worker_place import worker_place; print(worker_place().executor, end='')"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    done = subprocess.run([sys.executable, "-c", parent, *arguments], check=True, capture_output=True, text=True)
    assert done.stdout == executor
