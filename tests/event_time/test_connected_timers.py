"""Connected streams in event time: timers set from either input, and the combined watermark."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.datastream import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.testing import JobHarness

BACKENDS = ["memory", "filesystem"]
UNPAID = OutputTag("unpaid")


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def first(value):
    return value[0]


class Both(KeyedCoProcessFunction):
    """Sets a timer for (key, delay) of either input; a fired timer yields its setters and the current watermark."""

    def open(self, runtime_context):
        self.setters = runtime_context.get_list_state(ListStateDescriptor("setters", Types.STRING()))

    def process_element1(self, value, ctx):
        self.setters.add(f"first {ctx.timestamp()}")
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + value[1])

    def process_element2(self, value, ctx):
        self.setters.add(f"second {ctx.timestamp()}")
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + value[1])

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, list(self.setters), ctx.timer_service().current_watermark()


def connected(env, function, **options):
    one, two = env.from_collection([]).uid("one"), env.from_collection([]).uid("two")
    return JobHarness(one.connect(two).key_by(first, first).process(function).uid("both"), **options)


class TestWatermarks:
    def test_the_watermark_is_that_of_the_slower_input(self, env):
        with connected(env, Both()) as job:
            job.push(("a", 10), source="one", timestamp=0).push(("b", 20), source="two", timestamp=0)
            job.push_watermark(100, source="one").epoch()
            assert job.output == []
            job.push_watermark(15, source="two").epoch()
            assert job.output == [("a", 10, ["first 0"], 15)]
            job.push_watermark(90, source="two").epoch()
            assert job.output[1:] == [("b", 20, ["second 0"], 90)]

    def test_the_watermark_never_moves_backwards(self, env):
        with connected(env, Both()) as job:
            job.push_watermark(50, source="one").push_watermark(50, source="two").epoch()
            job.push_watermark(10, source="one").push_watermark(20, source="two").epoch()
            job.push(("a", 40), source="one", timestamp=0).epoch()
            job.push_watermark(51, source="one").push_watermark(51, source="two").epoch()
            assert job.output == [("a", 40, ["first 0"], 51)]

    def test_an_idle_input_does_not_block_the_watermark(self, env):
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])
        one = env.from_collection([]).uid("one").assign_timestamps_and_watermarks(strategy)
        two = env.from_collection([]).uid("two")
        two = two.assign_timestamps_and_watermarks(strategy.with_idleness(Duration.of_seconds(5)))
        stream = one.connect(two).key_by(first, first).process(Both())
        with JobHarness(stream) as job:
            job.set_clock(0).push(("a", 10), source="one").push(("b", 1000), source="two").epoch()
            job.push(("c", 50), source="one").epoch()
            assert [row[:2] for row in job.output] == [("a", 20)]
            job.push(("d", 5000), source="one").epoch()
            assert [row[:2] for row in job.output] == [("a", 20), ("c", 100)]
            job.set_clock(10_000).push(("e", 6000), source="one").epoch()
            assert [row[:2] for row in job.output][2:] == [("b", 2000)]

    def test_a_downstream_operator_sees_no_later_watermark_than_both_inputs(self, env):
        class Late(KeyedProcessFunction):
            def process_element(self, value, ctx):
                yield ctx.timestamp(), ctx.timer_service().current_watermark() < ctx.timestamp()

        one, two = env.from_collection([]).uid("one"), env.from_collection([]).uid("two")
        both = one.connect(two).key_by(first, first).process(Both())
        with JobHarness(both.key_by(first).process(Late()), parallelism=2) as job:
            for number in range(10):
                job.push((f"k{number}", number), source="one", timestamp=number)
                job.push((f"k{number}", number), source="two", timestamp=number + 1)
                job.push_watermark(number, source="one").push_watermark(number, source="two").epoch()
            job.end()
            assert len(job.output) == 20
            assert all(in_time for _, in_time in job.output)


class TestTimers:
    def test_timers_of_both_inputs_for_one_key_and_time_are_one_timer(self, env):
        with connected(env, Both()) as job:
            job.push(("a", 10), source="one", timestamp=5).push(("a", 5), source="two", timestamp=10).epoch()
            assert job.timers() == [(15, "a", "EVENT_TIME")]
            job.push_watermark(15, source="one").push_watermark(15, source="two").epoch()
            (fired,) = job.output
            assert fired[:2] == ("a", 15)
            assert sorted(fired[2]) == ["first 5", "second 10"]

    @pytest.mark.parametrize("setter", ["one", "two"])
    def test_a_timer_set_from_one_input_can_be_deleted_from_the_other(self, env, setter):
        class Either(KeyedCoProcessFunction):
            def process_element1(self, value, ctx):
                self.change("one", value, ctx)

            def process_element2(self, value, ctx):
                self.change("two", value, ctx)

            def change(self, which, value, ctx):
                service = ctx.timer_service()
                (service.register_event_time_timer if which == setter else service.delete_event_time_timer)(value[1])

            def on_timer(self, timestamp, ctx):
                yield timestamp

        other = "two" if setter == "one" else "one"
        with connected(env, Either()) as job:
            job.push(("a", 5), ("a", 6), source=setter).epoch()
            job.push(("a", 5), source=other).epoch()
            job.push_watermark(10, source="one").push_watermark(10, source="two").epoch()
            assert job.output == [6]

    def test_processing_time_timers_can_be_set_from_either_input(self, env):
        class Tick(KeyedCoProcessFunction):
            def process_element1(self, value, ctx):
                ctx.timer_service().register_processing_time_timer(value[1])

            process_element2 = process_element1

            def on_timer(self, timestamp, ctx):
                yield ctx.get_current_key(), timestamp, ctx.time_domain().name

        with connected(env, Tick(), parallelism=2) as job:
            job.set_clock(0).push(("a", 10), source="one").push(("b", 20), source="two").epoch()
            job.set_clock(30)
            assert sorted(job.output) == [("a", 10, "PROCESSING_TIME"), ("b", 20, "PROCESSING_TIME")]

    def test_a_timer_can_yield_to_side_outputs_and_set_further_timers(self, env):
        class Remind(KeyedCoProcessFunction):
            """Reports an order that is not paid within 10 ms, and again 10 ms later."""

            def open(self, runtime_context):
                self.open_order = runtime_context.get_state(ValueStateDescriptor("order", Types.LONG()))

            def process_element1(self, value, ctx):
                self.open_order.update(ctx.timestamp())
                ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)

            def process_element2(self, value, ctx):
                ordered = self.open_order.value()
                if ordered is not None:
                    yield ctx.get_current_key(), ctx.timestamp() - ordered
                    self.open_order.clear()

            def on_timer(self, timestamp, ctx):
                ordered = self.open_order.value()
                if ordered is not None:
                    yield UNPAID, (ctx.get_current_key(), timestamp)
                    if timestamp < ordered + 20:
                        ctx.timer_service().register_event_time_timer(timestamp + 10)

        one, two = env.from_collection([]).uid("one"), env.from_collection([]).uid("two")
        paid = one.connect(two).key_by(first, first).process(Remind()).uid("both")
        with JobHarness(paid.union(paid.get_side_output(UNPAID).map(lambda unpaid: ("unpaid", *unpaid)))) as job:
            job.push(("a",), ("b",), source="one", timestamp=0).epoch()
            job.push(("a",), source="two", timestamp=3).epoch()
            job.push_watermark(100, source="one").push_watermark(100, source="two").epoch()
            assert sorted(job.output) == [("a", 3), ("unpaid", "b", 10), ("unpaid", "b", 20)]
            assert job.timers() == []

    def test_a_timer_without_a_key_is_refused(self, env):
        class Unkeyed(CoProcessFunction):
            def process_element1(self, value, ctx):
                ctx.timer_service().register_event_time_timer(1)

            def process_element2(self, value, ctx):
                pass

        one, two = env.from_collection([]).uid("one"), env.from_collection([]).uid("two")
        with JobHarness(one.connect(two).process(Unkeyed())) as job:
            job.push("x", source="one")
            with pytest.raises(UserFunctionFailed, match="sets a timer, but its stream is not keyed"):
                job.epoch()


records = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=15)


@settings(deadline=None, max_examples=40)
@given(
    one=records,
    two=records,
    parallelism=st.sampled_from([1, 2, 4]),
    per_epoch=st.sampled_from([None, 1, 3]),
    backend=st.sampled_from(BACKENDS),
    crash=st.sampled_from([None, "level1.snapshot", "driver.collected"]),
)
def test_each_key_and_time_fires_once_regardless_of_epochs(one, two, parallelism, per_epoch, backend, crash):
    class Once(KeyedCoProcessFunction):
        def process_element1(self, value, ctx):
            ctx.timer_service().register_event_time_timer(value[1])

        process_element2 = process_element1

        def on_timer(self, timestamp, ctx):
            yield ctx.get_current_key(), timestamp

    env = StreamExecutionEnvironment.get_execution_environment()
    with connected(env, Once(), parallelism=parallelism, backend=backend) as job:
        job.push(*one, source="one").push(*two, source="two")
        if crash is not None:
            job.crash_at(crash)
        job.run(per_epoch)
        assert sorted(job.output) == sorted({*one, *two})
        assert job.timers() == []


def test_timers_of_both_inputs_are_restored_at_another_parallelism(env):
    before = connected(env, Both(), parallelism=2)
    for number in range(20):
        before.push((f"k{number}", number), source=("one", "two")[number % 2], timestamp=100)
    before.epoch()
    env = StreamExecutionEnvironment.get_execution_environment()
    with connected(env, Both(), parallelism=5, storage=before.storage) as job:
        job.push_watermark(200, source="one").push_watermark(200, source="two").epoch()
        assert sorted(row[1] for row in job.output) == list(range(100, 120))
        assert {row[2][0] for row in job.output} == {"first 100", "second 100"}
