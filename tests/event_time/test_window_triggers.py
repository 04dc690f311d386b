"""Triggers, evictors and late records in jobs."""

import pytest

from penstock.common import Duration, Time, Types
from penstock.datastream import (
    AggregateFunction,
    AllWindowFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    Trigger,
    TriggerResult,
    WindowAssigner,
    WindowFunction,
)
from penstock.datastream.state import AggregatingStateDescriptor, ListStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    CountWindow,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    NeverTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    TimeWindow,
    TimeWindowSerializer,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.graph.logical import GraphError
from penstock.testing import JobHarness


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def keyed(env):
    return env.from_collection([]).key_by(lambda value: value[0])


def held(key, window, inputs):
    return [[each[1] for each in inputs]]


def add(first, second):
    return first[0], first[1] + second[1]


class TestTriggers:
    @pytest.mark.parametrize("records", [None, 1])
    def test_a_count_trigger_fires_with_all_records_and_a_purging_one_with_those_since_the_last_firing(
        self, env, records
    ):
        windows = keyed(env).window(GlobalWindows.create())
        with JobHarness(windows.trigger(CountTrigger.of(2)).apply(held)) as job:
            assert job.push(*[("a", n) for n in range(5)]).run(records) == [[0, 1], [0, 1, 2, 3]]
        windows = keyed(StreamExecutionEnvironment.get_execution_environment()).window(GlobalWindows.create())
        with JobHarness(windows.trigger(PurgingTrigger.of(CountTrigger.of(2))).apply(held)) as job:
            assert job.push(*[("a", n) for n in range(5)]).run(records) == [[0, 1], [2, 3]]

    def test_a_count_trigger_adds_up_counts_of_merged_sessions(self, env):
        windows = keyed(env).window(EventTimeSessionWindows.with_gap(5)).trigger(CountTrigger.of(3))
        with JobHarness(windows.apply(held)) as job:
            job.push(("a", 1), timestamp=0).epoch()
            job.push(("a", 2), timestamp=8).epoch()
            job.push(("a", 3), timestamp=4).epoch()
            assert job.output == [[1, 2, 3]]

    def test_a_never_trigger_never_fires(self, env):
        with JobHarness(keyed(env).time_window(10).trigger(NeverTrigger()).apply(held)) as job:
            assert job.push(("a", 1), timestamp=1).end().output == []
            assert job.timers() == []

    @pytest.mark.parametrize("records", [None, 1])
    def test_a_continuous_event_time_trigger_fires_every_interval_and_at_the_end(self, env, records):
        windows = keyed(env).window(TumblingEventTimeWindows.of(10))
        with JobHarness(windows.trigger(ContinuousEventTimeTrigger.of(Time.milliseconds(4))).reduce(add)) as job:
            job.push(("a", 1), timestamp=1).push_watermark(4).push(("a", 2), timestamp=6).push_watermark(8)
            job.push(("a", 4), timestamp=9).push_watermark(9).push(("a", 8), timestamp=9).epochs(records or 100)
            assert job.output == [("a", 1), ("a", 3), ("a", 7)]
            job.end()
            assert job.timers() == []

    def test_a_subclass_chooses_the_next_firing(self, env):
        class Doubling(ContinuousEventTimeTrigger):
            def register_next_fire_timestamp(self, time, window, ctx, fire_timestamp_state):
                super().register_next_fire_timestamp(2 * time, window, ctx, fire_timestamp_state)

        windows = keyed(env).window(TumblingEventTimeWindows.of(100)).trigger(Doubling(4))
        with JobHarness(windows.reduce(add)) as job:
            job.push(("a", 1), timestamp=1)
            fired = []
            for watermark in range(100):
                job.push_watermark(watermark).epoch()
                fired += [watermark] * (len(job.output) - len(fired))
            # 0 + 4, 2 * 4 + 4, 2 * 12 + 4, 2 * 28 + 4, and the end of the window.
            assert fired == [4, 12, 28, 60, 99]

    @pytest.mark.parametrize("records", [None, 1])
    def test_a_continuous_event_time_trigger_on_a_global_window_ends_with_the_input(self, env, records):
        windows = keyed(env).window(GlobalWindows.create())
        with JobHarness(windows.trigger(ContinuousEventTimeTrigger.of(Time.hours(1))).reduce(add)) as job:
            job.push(("a", 1), timestamp=1).push(("a", 2), timestamp=2).push(("b", 5), timestamp=9_000_000)
            job.run(records)
            # At the next full hour, and at the end of time.
            assert sorted(job.output) == [("a", 3), ("a", 3), ("b", 5), ("b", 5)]

    def test_a_continuous_event_time_trigger_on_a_global_window_fires_every_interval_before_the_end(self, env):
        windows = keyed(env).window(GlobalWindows.create())
        trigger = PurgingTrigger.of(ContinuousEventTimeTrigger.of(10))
        with JobHarness(windows.trigger(trigger).reduce(add)) as job:
            for time in (1, 2, 11, 25, 26, 48, 49):
                job.push(("a", 1), timestamp=time).push_watermark(time)
            job.epochs(3)
            assert job.output == [("a", 3), ("a", 1), ("a", 2)]
            assert job.end().output == [("a", 3), ("a", 1), ("a", 2), ("a", 1)]

    def test_a_trigger_that_sets_endless_timers_is_an_error_at_the_end_of_the_input(self, env):
        class Again(CountTrigger):
            def on_element(self, element, timestamp, window, ctx):
                ctx.register_event_time_timer(timestamp + 1)
                return TriggerResult.CONTINUE

            def on_event_time(self, time, window, ctx):
                ctx.register_event_time_timer(time + 1)
                return TriggerResult.CONTINUE

        with JobHarness(keyed(env).window(GlobalWindows.create()).trigger(Again(1)).reduce(add).uid("w")) as job:
            job.push(("a", 1), timestamp=1)
            with pytest.raises(UserFunctionFailed, match=r"uid 'w'[\s\S]*further timers at the end of the input"):
                job.run()

    def test_a_continuous_event_time_trigger_continues_when_sessions_merge(self, env):
        windows = keyed(env).window(EventTimeSessionWindows.with_gap(10)).trigger(ContinuousEventTimeTrigger.of(20))
        with JobHarness(windows.reduce(add)) as job:
            job.push(("a", 1), timestamp=11).push(("a", 2), timestamp=25).push(("a", 4), timestamp=18).epoch()
            job.push_watermark(20).epoch()
            assert job.output == [("a", 7)]
            job.push_watermark(100).epoch()
            assert job.output == [("a", 7), ("a", 7)]
            assert job.timers() == []

    def test_a_continuous_processing_time_trigger_fires_every_interval_of_the_clock(self, env):
        windows = keyed(env).window(TumblingProcessingTimeWindows.of(Time.seconds(1)))
        with JobHarness(
            windows.trigger(ContinuousProcessingTimeTrigger.of(Duration.of_millis(300))).reduce(add)
        ) as job:
            job.set_clock(1000).push(("a", 1)).epoch()
            job.set_clock(1250).push(("a", 2)).epoch()
            # Every full 300 ms of the clock: at 1200, and then not before 1500.
            assert job.output == [("a", 1)]
            job.set_clock(1600)
            assert job.output == [("a", 1), ("a", 3)]
            job.set_clock(5000)
            assert job.output == [("a", 1), ("a", 3), ("a", 3), ("a", 3)]
            assert job.timers() == []

    def test_a_delta_trigger_fires_when_a_record_is_far_from_that_of_the_last_firing(self, env):
        trigger = DeltaTrigger.of(5, lambda old, new: new[1] - old[1])
        with JobHarness(keyed(env).window(GlobalWindows.create()).trigger(trigger).apply(held)) as job:
            assert job.push(*[("a", n) for n in (0, 3, 6, 7, 11, 12)]).run(1) == [[0, 3, 6], [0, 3, 6, 7, 11, 12]]

    def test_a_custom_trigger_can_use_state_and_timers(self, env):
        class EarlyAndLate(Trigger):
            """Fires with the first record, then fires and purges when the watermark reaches the window's end."""

            first = ValueStateDescriptor("first", Types.BOOLEAN())

            def on_element(self, element, timestamp, window, ctx):
                state = ctx.get_partitioned_state(self.first)
                if state.value() is None:
                    state.update(True)
                    ctx.register_event_time_timer(window.max_timestamp())
                    return TriggerResult.FIRE
                return TriggerResult.CONTINUE

            def on_processing_time(self, time, window, ctx):
                return TriggerResult.CONTINUE

            def on_event_time(self, time, window, ctx):
                return TriggerResult.FIRE_AND_PURGE

            def on_merge(self, window, ctx):
                pass

            def clear(self, window, ctx):
                ctx.get_partitioned_state(self.first).clear()
                ctx.delete_event_time_timer(window.max_timestamp())

        with JobHarness(keyed(env).time_window(10).trigger(EarlyAndLate()).apply(held)) as job:
            job.push(("a", 1), timestamp=1).push(("a", 2), timestamp=2).push(("a", 3), timestamp=12)
            assert job.run(1) == [[1], [3], [1, 2], [3]]

    def test_a_custom_trigger_can_merge_lists_and_aggregates(self, env):
        class Longest(AggregateFunction):
            def create_accumulator(self):
                return 0

            def add(self, value, accumulator):
                return max(value, accumulator)

            def get_result(self, accumulator):
                return f"longest {accumulator}"

            def merge(self, acc_a, acc_b):
                return max(acc_a, acc_b)

        lengths = ListStateDescriptor("lengths", Types.LONG())
        longest = AggregatingStateDescriptor("longest", Longest(), Types.LONG())

        class AllThree(EventTimeTrigger):
            """Fires with the record after which its states contain all three lengths."""

            def on_element(self, element, timestamp, window, ctx):
                ctx.get_partitioned_state(lengths).add(element[1])
                ctx.get_partitioned_state(longest).add(element[1])
                found = sorted(ctx.get_partitioned_state(lengths)), ctx.get_partitioned_state(longest).get()
                return TriggerResult.FIRE if found == ([1, 2, 3], "longest 3") else TriggerResult.CONTINUE

            def on_merge(self, window, ctx):
                ctx.merge_partitioned_state(lengths)
                ctx.merge_partitioned_state(longest)

        windows = keyed(env).window(EventTimeSessionWindows.with_gap(5)).trigger(AllThree())
        with JobHarness(windows.apply(held)) as job:
            job.push(("a", 1), timestamp=0).push(("a", 3), timestamp=8).push(("a", 2), timestamp=4).epochs(1)
            assert [sorted(row) for row in job.output] == [[1, 2, 3]]

    def test_a_trigger_result_of_none_is_refused(self, env):
        class Forgetful(CountTrigger):
            def on_element(self, element, timestamp, window, ctx):
                pass

        with (
            JobHarness(keyed(env).time_window(10).trigger(Forgetful(1)).apply(held)) as job,
            pytest.raises(UserFunctionFailed, match="Forgetful returned None; a trigger must return a TriggerResult"),
        ):
            job.push(("a", 1), timestamp=1).epoch()


