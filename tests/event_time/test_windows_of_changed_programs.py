"""Windows restored by a program with another trigger, lateness or size: when they fire, and what stays in state."""

import struct

import pytest

from penstock.common import Time, WatermarkStrategy
from penstock.datastream import AggregateFunction, ProcessWindowFunction, StreamExecutionEnvironment, Trigger
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.errors import PenstockError
from penstock.testing import JobHarness

STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])
TUMBLING = TumblingEventTimeWindows.of(Time.milliseconds(100))


def summed(first, second):
    return first[0], max(first[1], second[1]), first[2] + second[2]


def difference(one, other):
    return abs(other[1] - one[1])


def windowed(assigner=TUMBLING, trigger=None, late=0, evictor=None):
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).uid("s").assign_timestamps_and_watermarks(STRATEGY).uid("t")
    windows = stream.key_by(lambda value: value[0]).window(assigner)
    if late:
        windows = windows.allowed_lateness(late)
    if trigger is not None:
        windows = windows.trigger(trigger)
    if evictor is not None:
        windows = windows.evictor(evictor)
    return windows


def sums(**options):
    return windowed(**options).reduce(summed).uid("w")


def left(job, operator="w"):
    """Return the number of entries in an operator's state, including timers."""
    with job.committed().reading(None, operator) as (overlay, replicas):
        readers = [(group, replicas.reader(group)) for group in range(overlay.max_parallelism)]
        return sum(len(list(reader.scan(struct.pack(">H", group)))) for group, reader in readers if reader is not None)


def records(key, *times):
    return [(key, time, 1) for time in times]


class Eager(Trigger):
    """Fires on every timer, and sets one for the end of the window."""

    def on_element(self, element, timestamp, window, ctx):
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.FIRE

    def on_event_time(self, time, window, ctx):
        return TriggerResult.FIRE

    def on_merge(self, window, ctx):
        ctx.register_event_time_timer(window.max_timestamp())

    def can_merge(self):
        return True

    def clear(self, window, ctx):
        ctx.delete_event_time_timer(window.max_timestamp())


