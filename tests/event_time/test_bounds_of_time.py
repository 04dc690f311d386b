"""Times and durations at and beyond the range of 64 bits: each is correct, or an error names the problem."""

from datetime import timedelta

import pytest

from penstock.common import Duration, Time, WatermarkStrategy
from penstock.common.time import BadLength, to_millis
from penstock.datastream import (
    KeyedProcessFunction,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
    Trigger,
    TriggerResult,
)
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
)
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.errors import PenstockError
from penstock.testing import JobHarness, keyed_harness

LEAST, GREATEST = -(2**63), 2**63 - 1
BEYOND = [2**63, 2**63 + 5, 2**70, -(2**63) - 1, -(2**70)]


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def timed(env):
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])
    return env.from_collection([]).uid("source").assign_timestamps_and_watermarks(strategy).uid("assigner")


def keyed(env):
    return timed(env).key_by(lambda value: value[0])


def run(stream, *records):
    with JobHarness(stream) as job:
        return job.push(*records).run()


class Timestamps(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.timestamp()


class TestTimestamps:
    @pytest.mark.parametrize("time", BEYOND)
    def test_a_timestamp_out_of_range_is_refused_at_the_assigner(self, env, time):
        streams = {
            "chained": lambda env: timed(env).map(lambda value: value),
            "keyed": lambda env: keyed(env).process(Timestamps()),
            "rebalanced": lambda env: timed(env).rebalance().map(lambda value: value),
            "windows": lambda env: keyed(env).window(TumblingEventTimeWindows.of(5)).reduce(max),
        }
        for stream in streams.values():
            env = StreamExecutionEnvironment.get_execution_environment()
            with pytest.raises(UserFunctionFailed, match=rf"uid 'assigner'[\s\S]*returned {time} as the timestamp"):
                run(stream(env), ("a", time))

    @pytest.mark.parametrize("time", [*BEYOND, "1", 1.5])
    def test_an_invalid_timestamp_of_a_source_is_refused(self, time):
        with keyed_harness(Timestamps()) as job:
            job.push("a", timestamp=time)
            with pytest.raises(UserFunctionFailed, match=r"A record has the timestamp .*64 bits"):
                job.epoch()

    @pytest.mark.parametrize("time", [GREATEST, GREATEST - 1, LEAST + 1])
    def test_a_timestamp_at_the_bounds_is_kept(self, env, time):
        assert run(keyed(env).process(Timestamps()), ("a", time)) == [time]

    @pytest.mark.parametrize("time", [GREATEST, GREATEST - 50, LEAST + 1])
    @pytest.mark.parametrize("late", [0, 5])
    @pytest.mark.parametrize(
        "windows",
        [TumblingEventTimeWindows.of(1000), SlidingEventTimeWindows.of(1000, 300)],
        ids=["tumbling", "sliding"],
    )
    def test_a_timestamp_whose_windows_are_out_of_range_is_refused_with_the_window(self, env, time, late, windows):
        stream = keyed(env).window(windows).allowed_lateness(late).reduce(max).uid("windows")
        with pytest.raises(UserFunctionFailed, match=r"uid 'windows'[\s\S]*in TimeWindow\(start=.* times range from"):
            run(stream, ("a", time))

    def test_a_timestamp_whose_session_is_out_of_range_is_refused_with_the_window(self, env):
        stream = keyed(env).window(EventTimeSessionWindows.with_gap(1000)).reduce(max).uid("windows")
        with pytest.raises(UserFunctionFailed, match=r"uid 'windows'[\s\S]*in TimeWindow\(start=.* times range from"):
            run(stream, ("a", GREATEST - 50))


class TestLengths:
    @pytest.mark.parametrize("length", [2**63, 2**70, -(2**63)])
    @pytest.mark.parametrize(
        "use",
        [
            lambda length: TumblingEventTimeWindows.of(length),
            lambda length: TumblingEventTimeWindows.of(Time.milliseconds(10), length),
            lambda length: SlidingEventTimeWindows.of(length, 5),
            lambda length: SlidingEventTimeWindows.of(10, length),
            lambda length: EventTimeSessionWindows.with_gap(Duration.of_millis(length)),
            lambda length: ContinuousEventTimeTrigger.of(length),
            lambda length: TimeEvictor.of(Time.milliseconds(length)),
            lambda length: WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(length)),
            lambda length: WatermarkStrategy.no_watermarks().with_idleness(Duration.of_millis(length)),
        ],
    )
    def test_a_length_out_of_range_is_refused_where_it_is_passed(self, length, use):
        with pytest.raises(PenstockError):
            use(length)

    def test_the_error_for_a_lateness_out_of_range_names_it(self, env):
        with pytest.raises(
            PenstockError, match=r"^The allowed lateness is invalid: A duration of 9223372036854775808 ms"
        ):
            keyed(env).window(TumblingEventTimeWindows.of(5)).allowed_lateness(2**63)

    def test_a_length_at_the_bound_is_accepted(self, env):
        stream = keyed(env).window(TumblingEventTimeWindows.of(GREATEST)).allowed_lateness(GREATEST).reduce(max)
        assert run(stream, ("a", 1), ("a", 5)) == [("a", 5)]
        assert to_millis(timedelta.max) < GREATEST
        with pytest.raises(BadLength, match="Use a shorter duration"):
            to_millis(Time.days(2**60))

    @pytest.mark.parametrize("bound", [2**63, -(2**63)])
    def test_a_bound_of_an_interval_join_out_of_range_is_refused(self, env, bound):
        left = env.from_collection([]).key_by(lambda value: value)
        with pytest.raises(PenstockError):
            left.interval_join(env.from_collection([]).key_by(lambda value: value)).between(0, bound)

    def test_a_bound_of_an_interval_join_at_the_limit_is_accepted(self, env):
        class Pair(ProcessJoinFunction):
            def process_element(self, left, right, ctx):
                yield left, right

        left, right = (env.from_collection([]).uid(uid) for uid in ("left", "right"))
        stream = left.key_by(lambda value: 0).interval_join(right.key_by(lambda value: 0)).between(-GREATEST, GREATEST)
        with JobHarness(stream.process(Pair())) as job:
            job.push("a", source="left", timestamp=GREATEST)
            job.push("b", source="right", timestamp=5).push("c", source="right", timestamp=LEAST + 1).run()
            assert sorted(job.output) == [("a", "b")]


