"""Asynchronous calls in a chain, driven in the harness.

The tests control when calls finish: a call waits until the records that must be answered first have been answered.
"""

import asyncio
import threading
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Duration, Time, WatermarkStrategy
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    KeyedProcessFunction,
    ProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.runtime.event_loop import EventLoop
from penstock.testing import JobHarness

LONG = Time.minutes(5)
"""Never reached: no test waits this long."""
WAITS = {"ordered": AsyncDataStream.ordered_wait, "unordered": AsyncDataStream.unordered_wait}
both = pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


async def double(value):
    await asyncio.sleep(0)
    return [value * 2]


class InTurn(AsyncFunction):
    """Returns its records unchanged and in the given order, regardless of the order in which they arrive."""

    def __init__(self, turns):
        self.turns = turns

    def open(self, runtime_context):
        self.answered = {turn: asyncio.Event() for turn in self.turns}

    async def async_invoke(self, value):
        place = self.turns.index(value)
        if place:
            await self.answered[self.turns[place - 1]].wait()
        self.answered[value].set()
        return [value]


class TestOrder:
    def test_ordered_wait_emits_results_in_the_order_of_their_records(self, env):
        stream = AsyncDataStream.ordered_wait(env.from_collection([1, 2, 3, 4]), InTurn([4, 2, 3, 1]), LONG)
        with JobHarness(stream) as job:
            assert job.run() == [1, 2, 3, 4]

    def test_unordered_wait_emits_results_as_they_complete(self, env):
        stream = AsyncDataStream.unordered_wait(env.from_collection([1, 2, 3, 4]), InTurn([4, 2, 3, 1]), LONG)
        with JobHarness(stream) as job:
            assert job.run() == [4, 2, 3, 1]

    @both
    def test_a_record_can_have_many_results_or_none(self, env, wait):
        async def repeat(value):
            return [value] * value

        with JobHarness(wait(env.from_collection([0, 2, 0, 1]), repeat, LONG)) as job:
            assert job.run() == [2, 2, 1]


class InFlight(AsyncFunction):
    """Ends no call before `capacity` calls are in flight; returns the largest number of calls in flight so far."""

    def __init__(self, capacity):
        self.capacity = capacity

    async def open(self, runtime_context):
        self.count = self.most = 0
        self.full = asyncio.Event()

    async def async_invoke(self, value):
        self.count += 1
        self.most = max(self.most, self.count)
        if self.count == self.capacity:
            self.full.set()
        await self.full.wait()
        await asyncio.sleep(0)
        self.count -= 1
        return [self.most]


@both
@pytest.mark.parametrize("capacity", [1, 3, 10])
def test_the_number_of_calls_in_flight_reaches_but_never_exceeds_the_capacity(env, wait, capacity):
    with JobHarness(wait(env.from_collection(range(50)), InFlight(capacity), LONG, capacity)) as job:
        given = job.run()
        assert len(given) == 50
        assert max(given) == capacity


class Watched(ProcessFunction):
    """Yields each record with its timestamp and the current watermark."""

    def process_element(self, value, ctx):
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


