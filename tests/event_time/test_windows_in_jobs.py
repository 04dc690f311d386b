"""Windows in complete jobs: their results for any epochs, crashes and parallelism."""

import pytest

from penstock.common import Duration, Time, Types, WatermarkStrategy
from penstock.datastream import (
    AggregateFunction,
    AllWindowFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TimeWindow,
    WindowFunction,
)
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import (
    CountEvictor,
    CountTrigger,
    CountWindow,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.testing import JobHarness


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def keyed(env):
    return env.from_collection([]).key_by(lambda value: value[0])


class Show(ProcessWindowFunction[tuple, tuple, str, TimeWindow]):
    """Yields (key, start, end, values of the window)."""

    def process(self, key, context, elements):
        yield key, context.window().start, context.window().end, [element[1] for element in elements]


class Mean(AggregateFunction):
    """A mutable accumulator: [sum, count]."""

    def create_accumulator(self):
        return [0, 0]

    def add(self, value, accumulator):
        accumulator[0] += value[1]
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return [acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]


def first_field(first, second):
    return first[0], first[1] + second[1]


def entries(job, operator="w"):
    """Return the number of entries in the operator's committed state: values, timers and elements."""
    with job.committed().reading(None, operator) as (overlay, replicas):
        readers = ((group, replicas.reader(group)) for group in range(overlay.max_parallelism))
        return sum(len(list(reader.scan(group.to_bytes(2, "big")))) for group, reader in readers if reader is not None)


class Stamp(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp()


class TestTumblingWindows:
    @pytest.mark.parametrize("backend", ["memory", "filesystem", "rocksdb"])
    @pytest.mark.parametrize("epochs", ["one", "many"])
    def test_a_tumbling_window_fires_once_with_all_its_records_when_the_watermark_passes(self, env, backend, epochs):
        stream = keyed(env).window(TumblingEventTimeWindows.of(Time.milliseconds(10))).process(Show())
        with JobHarness(stream, backend=backend) as job:
            job.push(("a", 1), timestamp=1).push(("b", 2), timestamp=3).push(("a", 3), timestamp=9)
            job.push(("a", 4), timestamp=10).push_watermark(8)
            job.epochs(1) if epochs == "many" else job.epoch()
            assert job.output == []
            job.push(("a", 5), timestamp=0).push_watermark(9).epoch()
            assert job.output == [("a", 0, 10, [1, 3, 5]), ("b", 0, 10, [2])]
            job.push_watermark(100).epoch()
            assert job.output[2:] == [("a", 10, 20, [4])]
            assert job.timers() == []

    @pytest.mark.parametrize("lateness", [0, 1])
    @pytest.mark.parametrize("accumulator_type", [None, Types.LIST(Types.LONG())])
    def test_a_mutable_accumulator_does_not_leak_between_windows(self, env, lateness, accumulator_type):
        windows = keyed(env).window(TumblingEventTimeWindows.of(10)).allowed_lateness(lateness)
        with JobHarness(windows.aggregate(Mean(), accumulator_type=accumulator_type)) as job:
            for number in range(4):
                job.push(("a", number), ("b", 10 * number), timestamp=number).epoch()
                job.crash()
            job.push(("a", 100), timestamp=15).push_watermark(20).epoch()
            assert sorted(job.output) == [1.5, 15.0, 100.0]

    @pytest.mark.parametrize("lateness", [0, 1])
    def test_results_have_the_last_timestamp_of_the_window_so_windows_can_follow(self, env, lateness):
        inner = keyed(env).window(TumblingEventTimeWindows.of(10)).allowed_lateness(lateness).reduce(first_field)
        outer = inner.key_by(lambda value: 0).window(TumblingEventTimeWindows.of(20)).process(Show())
        with JobHarness(outer, parallelism=2) as job:
            job.push(("a", 1), timestamp=1).push(("a", 2), timestamp=11).push(("b", 4), timestamp=12)
            job.push(("b", 8), timestamp=25).push_watermark(40).epoch()
            assert [(row[1], sorted(row[3])) for row in job.output] == [(0, [1, 2, 4]), (20, [8])]

    @pytest.mark.parametrize("point", ["level1.processed", "level1.snapshot", "driver.collected"])
    def test_a_crash_in_the_firing_epoch_does_not_change_results(self, env, point):
        stream = keyed(env).window(TumblingEventTimeWindows.of(10)).reduce(first_field)
        with JobHarness(stream, backend="filesystem") as job:
            job.push(("a", 1), ("b", 2), timestamp=1).epoch()
            job.push(("a", 3), timestamp=2).push_watermark(30).push(("a", 5), timestamp=33)
            job.crash_at(point)
            job.epoch()
            job.lose_replicas()
            job.end()
            assert sorted(job.output) == [("a", 4), ("a", 5), ("b", 2)]

    @pytest.mark.parametrize("contents", ["accumulators", "records"])
    def test_windows_continue_at_another_parallelism(self, env, contents):
        def build(env):
            windows = keyed(env).window(TumblingEventTimeWindows.of(10))
            return windows.reduce(first_field) if contents == "accumulators" else windows.process(Show())

        first = JobHarness(build(env).uid("w"), parallelism=2)
        for number in range(20):
            first.push((f"k{number}", number), timestamp=5)
        first.epoch()
        env = StreamExecutionEnvironment.get_execution_environment()
        with JobHarness(build(env).uid("w"), parallelism=3, storage=first.storage) as job:
            for number in range(20):
                job.push((f"k{number}", 100), timestamp=6)
            job.push_watermark(9).epoch()
            totals = {row[0]: row[1] if contents == "accumulators" else sum(row[3]) for row in job.output}
            assert totals == {f"k{number}": number + 100 for number in range(20)}
            assert len(job.output) == 20

    @pytest.mark.parametrize("how", ["fast", "with lateness", "records", "evicting", "sessions"])
    def test_ended_windows_leave_nothing_in_state(self, env, how):
        windows = keyed(env).window(
            EventTimeSessionWindows.with_gap(5) if how == "sessions" else TumblingEventTimeWindows.of(10)
        )
        if how == "with lateness":
            windows.allowed_lateness(3)
        if how == "evicting":
            windows.evictor(CountEvictor.of(5))
        stream = windows.process(Show()) if how == "records" else windows.reduce(first_field)
        with JobHarness(stream.uid("w"), backend="filesystem") as job:
            for number in range(20):
                job.push((f"k{number % 7}", number), timestamp=number).epochs(4)
            job.epoch()
            assert entries(job) > 0
            job.push_watermark(8).push_watermark(1000).epoch()
            assert entries(job) == 0

    def test_results_have_the_last_timestamp_of_the_window_for_any_trigger(self, env):
        windows = keyed(env).window(TumblingEventTimeWindows.of(10)).allowed_lateness(100)
        stream = windows.trigger(CountTrigger.of(1)).reduce(first_field).process(Stamp())
        with JobHarness(stream) as job:
            job.push(("a", 1), timestamp=3).push_watermark(20).push(("a", 2), timestamp=4).push(("b", 4), timestamp=23)
            job.epoch()
            assert job.output == [(("a", 1), 9), (("a", 3), 9), (("b", 4), 29)]

    def test_results_of_count_windows_have_the_timestamp_of_the_record_that_filled_them(self, env):
        with JobHarness(keyed(env).count_window(2).sum(1).process(Stamp())) as job:
            job.push(("a", 1), timestamp=3).push(("a", 2), timestamp=4).epoch()
            assert job.output == [(("a", 3), 4)]

    def test_an_allowed_lateness_can_be_added_later(self, env):
        first = JobHarness(keyed(env).window(TumblingEventTimeWindows.of(10)).reduce(first_field).uid("w"))
        first.push(("a", 1), timestamp=5).epoch()
        env = StreamExecutionEnvironment.get_execution_environment()
        windows = keyed(env).window(TumblingEventTimeWindows.of(10)).allowed_lateness(5)
        with JobHarness(windows.reduce(first_field).uid("w"), storage=first.storage) as job:
            job.push(("a", 2), timestamp=5).push_watermark(10).push(("a", 4), timestamp=5).push_watermark(50).epoch()
            assert job.output == [("a", 3), ("a", 7)]

    def test_time_window_uses_event_time(self, env):
        with JobHarness(keyed(env).time_window(Time.milliseconds(10)).sum(1)) as job:
            job.push(("a", 1), ("a", 2), timestamp=3).push(("a", 3), timestamp=12).end()
            assert job.output == [("a", 3), ("a", 3)]
        env = StreamExecutionEnvironment.get_execution_environment()
        with JobHarness(keyed(env).time_window(Duration.of_millis(10), Duration.of_millis(5)).max(1)) as job:
            job.push(("a", 1), ("a", 2), timestamp=3).push(("a", 3), timestamp=7).end()
            assert job.output == [("a", 2), ("a", 3), ("a", 3)]

    def test_rolling_aggregates_of_a_field_are_computed_per_window(self, env):
        records = [("a", 3, "x"), ("a", 1, "y"), ("a", 1, "z"), ("a", 3, "w")]
        expected = {
            "sum": ("a", 8, "x"),
            "min": ("a", 1, "x"),
            "max": ("a", 3, "x"),
            "min_by": ("a", 1, "y"),
            "max_by": ("a", 3, "x"),
        }
        for what, result in expected.items():
            windows = keyed(StreamExecutionEnvironment.get_execution_environment()).time_window(10)
            with JobHarness(getattr(windows, what)(1)) as job:
                assert job.push(*records, timestamp=1).run(1) == [result]

    def test_a_lossy_type_converts_values_immediately(self, env):
        """Types.FLOAT rounds to 32 bits, at every record and not only at the end of an epoch."""
        stream = env.from_collection([], type_info=Types.FLOAT()).key_by(lambda value: 0)
        results = []
        for records in (None, 1):
            with JobHarness(stream.time_window(10).reduce(lambda a, b: a + b)) as job:
                results.append(job.push(0.1, 0.2, 0.3, 0.7, timestamp=1).run(records))
        assert results[0] == results[1]
        assert results[0] != [0.1 + 0.2 + 0.3 + 0.7]

    @pytest.mark.parametrize("records", [None, 1])
    def test_accumulators_have_their_declared_type_within_an_epoch(self, env, records):
        class Pair(Mean):
            def get_result(self, accumulator):
                return accumulator

            def add(self, value, accumulator):
                return [accumulator[0] + value[1], accumulator[1] + 1]

        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        with JobHarness(keyed(env).time_window(10).aggregate(Pair(), accumulator_type=pair)) as job:
            job.push(("a", 1), timestamp=1).push(("b", 2), ("b", 3), timestamp=12).push_watermark(30)
            assert job.run(records) == [(1, 1), (5, 2)]


class TestSlidingWindows:
    @pytest.mark.parametrize("records", [None, 1])
    @pytest.mark.parametrize("lateness", [0, 1])
    def test_each_sliding_window_has_its_own_accumulator(self, env, records, lateness):
        def collect(first, second):
            first[1].extend(second[1])
            return first

        windows = keyed(env).window(SlidingEventTimeWindows.of(10, 5)).allowed_lateness(lateness)
        with JobHarness(windows.reduce(collect)) as job:
            for number in (1, 6, 11):
                job.push(("a", [number]), timestamp=number)
            assert job.run(records) == [("a", [1]), ("a", [1, 6]), ("a", [6, 11]), ("a", [11])]

    def test_a_sliding_window_keeps_one_accumulator_for_any_number_of_records(self, env):
        windows = keyed(env).window(SlidingEventTimeWindows.of(10, 5)).reduce(first_field).uid("w")
        with JobHarness(windows, backend="filesystem") as job:
            sizes = []
            for _ in range(5):
                job.push(*(("a", 1) for _ in range(100)), timestamp=7).epoch()
                sizes.append(entries(job))
            # Two windows, an accumulator and a timer each.
            assert sizes == [4] * 5
            assert job.end().output == [("a", 500), ("a", 500)]


class TestSessions:
    @pytest.mark.parametrize("backend", ["memory", "filesystem"])
    @pytest.mark.parametrize("records", [1, 2, None])
    def test_adjacent_records_form_one_session_in_any_order_of_arrival(self, env, backend, records):
        stream = keyed(env).window(EventTimeSessionWindows.with_gap(Time.milliseconds(5))).process(Show())
        with JobHarness(stream, backend=backend) as job:
            for time in (1, 20, 9, 5, 16, 40):
                job.push(("a", time), timestamp=time)
            job.push(("b", 6), timestamp=6)
            job.run(records)
            found = [(row[0], row[1], row[2], sorted(row[3])) for row in job.output]
            assert found == [("b", 6, 11, [6]), ("a", 1, 14, [1, 5, 9]), ("a", 16, 25, [16, 20]), ("a", 40, 45, [40])]
            assert job.timers() == []

    def test_accumulators_are_merged_across_epochs_and_a_crash(self, env):
        windows = keyed(env).window(EventTimeSessionWindows.with_gap(5))
        with JobHarness(windows.aggregate(Mean()), parallelism=2) as job:
            job.push(("a", 2), timestamp=0).push(("a", 6), timestamp=8).epoch()
            job.crash()
            assert len(job.timers()) == 2
            job.push(("a", 10), timestamp=4).epoch()
            assert [timer[0] for timer in job.timers()] == [12]
            job.crash()
            job.push_watermark(12).epoch()
            assert job.output == [6.0]
            assert job.timers() == []

    def test_timers_of_merged_sessions_are_deleted(self, env):
        windows = keyed(env).window(EventTimeSessionWindows.with_gap(5)).allowed_lateness(3)
        with JobHarness(windows.reduce(first_field)) as job:
            for time in (0, 8, 4):
                job.push(("a", 1), timestamp=time).epoch()
            assert [timer[0] for timer in job.timers()] == [12, 15]

    def test_a_gap_can_depend_on_the_record(self, env):
        windows = keyed(env).window(EventTimeSessionWindows.with_dynamic_gap(lambda value: value[1]))
        with JobHarness(windows.process(Show())) as job:
            job.push(("a", 2), timestamp=0).push(("a", 10), timestamp=3).push(("a", 1), timestamp=12).run(1)
            assert job.output == [("a", 0, 2, [2]), ("a", 3, 13, [10, 1])]

    def test_per_window_state_is_refused_for_sessions(self, env):
        class Wrong(Show):
            def process(self, key, context, elements):
                context.window_state().get_state(ValueStateDescriptor("n", Types.LONG()))

        with (
            JobHarness(keyed(env).window(EventTimeSessionWindows.with_gap(5)).process(Wrong())) as job,
            pytest.raises(UserFunctionFailed, match=r"'n' was requested, but these windows merge.*global_state"),
        ):
            job.push(("a", 1), timestamp=1).end()

    def test_a_processing_time_session_ends_after_the_gap(self, env):
        with JobHarness(keyed(env).window(ProcessingTimeSessionWindows.with_gap(100)).sum(1)) as job:
            job.set_clock(1000).push(("a", 1)).epoch()
            job.set_clock(1060).push(("a", 2)).epoch()
            job.set_clock(1110)
            assert job.output == []
            job.set_clock(1159)
            assert job.output == [("a", 3)]


class TestProcessingTimeWindows:
    def test_a_processing_time_window_fires_in_the_first_epoch_after_its_end_without_records(self, env):
        stream = keyed(env).window(TumblingProcessingTimeWindows.of(Time.seconds(1))).process(Show())
        with JobHarness(stream) as job:
            job.set_clock(1500).push(("a", 1)).epoch()
            job.set_clock(1900).push(("a", 2)).epoch()
            job.crash()
            assert job.next_wakeup == 1999
            job.set_clock(1998)
            assert job.output == []
            job.set_clock(2500)
            assert job.output == [("a", 1000, 2000, [1, 2])]
            assert job.timers() == []


class Numbered(WindowFunction[tuple, tuple, str, CountWindow]):
    def apply(self, key, window, inputs):
        return [(key, window.id, [each[1] for each in inputs])]


class TestCountWindows:
    @pytest.mark.parametrize("records", [None, 1])
    def test_a_count_window_fires_when_it_is_full_and_an_incomplete_one_never_fires(self, env, records):
        with JobHarness(keyed(env).count_window(2).apply(Numbered())) as job:
            job.push(*[("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5), ("b", 6), ("b", 7)]).run(records)
            assert job.output == [("a", 0, [1, 3]), ("b", 0, [2, 4]), ("b", 1, [6, 7])]

    @pytest.mark.parametrize("records", [None, 1])
    def test_count_windows_can_slide(self, env, records):
        with JobHarness(keyed(env).count_window(3, 2).apply(Numbered())) as job:
            job.push(*[("a", number) for number in range(8)]).run(records)
            assert job.output == [("a", 0, [0, 1, 2]), ("a", 1, [2, 3, 4]), ("a", 2, [4, 5, 6])]

    def test_fired_count_windows_leave_nothing_in_state(self, env):
        with JobHarness(keyed(env).count_window(2).sum(1).uid("w"), backend="filesystem") as job:
            for number in range(10):
                job.push(("a", number), ("a", number)).epoch()
            assert entries(job) == 1  # the key's record count

    def test_count_window_all_counts_all_records_together(self, env):
        with JobHarness(env.from_collection([1, 2, 3, 4, 5]).count_window_all(2).sum(), parallelism=4) as job:
            assert job.run(1) == [3, 7]


class TestAllWindows:
    def test_an_all_window_sees_every_record_in_one_subtask(self, env):
        class Everything(AllWindowFunction[tuple, tuple, TimeWindow]):
            def apply(self, window, inputs):
                yield window.start, window.end, sorted(inputs)

        stream = env.from_collection([]).window_all(TumblingEventTimeWindows.of(10)).apply(Everything())
        with JobHarness(stream.map(lambda row: row), parallelism=3) as job:
            job.set_partitions(3)
            job.push(1, 2, 3, timestamp=4).push(4, timestamp=15).end()
            assert job.output == [(0, 10, [1, 2, 3]), (10, 20, [4])]

    def test_an_all_window_can_reduce_process_and_aggregate(self, env):
        class Ended(ProcessAllWindowFunction[int, tuple, TimeWindow]):
            def process(self, context, elements):
                return [(context.window().end, *elements)]

        stream = env.from_collection([])
        with JobHarness(stream.time_window_all(10).reduce(lambda a, b: a + b, Ended())) as job:
            assert job.push(1, 2, 3, timestamp=4).run(1) == [(10, 6)]
        pairs = stream.map(lambda n: (0, n)).key_by(lambda pair: pair[1])
        with JobHarness(pairs.window_all(TumblingEventTimeWindows.of(10)).aggregate(Mean(), Ended())) as job:
            assert job.push(1, 2, 3, timestamp=4).run(1) == [(10, 2.0)]


class Counted(ProcessWindowFunction[tuple, tuple, str, TimeWindow]):
    """Yields how often the window and its key's windows have fired, and the elements."""

    def process(self, key, context, elements):
        fired = context.window_state().get_state(ValueStateDescriptor("n", Types.LONG()))
        of_key = context.global_state().get_state(ValueStateDescriptor("n", Types.LONG()))
        fired.update((fired.value() or 0) + 1)
        of_key.update((of_key.value() or 0) + 1)
        yield key, context.window().start, fired.value(), of_key.value(), list(elements)

    def clear(self, context):
        context.window_state().get_state(ValueStateDescriptor("n", Types.LONG())).clear()


class TestWindowFunctions:
    def test_a_window_function_has_state_of_the_window_and_of_the_key(self, env):
        windows = keyed(env).window(TumblingEventTimeWindows.of(10)).allowed_lateness(10)
        with JobHarness(windows.reduce(first_field, Counted()).uid("w")) as job:
            job.push(("a", 1), timestamp=1).push_watermark(12).epoch()
            job.crash()
            job.push(("a", 2), timestamp=2).push(("a", 4), timestamp=11).push_watermark(25).epoch()
            assert job.output == [
                ("a", 0, 1, 1, [("a", 1)]),
                ("a", 0, 2, 2, [("a", 3)]),
                ("a", 10, 1, 3, [("a", 4)]),
            ]
            assert job.states("n") == {"a": 3}
            job.push_watermark(100).epoch()
            assert entries(job) == 1  # the state of the key

    def test_a_window_function_has_state_in_the_pane_operator(self, env):
        with JobHarness(keyed(env).window(TumblingEventTimeWindows.of(10)).reduce(first_field, Counted())) as job:
            job.push(("a", 1), timestamp=1).push(("a", 2), timestamp=12).epoch()
            job.push(("a", 4), timestamp=2).push_watermark(30).epoch()
            assert job.output == [("a", 0, 1, 1, [("a", 5)]), ("a", 10, 1, 2, [("a", 2)])]

    def test_a_window_function_can_be_a_plain_function_and_yield_to_side_outputs(self, env):
        tag = OutputTag("long")

        def split(key, context, elements):
            for element in elements:
                if element[1] > 1:
                    yield tag, element
                else:
                    yield element

        windows = keyed(env).time_window(10)
        stream = windows.process(split)
        seen = stream.get_side_output(tag).map(lambda element: ("side", *element)).union(stream)
        with JobHarness(seen) as job:
            job.push(("a", 1), ("a", 2), timestamp=1).end()
            assert sorted(job.output) == [("a", 1), ("side", "a", 2)]
        with JobHarness(windows.apply(lambda key, window, inputs: [(key, window.end, len(inputs))])) as job:
            assert job.push(("a", 1), ("a", 2), timestamp=1).end().output == [("a", 10, 2)]

    def test_a_window_function_sees_the_watermark_and_processing_time(self, env):
        class Times(Show):
            def process(self, key, context, elements):
                yield context.current_watermark(), context.current_processing_time()

        with JobHarness(keyed(env).time_window(10).process(Times())) as job:
            job.set_clock(77).push(("a", 1), timestamp=1).push_watermark(33).epoch()
            assert job.output == [(33, 77)]

    def test_a_window_function_can_keep_lists_in_window_state(self, env):
        class Seen(Show):
            def process(self, key, context, elements):
                seen = context.window_state().get_list_state(ListStateDescriptor("seen", Types.LONG()))
                seen.add(len(elements))
                yield list(seen)

        windows = keyed(env).window(TumblingEventTimeWindows.of(10)).allowed_lateness(10)
        with JobHarness(windows.process(Seen())) as job:
            job.push(("a", 1), timestamp=1).push_watermark(12).push(("a", 1), timestamp=1).epochs(1)
            assert job.output == [[1], [1, 2]]


def test_no_record_is_late_in_a_batch(env):
    from penstock.datastream import RuntimeExecutionMode

    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    stream = env.from_collection([("a", 1), ("a", 12), ("b", 3)]).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])
    )
    with JobHarness(stream.key_by(lambda value: value[0]).time_window(10).process(Show())) as job:
        assert sorted(job.run()) == [("a", 0, 10, [1]), ("a", 10, 20, [12]), ("b", 0, 10, [3])]