class TestTimers:
    @pytest.mark.parametrize("time", BEYOND)
    @pytest.mark.parametrize("domain", ["event", "processing"])
    def test_a_timer_of_a_trigger_out_of_range_is_refused(self, env, time, domain):
        class Far(Trigger):
            def on_element(self, element, timestamp, window, ctx):
                getattr(ctx, f"register_{domain}_time_timer")(time)
                return TriggerResult.CONTINUE

            def on_processing_time(self, time, window, ctx):
                return TriggerResult.CONTINUE

            def on_event_time(self, time, window, ctx):
                return TriggerResult.CONTINUE

            def on_merge(self, window, ctx):
                pass

            def clear(self, window, ctx):
                getattr(ctx, f"delete_{domain}_time_timer")(time)

        stream = keyed(env).window(GlobalWindows.create()).trigger(Far()).reduce(max).uid("windows")
        with pytest.raises(UserFunctionFailed, match=r"uid 'windows'[\s\S]*The time of a timer must be"):
            run(stream, ("a", 1))

    @pytest.mark.parametrize("time", BEYOND)
    def test_a_timer_of_a_function_out_of_range_is_refused(self, time):
        class Far(KeyedProcessFunction):
            def process_element(self, value, ctx):
                ctx.timer_service().register_event_time_timer(time)

            def on_timer(self, timestamp, ctx):
                yield timestamp

        with keyed_harness(Far()) as job, pytest.raises(UserFunctionFailed, match="Convert it to milliseconds"):
            job.push("a", timestamp=1).epoch()