class TestEvictors:
    @pytest.mark.parametrize("records", [None, 1])
    def test_evicted_records_are_removed_permanently(self, env, records):
        windows = keyed(env).window(GlobalWindows.create()).trigger(CountTrigger.of(2)).evictor(CountEvictor.of(3))
        with JobHarness(windows.apply(held)) as job:
            assert job.push(*[("a", n) for n in range(6)]).run(records) == [[0, 1], [1, 2, 3], [3, 4, 5]]

    def test_an_evictor_can_evict_after_the_function(self, env):
        windows = keyed(env).window(GlobalWindows.create()).trigger(CountTrigger.of(2))
        with JobHarness(windows.evictor(CountEvictor.of(1, True)).apply(held)) as job:
            assert job.push(*[("a", n) for n in range(6)]).run(1) == [[0, 1], [1, 2, 3], [3, 4, 5]]

    def test_time_and_delta_evictors_remove_distant_records(self, env):
        windows = keyed(env).time_window(100).evictor(TimeEvictor.of(Time.milliseconds(10)))
        with JobHarness(windows.apply(held)) as job:
            for time in (5, 50, 45, 40):
                job.push(("a", time), timestamp=time)
            assert job.run(1) == [[50, 45]]
        windows = keyed(StreamExecutionEnvironment.get_execution_environment()).time_window(100)
        with JobHarness(windows.evictor(DeltaEvictor.of(3, lambda a, b: abs(a[1] - b[1]))).apply(held)) as job:
            assert job.push(*[("a", n) for n in (1, 9, 5, 8)], timestamp=1).run(2) == [[9, 8]]

    def test_reduce_and_aggregate_use_the_remaining_records(self, env):
        windows = keyed(env).window(GlobalWindows.create()).trigger(CountTrigger.of(2)).evictor(CountEvictor.of(3))
        with JobHarness(windows.reduce(add)) as job:
            assert job.push(*[("a", n) for n in range(6)]).run(1) == [("a", 1), ("a", 6), ("a", 12)]

    def test_a_custom_evictor_sees_timestamps_and_the_watermark(self, env):
        class Odd(Evictor):
            def evict_before(self, elements, size, window, evictor_context):
                assert size == len(elements)
                assert evictor_context.get_current_watermark() >= window.max_timestamp()
                elements[:] = [each for each in elements if each.timestamp % 2]

            def evict_after(self, elements, size, window, evictor_context):
                pass

        with JobHarness(keyed(env).time_window(10).evictor(Odd()).apply(held)) as job:
            for time in (1, 2, 3, 4):
                job.push(("a", time), timestamp=time)
            assert job.run(1) == [[1, 3]]

    @pytest.mark.parametrize("evictor", [None, CountEvictor.of(10)])
    def test_changes_made_by_a_function_do_not_affect_stored_records(self, env, evictor):
        def spoil(key, window, inputs):
            for each in inputs:
                each[1].append("changed")
            return [len(each[1]) for each in inputs]

        windows = keyed(env).window(GlobalWindows.create()).trigger(CountTrigger.of(1))
        if evictor is not None:
            windows.evictor(evictor)
        with JobHarness(windows.apply(spoil)) as job:
            assert job.push(("a", []), ("a", []), ("a", [])).run() == [1, 1, 1, 1, 1, 1]

    def test_an_evictor_works_with_sessions(self, env):
        windows = keyed(env).window(EventTimeSessionWindows.with_gap(5)).evictor(CountEvictor.of(2))
        with JobHarness(windows.apply(held)) as job:
            for time in (0, 4, 8):
                job.push(("a", time), timestamp=time)
            assert job.run(1) == [[4, 8]]