class TestChangeToTheDefaultTrigger:
    def test_the_default_trigger_ignores_timers_of_a_continuous_trigger(self, tmp_path):
        with JobHarness(sums(trigger=ContinuousEventTimeTrigger.of(10))) as job:
            job.push(*records("a", 1, 2)).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(sums(), from_savepoint=path) as job:
            job.push(*records("a", 5, 50, 60)).epoch()
            assert job.output == []
            job.push(*records("a", 500)).epoch()
            assert job.output == [("a", 60, 5)]
            job.end()
            assert left(job) == 0

    def test_the_default_trigger_does_not_fire_again_if_the_lateness_was_reduced(self, tmp_path):
        with JobHarness(sums(late=1000)) as job:
            job.push(*records("a", 1, 2, 150)).epoch()
            assert job.output == [("a", 2, 2)]
            path = job.savepoint(tmp_path)
        with JobHarness(sums(), from_savepoint=path) as job:
            job.push(*records("a", 5000)).epoch()
            assert job.output == [("a", 150, 1)]
            job.end()
            assert left(job) == 0

    @pytest.mark.parametrize("late", [0, 50])
    def test_the_default_trigger_keeps_the_contents_of_windows_of_another_trigger(self, tmp_path, late):
        """Under a CountTrigger, a window with a lateness has no timer at its end, only one for its removal."""
        for number, trigger in enumerate([CountTrigger.of(5), NeverTrigger(), PurgingTrigger.of(CountTrigger.of(5))]):
            with JobHarness(sums(trigger=trigger, late=late)) as job:
                job.push(*records("a", 1, 2), *records("b", 3)).epoch()
                path = job.savepoint(tmp_path / str(number))
            with JobHarness(sums(), from_savepoint=path) as job:
                job.push(*records("a", 5)).epoch()
                job.crash()
                job.push(*records("a", 7)).epoch()
                job.push(*records("a", 120)).epoch()
                assert ("a", 7, 4) in job.output
                job.push(*records("a", 5000)).epoch()
                job.end()
                assert left(job) == 0
                assert sum(1 for result in job.output if result[0] == "a") == 3

    def test_the_default_trigger_fires_at_the_end_if_only_an_early_timer_was_set(self, tmp_path):
        class Halfway(Eager):
            def on_element(self, element, timestamp, window, ctx):
                ctx.register_event_time_timer(window.start + 50)
                return TriggerResult.CONTINUE

        with JobHarness(sums(trigger=Halfway(), late=1000)) as job:
            job.push(*records("a", 1, 2)).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(sums(), from_savepoint=path) as job:
            job.push(*records("b", 70)).epoch()
            assert job.output == []
            job.push(*records("b", 5000)).epoch()
            assert sorted(job.output) == [("a", 2, 2), ("b", 70, 1)]
            job.end()
            assert left(job) == 0

    def test_the_default_trigger_fires_each_window_once_over_many_epochs_and_subtasks(self, tmp_path):
        trigger = ContinuousEventTimeTrigger.of(7)
        keys = [f"key {number}" for number in range(20)]
        with JobHarness(sums(trigger=trigger, late=300), parallelism=3) as job:
            for time in range(0, 250, 10):
                job.push(*[(key, time, 1) for key in keys]).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(sums(), parallelism=2, from_savepoint=path) as job:
            for time in range(250, 1000, 30):
                job.push(*[(key, time, 1) for key in keys]).epoch()
                job.crash()
            job.end()
            counts = {key: [] for key in keys}
            for key, last, count in job.output:
                counts[key].append((last // 100 * 100, count))
            times = [*range(0, 250, 10), *range(250, 1000, 30)]
            expected = [(start, sum(1 for t in times if start <= t < start + 100)) for start in range(200, 1000, 100)]
            assert all(found == expected for found in counts.values())
            assert left(job) == 0

    def test_windows_kept_for_late_records_call_clear_of_the_function(self, tmp_path):
        class Counting(ProcessWindowFunction):
            def process(self, key, context, elements):
                state = context.window_state().get_state(ValueStateDescriptor("seen", int))
                state.update((state.value() or 0) + 1)
                yield key, context.window().start, next(iter(elements))[2]

            def clear(self, context):
                context.window_state().get_state(ValueStateDescriptor("seen", int)).clear()

        def program(late):
            return windowed(late=late).reduce(summed, window_function=Counting()).uid("w")

        with JobHarness(program(1000)) as job:
            job.push(*records("a", 1, 150)).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(program(0), from_savepoint=path) as job:
            job.push(*records("a", 5000)).epoch()
            assert job.output == [("a", 100, 1)]
            job.end()
            assert left(job) == 0


class TestIncreasedLateness:
    @pytest.mark.parametrize("trigger", [None, EventTimeTrigger(), PurgingTrigger.of(EventTimeTrigger())])
    def test_an_increased_lateness_removes_windows_that_only_had_a_timer_for_their_end(self, tmp_path, trigger):
        with JobHarness(sums()) as job:
            job.push(*records("a", 1, 2)).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(sums(trigger=trigger, late=1000), from_savepoint=path) as job:
            job.push(*records("b", 150)).epoch()
            assert job.output == [("a", 2, 2)]
            job.push(*records("b", 1050)).epoch()
            job.push(*records("a", 7)).epoch()
            again = ("a", 7, 1) if isinstance(trigger, PurgingTrigger) else ("a", 7, 3)
            assert job.output[-1] == again
            job.push(*records("b", 1200)).epoch()
            job.push(*records("a", 8)).epoch()
            assert job.output[-1] != ("a", 8, 1)
            job.push(*records("b", 9000)).epoch()
            job.end()
            assert left(job) == 0

    def test_an_increased_lateness_removes_sessions(self, tmp_path):
        sessions = EventTimeSessionWindows.with_gap(10)
        with JobHarness(sums(assigner=sessions)) as job:
            job.push(*records("a", 1, 5)).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(sums(assigner=sessions, late=100), from_savepoint=path) as job:
            job.push(*records("b", 50)).epoch()
            assert job.output == [("a", 5, 2)]
            job.push(*records("b", 9000)).epoch()
            job.end()
            assert left(job) == 0


class TestSessions:
    def test_sessions_kept_for_an_earlier_lateness_neither_fire_nor_merge_again(self, tmp_path):
        sessions = EventTimeSessionWindows.with_gap(100)
        with JobHarness(sums(assigner=sessions, late=1000)) as job:
            job.push(*records("a", 1), *records("b", 150)).epoch()
            assert job.output == [("a", 1, 1)]
            path = job.savepoint(tmp_path)
        with JobHarness(sums(assigner=sessions), from_savepoint=path) as job:
            job.push(*records("a", 100)).epoch()
            job.push(*records("b", 5000)).epoch()
            assert sorted(job.output) == [("a", 100, 1), ("b", 150, 1)]
            job.end()
            assert left(job) == 0

    def test_sessions_ignore_timers_of_a_continuous_trigger(self, tmp_path):
        sessions = EventTimeSessionWindows.with_gap(100)
        with JobHarness(sums(assigner=sessions, trigger=ContinuousEventTimeTrigger.of(10))) as job:
            job.push(*records("a", 1, 2)).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(sums(assigner=sessions), from_savepoint=path) as job:
            job.push(*records("a", 50, 60)).epoch()
            assert job.output == []
            job.push(*records("b", 5000)).epoch()
            assert job.output == [("a", 60, 4)]
            job.end()
            assert left(job) == 0


class TestContinuousTriggers:
    def test_a_continuous_trigger_with_another_interval_fires_only_at_its_multiples(self, tmp_path):
        with JobHarness(sums(trigger=ContinuousEventTimeTrigger.of(10))) as job:
            job.push(*records("a", 1, 2)).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(sums(trigger=ContinuousEventTimeTrigger.of(40)), from_savepoint=path) as job:
            job.push(*records("a", 30)).epoch()
            assert job.output == []
            job.push(*records("a", 45)).epoch()
            assert job.output == [("a", 30, 3)] or job.output == [("a", 45, 4)]
            job.push(*records("b", 500)).epoch()
            job.end()
            assert left(job) == 0

    def test_a_continuous_trigger_continues_after_another_trigger_consumed_its_timer(self, tmp_path):
        with JobHarness(sums(trigger=ContinuousEventTimeTrigger.of(10))) as job:
            job.push(*records("a", 1)).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(sums(late=5), from_savepoint=path) as job:
            job.push(*records("a", 32)).epoch()
            assert job.output == []
            path = job.savepoint(tmp_path)
        with JobHarness(sums(trigger=ContinuousEventTimeTrigger.of(10)), from_savepoint=path) as job:
            job.push(*records("a", 35), *records("a", 41)).epoch()
            assert job.output
            job.push(*records("a", 62)).epoch()
            assert ("a", 41, 4) in job.output or ("a", 62, 5) in job.output

    def test_the_default_trigger_ignores_timers_of_a_continuous_processing_time_trigger(self, tmp_path):
        windows = TumblingProcessingTimeWindows.of(100)
        with JobHarness(sums(assigner=windows, trigger=ContinuousProcessingTimeTrigger.of(10))) as job:
            job.set_clock(1001).push(*records("a", 1, 2)).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(sums(assigner=windows), from_savepoint=path) as job:
            job.set_clock(1050)
            assert job.output == []
            job.set_clock(1200)
            assert job.output == [("a", 2, 2)]
            assert left(job) == 0

    def test_a_continuous_processing_time_trigger_fires_at_the_end_of_windows_of_the_default_trigger(self, tmp_path):
        windows = TumblingProcessingTimeWindows.of(100)
        with JobHarness(sums(assigner=windows)) as job:
            job.set_clock(1001).push(*records("a", 1, 2)).epoch()
            path = job.savepoint(tmp_path)
        trigger = ContinuousProcessingTimeTrigger.of(1000)
        with JobHarness(sums(assigner=windows, trigger=trigger), from_savepoint=path) as job:
            job.set_clock(1200)
            assert job.output == [("a", 2, 2)]
            assert left(job) == 0


class TestChangedSize:
    @pytest.mark.parametrize(
        "assigner",
        [
            TumblingEventTimeWindows.of(50),
            TumblingEventTimeWindows.of(250),
            TumblingEventTimeWindows.of(100, 30),
            SlidingEventTimeWindows.of(100, 50),
            SlidingEventTimeWindows.of(100, 20, 10),
        ],
    )
    def test_windows_of_the_previous_size_fire_once(self, tmp_path, assigner):
        with JobHarness(sums()) as job:
            job.push(*records("a", 1, 2)).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(sums(assigner=assigner), from_savepoint=path) as job:
            job.push(*records("b", 20)).epoch()
            job.push(*records("b", 5000)).epoch()
            assert [result for result in job.output if result[0] == "a"] == [("a", 2, 2)]
            job.end()
            assert left(job) == 0


class TestChangedKind:
    def test_processing_time_windows_become_event_time_windows(self, tmp_path):
        with JobHarness(sums(assigner=TumblingProcessingTimeWindows.of(100))) as job:
            job.set_clock(20).push(*records("a", 1, 2), *records("c", 1)).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(sums(), from_savepoint=path) as job:
            job.push(*records("a", 30)).epoch()
            job.set_clock(1000)
            job.push(*records("b", 5000)).epoch()
            assert sorted(job.output) == [("a", 30, 3), ("c", 1, 1)]
            job.end()
            assert left(job) == 0

    def test_event_time_windows_are_removed_by_a_global_window(self, tmp_path):
        with JobHarness(sums()) as job:
            job.push(*records("a", 1, 2)).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(sums(assigner=GlobalWindows.create(), trigger=CountTrigger.of(2)), from_savepoint=path) as job:
            job.push(*records("b", 500)).epoch()
            assert job.output == []
            job.push(*records("a", 600, 601)).epoch()
            assert job.output == [("a", 601, 2)]
            job.push(*records("a", 602)).epoch()
            assert job.timers() == []
            # The contents of the global windows of both keys, and the counts of their trigger.
            assert left(job) == 4

    def test_global_windows_are_removed_by_event_time_windows(self, tmp_path):
        """Only its timers reveal a global window."""
        with JobHarness(sums(assigner=GlobalWindows.create(), trigger=ContinuousEventTimeTrigger.of(10))) as job:
            job.push(*records("a", 1, 2)).epoch()
            path = job.savepoint(tmp_path)
        for number, late in enumerate((0, 100)):
            with JobHarness(sums(late=late), from_savepoint=path) as job:
                job.push(*records("b", 50)).epoch()
                job.push(*records("b", 5000)).epoch()
                assert job.output == [("b", 50, 1)], number
                job.end()
                assert left(job) == 0


TRIGGERS = {
    "none": None,
    "continuous": ContinuousEventTimeTrigger.of(30),
    "count": CountTrigger.of(2),
    "purging": PurgingTrigger.of(ContinuousEventTimeTrigger.of(20)),
    "clock": ContinuousProcessingTimeTrigger.of(10),
    "by the clock": ProcessingTimeTrigger(),
    "delta": DeltaTrigger.of(10, difference),
    "own": Eager(),
    "never": NeverTrigger(),
}


class Sum(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value[2]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, first, second):
        return first + second


def aggregates(assigner, trigger, late):
    return windowed(assigner, TRIGGERS[trigger], late).aggregate(Sum()).uid("w")


class TestAllChanges:
    @pytest.mark.parametrize("after", TRIGGERS)
    def test_any_change_of_trigger_leaves_nothing_in_state(self, tmp_path, after):
        for number, before in enumerate(TRIGGERS):
            late, late_after = ((0, 60), (60, 0), (200, 60))[number % 3]
            assigner = (TUMBLING, SlidingEventTimeWindows.of(100, 50))[number % 2]

            with JobHarness(aggregates(assigner, before, late), parallelism=2) as job:
                job.set_clock(1000).push(*records("a", 1, 2, 120), *records("b", 130)).epoch()
                path = job.savepoint(tmp_path / before)
            with JobHarness(aggregates(assigner, after, late_after), parallelism=3, from_savepoint=path) as job:
                job.push(*records("a", 140), *records("b", 180)).epoch()
                job.crash()
                job.set_clock(5000)
                job.push(*records("b", 1000)).epoch()
                job.push(*records("b", 2000)).epoch()
                job.set_clock(10_000)
                job.end()
                assert left(job) == 0, before

    @pytest.mark.parametrize("before", [name for name in TRIGGERS if name != "purging"])
    def test_a_change_to_the_default_trigger_fires_each_touched_window_once_with_all_its_contents(
        self, tmp_path, before
    ):
        with JobHarness(sums(trigger=TRIGGERS[before], late=60)) as job:
            job.set_clock(1000).push(*records("a", 101, 102, 103), *records("b", 104)).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(sums(), from_savepoint=path) as job:
            job.push(*records("a", 140), *records("b", 145)).epoch()
            assert job.output == []
            job.push(*records("c", 10_000)).epoch()
            assert sorted(job.output) == [("a", 140, 4), ("b", 145, 2)]

    def test_a_change_of_trigger_with_an_evictor_leaves_nothing_in_state(self, tmp_path):
        def program(late, trigger=None):
            return windowed(late=late, trigger=trigger, evictor=TimeEvictor.of(50)).reduce(summed).uid("w")

        for number, (late, late_after) in enumerate([(0, 1000), (1000, 0)]):
            with JobHarness(program(late, ContinuousEventTimeTrigger.of(10))) as job:
                job.push(*records("a", 1, 2)).epoch()
                path = job.savepoint(tmp_path / str(number))
            with JobHarness(program(late_after), from_savepoint=path) as job:
                job.push(*records("b", 50)).epoch()
                assert job.output == []
                job.push(*records("b", 150)).epoch()
                assert sorted(job.output) == [("a", 2, 2), ("b", 50, 1)]
                job.push(*records("b", 9000)).epoch()
                job.end()
                assert left(job) == 0


class TestChangedEvictor:
    """A window with an evictor keeps records with their timestamps; one without keeps the records alone."""

    @pytest.mark.parametrize("evictors", [(None, CountEvictor.of(9)), (CountEvictor.of(9), None)])
    def test_adding_or_removing_an_evictor_is_refused(self, tmp_path, evictors):
        before, after = (windowed(evictor=evictor).process(Collected()).uid("w") for evictor in evictors)
        with JobHarness(before) as job:
            job.push(("a", 1, 1), ("a", 2, 1)).epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(after, from_savepoint=path) as job:
            with pytest.raises(PenstockError, match="evictor") as caught:
                job.push(("a", 5, 1), ("a", 500, 1)).epoch()
            assert "uid 'w'" in str(caught.value)
            assert job.output == []

    def test_changing_the_evictor_keeps_the_records(self, tmp_path):
        with JobHarness(windowed(evictor=CountEvictor.of(9)).process(Collected()).uid("w")) as job:
            job.push(("a", 1, 1), ("a", 2, 1)).epoch()
            path = job.savepoint(tmp_path)
        later = windowed(evictor=CountEvictor.of(2)).process(Collected()).uid("w")
        with JobHarness(later, from_savepoint=path) as job:
            job.push(("a", 5, 1), ("a", 500, 1)).epoch()
            assert job.output == [[("a", 2, 1), ("a", 5, 1)]]


class Collected(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield list(elements)