class TestEventTime:
    @both
    def test_results_have_the_timestamp_of_their_record(self, env, wait):
        stream = wait(env.from_collection([]), InTurn([3, 2, 1]), LONG)
        with JobHarness(stream.process(Watched())) as job:
            job.push(1, timestamp=10).push(2, timestamp=20).push(3, timestamp=30).epoch()
            assert sorted(row[:2] for row in job.output) == [(1, 10), (2, 20), (3, 30)]

    @both
    def test_results_of_records_that_waited_for_capacity_have_their_timestamp(self, env, wait):
        stream = wait(env.from_collection([]).flat_map(lambda value: [value, -value]), double, LONG, 1)
        with JobHarness(stream.process(Watched())) as job:
            job.push(1, timestamp=10).push(2, timestamp=20).push(3, timestamp=30).epoch()
            assert [row[:2] for row in job.output] == [(2, 10), (-2, 10), (4, 20), (-4, 20), (6, 30), (-6, 30)]

    @both
    @pytest.mark.parametrize("chained", [True, False])
    def test_a_watermark_keeps_its_position_between_results(self, env, wait, chained):
        stream = wait(env.from_collection([]), InTurn([4, 3, 2, 1]), LONG)
        if not chained:
            stream = stream.rebalance()
        with JobHarness(stream.process(Watched())) as job:
            job.push(1, timestamp=10).push(2, timestamp=20).push_watermark(15)
            job.push(3, timestamp=30).push(4, timestamp=40).push_watermark(35).epoch()
            marks = {value: watermark for value, _, watermark in job.output}
            assert max(marks[1], marks[2]) < 15
            assert marks[3] == marks[4] == 15
            ordered = wait is AsyncDataStream.ordered_wait
            assert [row[0] for row in job.output] == ([1, 2, 3, 4] if ordered else [2, 1, 4, 3])
            assert chained or job.watermark == 35

    @both
    def test_calls_do_not_wait_for_a_watermark(self, env, wait):
        """A watermark after each record, as assigners emit them, must not serialize the calls."""
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value * 10)
        stream = env.from_collection([1, 2, 3]).assign_timestamps_and_watermarks(strategy)
        with JobHarness(wait(stream, InTurn([3, 2, 1]), LONG).process(Watched())) as job:
            job.epoch()
            assert job.output == [(1, 10, -(2**63)), (2, 20, 9), (3, 30, 19)]

    def test_timestamps_can_be_assigned_downstream(self, env):
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0))
        strategy = strategy.with_timestamp_assigner(lambda value, _: value)
        stream = AsyncDataStream.ordered_wait(env.from_collection([1, 2]), double, LONG)
        with JobHarness(stream.assign_timestamps_and_watermarks(strategy).process(Watched())) as job:
            job.epoch()
            assert job.output == [(2, 2, -(2**63)), (4, 4, 1)]

    @both
    def test_records_emitted_at_the_end_of_the_input_are_processed(self, env, wait):
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        sums = env.from_collection([1, 2, 3, 4]).key_by(lambda value: value % 2).reduce(lambda a, b: a + b)
        with JobHarness(wait(sums, double, LONG).map(lambda value: value + 1)) as job:
            assert sorted(job.run()) == [9, 13]


class Sum(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.get_current_key(), value


class TestEpochs:
    @both
    @pytest.mark.parametrize("per_epoch", [None, 1, 7])
    @pytest.mark.parametrize("parallelism", [1, 3])
    def test_results_do_not_depend_on_epoch_boundaries(self, env, wait, per_epoch, parallelism):
        stream = wait(env.from_collection(range(30)), double, LONG, 4).key_by(lambda value: value % 5).process(Sum())
        stream = wait(stream, double, LONG, 4)
        with JobHarness(stream, parallelism=parallelism) as job:
            expected = Counter((value % 5, value) * 2 for value in range(0, 60, 2))
            assert Counter(job.run(per_epoch)) == expected

    @both
    def test_results_belong_to_the_epoch_of_their_record(self, env, wait):
        with JobHarness(wait(env.from_collection([]), double, LONG)) as job:
            for number in range(5):
                job.push(number).epoch()
                assert job.output == [each * 2 for each in range(number + 1)]

    @both
    @pytest.mark.parametrize("point", ["source.processed", "level1.processed", "level1.snapshot", "driver.collected"])
    def test_a_crash_repeats_calls_but_not_results(self, env, wait, point):
        stream = wait(env.from_collection(range(9)), double, LONG).key_by(lambda value: 0).process(Sum())
        with JobHarness(wait(stream, double, LONG)) as job:
            job.epoch(4)
            job.crash_at(point)
            job.epoch(2)
            assert sorted(job.run(2)) == [(0, value, 0, value) for value in range(0, 18, 2)]

    @both
    def test_a_keyed_stream_loses_its_key_but_keeps_keys_together(self, env, wait):
        stream = wait(env.from_collection(range(12)).key_by(lambda value: value % 3), double, LONG)
        with JobHarness(stream, parallelism=2) as job:
            assert sorted(job.run(5)) == list(range(0, 24, 2))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 9), max_size=25).flatmap(
        lambda values: st.tuples(st.just(values), st.permutations(range(len(values))))
    ),
    st.integers(1, 8),
    st.sampled_from([None, 1, 6]),
)
def test_results_equal_those_of_a_map_in_any_order_of_completion(drawn, capacity, per_epoch):
    values, steps = drawn

    async def shaken(record):
        place, value = record
        for _ in range(steps[place]):
            await asyncio.sleep(0)
        return [value + 1]

    for wait in WAITS.values():
        env = StreamExecutionEnvironment.get_execution_environment()
        with JobHarness(wait(env.from_collection(list(enumerate(values))), shaken, LONG, capacity)) as job:
            given = job.run(per_epoch)
        expected = [value + 1 for value in values]
        if wait is AsyncDataStream.ordered_wait:
            assert given == expected
        else:
            assert Counter(given) == Counter(expected)


