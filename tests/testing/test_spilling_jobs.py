"""Jobs whose epochs change more state than fits in memory produce the same results as with unlimited memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.driver.epoch_settings import Settings
from penstock.state import timers as timers_module
from penstock.state.overlay import OVERLAY_BYTES, Overlay
from penstock.testing import JobHarness

BACKENDS = ["memory", "filesystem"]
# Key, number, event time: 3,000 records in a dozen buffers, with recurring keys.
RECORDS = [(f"key {number * 7919 % 613}", number, number * 3 - number * 31 % 50) for number in range(3_000)]


def key(record):
    return record[0]


class Everything(KeyedProcessFunction):
    """Uses every kind of state and both kinds of timers, and reverts some of its changes."""

    def open(self, context):
        self.count = context.get_state(ValueStateDescriptor("count", int))
        self.seen = context.get_list_state(ListStateDescriptor("seen", int))
        self.last = context.get_map_state(MapStateDescriptor("last", str, int))
        self.total = context.get_reducing_state(ReducingStateDescriptor("total", lambda a, b: a + b, int))

    def process_element(self, value, ctx):
        _, number, time = value
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.seen.add(number)
        self.last.put(str(number % 5), number)
        self.total.add(number)
        if count % 4 == 0:
            self.last.remove("1")
            self.seen.update(list(self.seen.get())[-2:])
        if count % 7 == 0:
            self.last.clear()
            self.count.clear()
        ctx.timer_service().register_event_time_timer(time // 1000 * 1000 + 500)
        if number % 11 == 0:
            ctx.timer_service().delete_event_time_timer(time // 1000 * 1000 + 500)
        yield value[0], count, sorted(self.last.items()), self.total.get()

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, list(self.seen.get()), self.count.value()
        self.seen.add(-timestamp)
        if self.last.is_empty():
            self.total.clear()


class Sum(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value[1]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Name(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, context.window().end, sorted(elements)


class Pair(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left[1], right[1]


def timed(env):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(100))
    return env.from_collection(RECORDS).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda value, _: value[2])
    )


def everything(env):
    return timed(env).key_by(key).process(Everything())


def tumbling(env):
    windows = timed(env).key_by(key).window(TumblingEventTimeWindows.of(4000))
    return windows.aggregate(Sum(), Name(), accumulator_type=Types.LONG())


def sliding(env):
    windows = timed(env).key_by(key).window(SlidingEventTimeWindows.of(3000, 1000))
    return windows.reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2])))


def sessions(env):
    return timed(env).key_by(key).window(EventTimeSessionWindows.with_gap(1500)).process(Name())


def interval_join(env):
    stream = timed(env)
    left, right = stream.filter(lambda v: v[1] % 2 == 0), stream.filter(lambda v: v[1] % 2 == 1)
    return left.key_by(key).interval_join(right.key_by(key)).between(-4000, 4000).process(Pair())


def co_group(env):
    stream = timed(env)
    left, right = stream.filter(lambda v: v[1] % 2 == 0), stream.filter(lambda v: v[1] % 3 == 0)
    return (
        left.join(right).where(key).equal_to(key).window(TumblingEventTimeWindows.of(4000)).apply(lambda a, b: (a, b))
    )


def batch_reduce(env):
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    return env.from_collection(RECORDS).key_by(key).reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2])))


PROGRAMS = [everything, tumbling, sliding, sessions, interval_join, co_group, batch_reduce]


@pytest.fixture
def spills(monkeypatch):
    """Count how often an overlay spills."""
    counted = []
    spill = Overlay.spill
    monkeypatch.setattr(Overlay, "spill", lambda self: (counted.append(1), spill(self))[1])
    return counted


def harness(program, limit, **options):
    backend = options.pop("backend", "memory")
    settings = Settings(backend=backend, overlay_bytes=limit, memory_limit=2**30)
    env = StreamExecutionEnvironment.get_execution_environment()
    return JobHarness(program(env), backend=backend, settings=settings, **options)


def run(program, limit, records=None, **options):
    with harness(program, limit, **options) as job:
        return sorted(map(repr, job.run(records)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_the_same_with_and_without_spilling(program, backend, spills, monkeypatch):
    expected = run(program, OVERLAY_BYTES, backend=backend)
    assert expected
    assert not spills
    # Stored timers arrive in many portions, and the overlay spills some of them while they fire.
    monkeypatch.setattr(timers_module, "_PORTION", 50)
    monkeypatch.setattr(timers_module, "_BETWEEN_LOOKS", 20)
    for limit in (0, 30_000):
        spills.clear()
        assert run(program, limit, backend=backend) == expected
        assert len(spills) > 2


@pytest.mark.parametrize("program", [everything, tumbling, interval_join])
@pytest.mark.parametrize("point", ["level1.processed", "level1.snapshot", "driver.collected"])
def test_crashes_and_lost_replicas_do_not_change_spilling_jobs(program, point, spills):
    expected = run(program, OVERLAY_BYTES, 1_000)
    with harness(program, 0, backend="filesystem") as job:
        job.epoch(1_000)
        job.crash_at(point)
        job.epoch(1_000)
        job.lose_replicas()
        job.epochs(1_000)
        job.end()
        assert sorted(map(repr, job.output)) == expected
    assert spills


@pytest.mark.parametrize("backend", BACKENDS)
def test_spilling_jobs_store_the_same_state(backend):
    left = []
    for limit in (OVERLAY_BYTES, 0):
        with harness(everything, limit, backend=backend, parallelism=2) as job:
            job.epochs(1_500)
            states = {name: job.states(name) for name in ("count", "seen", "last", "total")}
            left.append((states, job.timers(), job.next_wakeup))
    assert left[0][0]["seen"]
    assert left[0][1]
    assert left[0] == left[1]


def test_spilled_values_and_maps_produce_the_same_delta():
    class Both(KeyedProcessFunction):
        def open(self, context):
            self.count = context.get_state(ValueStateDescriptor("count", int))
            self.last = context.get_map_state(MapStateDescriptor("last", str, int))

        def process_element(self, value, ctx):
            self.count.update((self.count.value() or 0) + 1)
            if value[1] % 50 == 0:
                self.last.clear()
            if value[1] % 9 == 0:
                self.last.remove(str(value[1] % 4))
            self.last.put(str(value[1] % 5), value[1])

    deltas = []
    for limit in (OVERLAY_BYTES, 0):
        with harness(lambda env: env.from_collection(RECORDS).key_by(key).process(Both()), limit) as job:
            job.epoch()
            deltas.append([delta.name for each in job._driver.last.operators.values() for delta in each.deltas])
    assert deltas[0]
    assert deltas[0] == deltas[1]


def test_task_attempts_spill_at_the_same_points():
    """The delta's name is in the task's report, and Spark compares the rows of attempts."""
    names = set()
    for seed in ("1", "2"):
        program = (
            "from tests.testing.test_spilling_jobs import *\n"
            "with harness(everything, 50_000) as job:\n"
            "    job.epoch()\n"
            "    print([d.name for each in job._driver.last.operators.values() for d in each.deltas])"
        )
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])}
        names.add(subprocess.run([sys.executable, "-c", program], env=environment, check=True, stdout=-1).stdout)
    assert len(names) == 1


def nameless_files():
    links = [f"/proc/self/fd/{descriptor}" for descriptor in os.listdir("/proc/self/fd")]
    return [path for link in links if os.path.islink(link) and (path := os.readlink(link)).endswith("(deleted)")]


class FailsLast(Everything):
    def process_element(self, value, ctx):
        if value == RECORDS[-1]:
            raise ValueError("the last one")
        return super().process_element(value, ctx)


@pytest.mark.parametrize("function", [Everything, FailsLast])
def test_ended_and_failed_tasks_leave_no_files(function, monkeypatch):
    at_the_end = []
    release = Overlay.release
    monkeypatch.setattr(Overlay, "release", lambda self: (at_the_end.append(nameless_files()), release(self))[1])
    # Otherwise SQLite's cache would hold everything.
    monkeypatch.setattr("penstock.state.spill._CACHE_KIB", 1)
    before = nameless_files()
    with harness(lambda env: env.from_collection(RECORDS).key_by(key).process(function()), 0) as job:
        if function is FailsLast:
            with pytest.raises(UserFunctionFailed, match="the last one"):
                job.epoch()
        else:
            job.epoch()
    assert len(at_the_end[0]) > len(before)
    assert nameless_files() == before
