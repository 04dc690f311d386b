"""Every operator sees the timestamp of the record it processes, regardless of the other operators in its chain."""

import asyncio

import pytest

from penstock.common import Time, WatermarkStrategy
from penstock.datastream import (
    AsyncDataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.testing import JobHarness

LEAST = -(2**63)
MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()
OWN = MONOTONOUS.with_timestamp_assigner(lambda value, timestamp: value)
LATER = MONOTONOUS.with_timestamp_assigner(lambda value, timestamp: value + 1_000)


class Stamp(ProcessFunction):
    """Yields (name, record, timestamp)."""

    def __init__(self, name):
        self.name = name

    def process_element(self, value, ctx):
        yield self.name, value, ctx.timestamp()


class Around(ProcessFunction):
    """Yields a record twice, then the timestamps seen before, between and after."""

    def process_element(self, value, ctx):
        before = ctx.timestamp()
        yield value
        between = ctx.timestamp()
        yield value
        yield "around", value, (before, between, ctx.timestamp())


def is_plain(value):
    return type(value) is int


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def behind(stream, place):
    """Return the stream in the source's chain, or at the head of a task."""
    return stream if place == "source" else stream.rebalance().map(lambda value: value).set_parallelism(2)


PLACES = pytest.mark.parametrize("place", ["source", "task"])


@PLACES
@pytest.mark.parametrize("first", [True, False])
def test_an_assigner_on_one_branch_does_not_affect_timestamps_of_the_other(env, place, first):
    base = behind(env.from_collection([]), place).assign_timestamps_and_watermarks(OWN).map(lambda value: value)
    if first:
        later = base.assign_timestamps_and_watermarks(LATER).process(Stamp("later"))
        own = base.process(Stamp("own"))
    else:
        own = base.process(Stamp("own"))
        later = base.assign_timestamps_and_watermarks(LATER).process(Stamp("later"))
    with JobHarness(own.union(later)) as job:
        job.push(5, 7).epoch()
        assert sorted(job.output) == [("later", 5, 1005), ("later", 7, 1007), ("own", 5, 5), ("own", 7, 7)]


@PLACES
def test_a_branch_without_an_assigner_has_no_timestamps(env, place):
    base = behind(env.from_collection([]), place)
    base.assign_timestamps_and_watermarks(OWN).process(Stamp("own")).print()
    with JobHarness(base.process(Stamp("none"))) as job:
        job.push(5, 7).epoch()
        assert sorted(job.output) == [("none", 5, None), ("none", 7, None)]


@PLACES
def test_a_function_sees_the_same_timestamp_after_yielding(env, place):
    around = behind(env.from_collection([]), place).assign_timestamps_and_watermarks(OWN).process(Around())
    around.filter(is_plain).assign_timestamps_and_watermarks(LATER).print()
    with JobHarness(around.filter(lambda value: not is_plain(value))) as job:
        job.push(5, 7).epoch()
        assert sorted(job.output) == [("around", 5, (5, 5, 5)), ("around", 7, (7, 7, 7))]


@PLACES
def test_a_side_output_has_the_timestamp_of_the_record_and_not_of_the_main_output(env, place):
    tag = OutputTag("copies")

    class Both(ProcessFunction):
        def process_element(self, value, ctx):
            yield value
            yield tag, value

    main = behind(env.from_collection([]), place).assign_timestamps_and_watermarks(OWN).process(Both())
    main.assign_timestamps_and_watermarks(LATER).print()
    with JobHarness(main.get_side_output(tag).process(Stamp("side"))) as job:
        job.push(5, 7).epoch()
        assert sorted(job.output) == [("side", 5, 5), ("side", 7, 7)]


def test_windows_next_to_a_branch_with_other_timestamps_use_their_own(env):
    base = env.from_collection([]).assign_timestamps_and_watermarks(OWN).map(lambda value: value)
    base.assign_timestamps_and_watermarks(LATER).print()
    windows = base.key_by(lambda value: 0).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    with JobHarness(windows.reduce(max).process(Stamp("window"))) as job:
        job.push(5, 15, 25).end()
        assert job.output == [("window", 5, 9), ("window", 15, 19), ("window", 25, 29)]


def test_asynchronous_results_do_not_affect_timestamps_of_another_branch(env):
    async def answer(value):
        await asyncio.sleep(0)
        return [value]

    base = env.from_collection([]).assign_timestamps_and_watermarks(OWN)
    calls = AsyncDataStream.unordered_wait(base, answer, Time.seconds(10), 1)
    answers = calls.assign_timestamps_and_watermarks(LATER).process(Stamp("answer"))
    with JobHarness(answers.union(base.process(Stamp("own")))) as job:
        job.push(5, 7, 9).epoch()
        assert sorted(job.output) == [
            *(("answer", value, value + 1000) for value in (5, 7, 9)),
            *(("own", value, value) for value in (5, 7, 9)),
        ]


def test_results_of_a_timer_have_its_timestamp_even_after_an_earlier_result(env):
    class Twice(KeyedProcessFunction):
        def process_element(self, value, ctx):
            ctx.timer_service().register_event_time_timer(value + 2)

        def on_timer(self, timestamp, ctx):
            yield timestamp
            yield timestamp

    results = env.from_collection([]).assign_timestamps_and_watermarks(OWN).key_by(lambda v: 0).process(Twice())
    results.assign_timestamps_and_watermarks(LATER).print()
    with JobHarness(results.process(Stamp("timer"))) as job:
        job.push(5).end()
        assert job.output == [("timer", 7, 7)] * 2


class TestPreviousTimestamp:
    """The second argument of an assigner is the record's previous timestamp, or the smallest 64-bit integer."""

    SECOND = MONOTONOUS.with_timestamp_assigner(lambda value, timestamp: value if value else max(timestamp, 0))

    @PLACES
    @pytest.mark.parametrize("size", [1, 2, 100])
    def test_the_previous_timestamp_is_not_that_of_the_record_before(self, env, place, size):
        stream = behind(env.from_collection([]), place).assign_timestamps_and_watermarks(self.SECOND)
        with JobHarness(stream.process(Stamp(""))) as job:
            job.push(5000, 0, 7000, 0).epochs(size)
            assert sorted(job.output) == [("", 0, 0), ("", 0, 0), ("", 5000, 5000), ("", 7000, 7000)]

    @PLACES
    def test_the_previous_timestamp_is_the_smallest_integer_if_there_is_none(self, env, place):
        given = MONOTONOUS.with_timestamp_assigner(lambda value, timestamp: 5 if timestamp == LEAST else 6)
        stream = behind(env.from_collection([]), place).assign_timestamps_and_watermarks(given)
        with JobHarness(stream.process(Stamp(""))) as job:
            job.push(1, 2, 3).epoch()
            assert {row[2] for row in job.output} == {5}

    @PLACES
    def test_the_previous_timestamp_can_come_from_the_source(self, env, place):
        given = MONOTONOUS.with_timestamp_assigner(lambda value, timestamp: timestamp + 1)
        stream = behind(env.from_collection([]), place).assign_timestamps_and_watermarks(given)
        with JobHarness(stream.process(Stamp(""))) as job:
            job.push(1, timestamp=10).push(2, timestamp=20).epoch()
            assert sorted(job.output) == [("", 1, 11), ("", 2, 21)]

    @PLACES
    def test_the_previous_timestamp_can_come_from_an_earlier_assigner(self, env, place):
        twice = MONOTONOUS.with_timestamp_assigner(lambda value, timestamp: timestamp * 2)
        stream = behind(env.from_collection([]), place).assign_timestamps_and_watermarks(OWN)
        with JobHarness(stream.assign_timestamps_and_watermarks(twice).process(Stamp(""))) as job:
            job.push(5, 7).epoch()
            assert sorted(job.output) == [("", 5, 10), ("", 7, 14)]