class TestRecordsAreIsolated:
    @both
    def test_a_record_keeps_its_content_when_the_upstream_function_changes_it(self, env, wait):
        class Reuse(ProcessFunction):
            def open(self, runtime_context):
                self.record = [0]

            def process_element(self, value, ctx):
                self.record[0] = value
                yield self.record

        async def look(record):
            await asyncio.sleep(0)
            return [record[0]]

        with JobHarness(wait(env.from_collection(range(5)).process(Reuse()), look, LONG)) as job:
            assert job.run() == [0, 1, 2, 3, 4]

    def test_a_result_keeps_its_content_when_the_async_function_reuses_it(self, env):
        class Reuse(InTurn):
            def open(self, runtime_context):
                super().open(runtime_context)
                self.results = []

            async def async_invoke(self, value):
                self.results[:] = await super().async_invoke(value)
                return self.results

        with JobHarness(AsyncDataStream.ordered_wait(env.from_collection([1, 2, 3]), Reuse([3, 2, 1]), LONG)) as job:
            assert job.run() == [1, 2, 3]


class Life(AsyncFunction):
    """Logs its lifecycle calls in a list that the test reads, and checks that all run in one thread and loop."""

    events = []

    async def open(self, runtime_context):
        self.loop, self.thread = asyncio.get_running_loop(), threading.current_thread()
        self.log(f"open {runtime_context.get_task_name()}")

    async def async_invoke(self, value):
        self.log(f"call {value}")
        return [value]

    async def close(self):
        await asyncio.sleep(0)
        self.log("close")

    def log(self, what):
        assert asyncio.get_running_loop() is self.loop
        assert threading.current_thread() is self.thread
        self.events.append(what)


class PlainLife(Life):
    def open(self, runtime_context):
        self.loop, self.thread = asyncio.get_running_loop(), threading.current_thread()
        self.log(f"open {runtime_context.get_task_name()}")

    def close(self):
        self.log("close")


def loops():
    return [thread for thread in threading.enumerate() if thread.name.startswith("async ")]


class TestLifecycle:
    @pytest.mark.parametrize("kind", [Life, PlainLife])
    def test_a_function_is_opened_once_serves_all_epochs_and_is_closed(self, env, monkeypatch, kind):
        monkeypatch.setattr(Life, "events", [])
        stream = AsyncDataStream.ordered_wait(env.from_collection([1, 2, 3]), kind(), LONG).name("life")
        before = loops()
        with JobHarness(stream) as job:
            assert job.run(1) == [1, 2, 3]
            assert len(loops()) == len(before) + 1
        assert Life.events == ["open life", "call 1", "call 2", "call 3", "close"]
        assert loops() == before

    @both
    def test_a_failed_epoch_leaves_no_calls_behind(self, env, monkeypatch, wait):
        monkeypatch.setattr(Life, "events", [])

        def refuse(value):
            raise LookupError("no such value")

        before = loops()
        stream = wait(env.from_collection(["ends", "hangs"]), OneHangs(), LONG)
        with JobHarness(stream.map(refuse)) as job, pytest.raises(UserFunctionFailed, match="no such value"):
            job.epoch()
        assert Life.events == ["open async wait operator", "cancelled", "close"]
        assert loops() == before

    def test_a_function_that_cannot_be_opened_leaves_no_loop_behind(self, env):
        class NoDoor(AsyncFunction):
            async def open(self, runtime_context):
                raise ConnectionError("host unreachable")

            async def async_invoke(self, value):
                return [value]

        before = loops()
        stream = AsyncDataStream.ordered_wait(env.from_collection([1]), NoDoor(), LONG).name("ask").uid("ask")
        with JobHarness(stream) as job, pytest.raises(UserFunctionFailed) as caught:
            job.epoch()
        assert caught.value.failures[0].uid == "ask"
        assert str(caught.value).endswith(
            'in open\n    raise ConnectionError("host unreachable")\nConnectionError: host unreachable'
        )
        assert loops() == before

    def test_an_unreferenced_event_loop_ends(self):
        """This happens after a crash in the harness, where nothing is closed."""
        events = EventLoop("async forgotten", lambda error: None)
        thread = next(thread for thread in loops() if thread.name == "async forgotten")
        del events
        thread.join(30)
        assert not thread.is_alive()


class OneHangs(Life):
    async def open(self, runtime_context):
        await super().open(runtime_context)
        self.begun = asyncio.Event()

    async def async_invoke(self, value):
        if value == "ends":
            await self.begun.wait()
            return [value]
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.log("cancelled")