LATE = OutputTag("late")


class TestLateRecords:
    @pytest.mark.parametrize("assigner", [TumblingEventTimeWindows.of(10), SlidingEventTimeWindows.of(10, 5)])
    @pytest.mark.parametrize("how", ["reduce", "apply"])
    def test_late_records_are_dropped_and_counted(self, env, assigner, how):
        windows = keyed(env).window(assigner)
        stream = windows.reduce(add) if how == "reduce" else windows.apply(held)
        with JobHarness(stream.uid("w")) as job:
            job.push(("a", 1), timestamp=1).push_watermark(30).push(("a", 2), timestamp=2).push(("a", 4), timestamp=3)
            job.epoch()
            given = len(job.output)
            job.push(("a", 8), timestamp=5).push_watermark(50).epoch()
            assert len(job.output) == given
            assert job.metrics()["w.numLateRecordsDropped"] == 3

    @pytest.mark.parametrize("lateness", [0, 5])
    def test_late_records_go_to_a_side_output_with_their_timestamps(self, env, lateness):
        class Stamp(ProcessFunction):
            def process_element(self, value, ctx):
                yield value, ctx.timestamp()

        windows = keyed(env).window(TumblingEventTimeWindows.of(10)).allowed_lateness(lateness)
        stream = windows.side_output_late_data(LATE).reduce(add).uid("w")
        with JobHarness(stream.get_side_output(LATE).process(Stamp())) as job:
            job.push(("a", 1), timestamp=1).push_watermark(13).push(("a", 2), timestamp=2).epoch()
            job.push(("a", 4), timestamp=10).push(("a", 8), timestamp=9).push_watermark(15).push(("a", 16), timestamp=3)
            job.epoch()
            dropped = [(("a", 16), 3)]
            assert job.output == (dropped if lateness else [(("a", 2), 2), (("a", 8), 9), *dropped])
            assert job.metrics()["w.numLateRecordsDropped"] == 0

    def test_a_record_is_late_only_for_windows_that_have_ended(self, env):
        with JobHarness(keyed(env).window(SlidingEventTimeWindows.of(10, 5)).reduce(add).uid("w")) as job:
            job.push_watermark(11).push(("a", 1), timestamp=7).push(("a", 2), timestamp=4).push_watermark(30).epoch()
            assert job.output == [("a", 1)]
            assert job.metrics()["w.numLateRecordsDropped"] == 1

    @pytest.mark.parametrize("records", [None, 1])
    def test_a_late_record_within_the_allowed_lateness_makes_the_window_fire_again(self, env, records):
        windows = keyed(env).window(TumblingEventTimeWindows.of(10)).allowed_lateness(Duration.of_millis(5))
        with JobHarness(windows.reduce(add).uid("w")) as job:
            job.push(("a", 1), timestamp=1).push_watermark(9).push(("a", 2), timestamp=2).push_watermark(13)
            job.push(("a", 4), timestamp=9).push_watermark(14).push(("a", 8), timestamp=9)
            job.epochs(records or 100)
            assert job.output == [("a", 1), ("a", 3), ("a", 7)]
            assert job.timers() == []
            assert job.metrics()["w.numLateRecordsDropped"] == 1

    def test_a_late_session_is_dropped_unless_it_touches_an_open_one(self, env):
        windows = keyed(env).window(EventTimeSessionWindows.with_gap(5)).side_output_late_data(LATE)
        stream = windows.process(Both())
        both = stream.union(stream.get_side_output(LATE).map(lambda value: ("late", value[1])))
        with JobHarness(both) as job:
            job.push(("a", 10), timestamp=10).push_watermark(12).push(("a", 1), timestamp=1).push(("a", 6), timestamp=6)
            job.push_watermark(100).epoch()
            assert sorted(job.output, key=str) == [("late", 1), (6, 15, [6, 10])]


class Both(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield context.window().start, context.window().end, sorted(element[1] for element in elements)


class OwnAssigner(WindowAssigner[tuple, TimeWindow]):
    """Assigns the window that the record itself names."""

    def assign_windows(self, element, timestamp, context):
        return [TimeWindow(*element[2])]

    def get_default_trigger(self, env):
        return EventTimeTrigger.create()

    def get_window_serializer(self):
        return TimeWindowSerializer()

    def is_event_time(self):
        return True


class TestCustomAssigners:
    def test_a_custom_assigner_can_assign_any_windows(self, env):
        with JobHarness(keyed(env).window(OwnAssigner()).apply(held)) as job:
            job.push(("a", 1, (0, 5)), ("a", 2, (3, 8)), ("a", 4, (0, 5)), timestamp=1)
            assert job.run(1) == [[1, 4], [2]]

    def test_an_assigner_that_returns_windows_of_another_kind_is_refused(self, env):
        class Mismatched(OwnAssigner):
            def assign_windows(self, element, timestamp, context):
                return [CountWindow(1)]

        with (
            JobHarness(keyed(env).window(Mismatched()).apply(held)) as job,
            pytest.raises(UserFunctionFailed, match=r"returned CountWindow\(id=1\)"),
        ):
            job.push(("a", 1), timestamp=1).epoch()


class TestMistakes:
    @pytest.mark.parametrize("how", ["reduce", "apply"])
    def test_records_without_timestamps_name_the_operator_and_the_fix(self, env, how):
        windows = env.from_collection([("a", 1)]).key_by(lambda value: value[0]).time_window(10)
        stream = (windows.reduce(add) if how == "reduce" else windows.apply(held)).name("hourly").uid("h-1")
        with (
            JobHarness(stream) as job,
            pytest.raises(UserFunctionFailed, match=r"'hourly' \(uid 'h-1'\).*assign_timestamps_and_watermarks"),
        ):
            job.epoch()

    def test_a_single_record_without_a_timestamp_is_refused(self, env):
        with (
            JobHarness(keyed(env).time_window(10).reduce(add)) as job,
            pytest.raises(UserFunctionFailed, match="assign_timestamps_and_watermarks"),
        ):
            job.push(("a", 1), timestamp=1).push(("a", 2)).epoch()

    @pytest.mark.parametrize("lateness", [0, 1])
    def test_a_value_that_does_not_match_the_declared_type_names_the_state(self, env, lateness):
        stream = env.from_collection([], type_info=Types.LONG()).key_by(lambda value: 0).time_window(10)
        with (
            JobHarness(stream.allowed_lateness(lateness).reduce(lambda a, b: "x")) as job,
            pytest.raises(UserFunctionFailed, match="State 'contents': The str 'x' is not a long"),
        ):
            job.push(1, 2, timestamp=1).epoch()

    def test_a_function_of_another_kind_is_refused(self, env):
        class Applied(WindowFunction):
            def apply(self, key, window, inputs):
                return []

        class OfAll(AllWindowFunction):
            def apply(self, window, inputs):
                return []

        windows = keyed(env).time_window(10)
        for call, message in [
            (lambda: windows.process(Applied()), "process needs a function or an instance of ProcessWindowFunction"),
            (lambda: windows.apply(OfAll()), "apply needs a function or an instance of WindowFunction, not OfAll"),
            (lambda: windows.apply(Applied), r"received the class Applied.*Write apply\(Applied\(\)\)"),
            (
                lambda: windows.reduce(add, lambda *given: []),
                "must be an instance of WindowFunction or ProcessWindowFunction",
            ),
            (lambda: windows.reduce(Applied()), "reduce needs a ReduceFunction or a function, not Applied"),
            (
                lambda: windows.aggregate(add),
                "needs an AggregateFunction, not function, which lacks create_accumulator",
            ),
            (lambda: windows.trigger(CountTrigger), "needs a Trigger, not CountTrigger"),
            (lambda: windows.evictor(3), "needs an Evictor, not int"),
            (lambda: windows.allowed_lateness(-1), "must not be negative, but is -1 ms"),
            (lambda: windows.side_output_late_data("late"), "needs an OutputTag, not str"),
            (lambda: keyed(env).window(10), "needs a WindowAssigner, not int"),
            (
                lambda: keyed(env).window(EventTimeSessionWindows.with_gap(5)).trigger(DeltaTrigger.of(1, max)),
                "DeltaTrigger cannot merge, but the windows of EventTimeSessionWindows",
            ),
        ]:
            with pytest.raises(GraphError, match=message):
                call()

    def test_a_failing_function_is_reported_with_its_record(self, env):
        def fails(first, second):
            raise ValueError("no")

        with (
            JobHarness(keyed(env).time_window(10).reduce(fails).name("sums")) as job,
            pytest.raises(UserFunctionFailed, match="no") as failed,
        ):
            job.push(("a", 1), ("a", 2), timestamp=1).epoch()
        assert (failed.value.failures[0].operator, failed.value.failures[0].record) == ("sums", "('a', 2)")
