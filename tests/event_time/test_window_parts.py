"""Windows, assigners and evictors in isolation."""

from datetime import timedelta

import pytest

from penstock.common import Duration, Time
from penstock.datastream.window import (
    BadWindows,
    CountEvictor,
    CountTrigger,
    CountWindow,
    CountWindowSerializer,
    DeltaEvictor,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindow,
    GlobalWindows,
    GlobalWindowSerializer,
    MergingWindowAssigner,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TimestampedValue,
    TimeWindow,
    TimeWindowSerializer,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from penstock.errors import PenstockError
from penstock.runtime.windows.merging import MergingWindowSet
from penstock.runtime.windows.window import WrongWindow


class Clock(WindowAssigner.WindowAssignerContext):
    def __init__(self, now=0):
        self.now = now

    def get_current_processing_time(self):
        return self.now

    def get_runtime_context(self):
        raise NotImplementedError


def spans(assigner, timestamp, now=0, element=None):
    return [(window.start, window.end) for window in assigner.assign_windows(element, timestamp, Clock(now))]


class TestTumbling:
    def test_tumbling_windows_are_contiguous_also_before_1970(self):
        windows = TumblingEventTimeWindows.of(Time.milliseconds(5))
        assert [spans(windows, time) for time in (-6, -5, -1, 0, 4, 5)] == [
            [(-10, -5)],
            [(-5, 0)],
            [(-5, 0)],
            [(0, 5)],
            [(0, 5)],
            [(5, 10)],
        ]

    @pytest.mark.parametrize(("offset", "expected"), [(2, (2, 7)), (-2, (3, 8)), (0, (0, 5))])
    def test_an_offset_shifts_the_start_of_windows(self, offset, expected):
        assert spans(TumblingEventTimeWindows.of(5, offset), 4 if offset >= 0 else 3) == [expected]

    def test_durations_of_every_kind_are_accepted(self):
        for size in (Time.seconds(5), Duration.of_seconds(5), timedelta(seconds=5), 5000):
            assert spans(TumblingEventTimeWindows.of(size), 1) == [(0, 5000)]

    def test_processing_time_windows_use_the_clock(self):
        assert spans(TumblingProcessingTimeWindows.of(5, 1), 100, now=7) == [(6, 11)]
        assert not TumblingProcessingTimeWindows.of(5).is_event_time()


class TestSliding:
    def test_a_record_is_in_every_window_that_contains_its_time(self):
        assert spans(SlidingEventTimeWindows.of(10, 4), 9) == [(8, 18), (4, 14), (0, 10)]
        assert spans(SlidingEventTimeWindows.of(10, 4, 1), 9) == [(9, 19), (5, 15), (1, 11)]
        assert spans(SlidingProcessingTimeWindows.of(10, 5), 0, now=-1) == [(-5, 5), (-10, 0)]

    def test_a_record_between_windows_is_in_no_window(self):
        assert spans(SlidingEventTimeWindows.of(2, 5), 3) == []


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return element


class TestSessions:
    def test_each_record_starts_a_session(self):
        assert spans(EventTimeSessionWindows.with_gap(Time.milliseconds(5)), 3) == [(3, 8)]
        assert spans(ProcessingTimeSessionWindows.with_gap(5), 3, now=10) == [(10, 15)]

    def test_a_gap_can_depend_on_the_record(self):
        assert spans(EventTimeSessionWindows.with_dynamic_gap(Gap()), 3, element=4) == [(3, 7)]
        assert spans(ProcessingTimeSessionWindows.with_dynamic_gap(lambda n: n), 0, now=1, element=4) == [(1, 5)]
        with pytest.raises(BadWindows, match="returned 0 as the gap of a session"):
            spans(DynamicEventTimeSessionWindows(Gap()), 3, element=0)

    def test_windows_that_overlap_or_touch_are_merged(self):
        merged = []

        class Recording(MergingWindowAssigner.MergeCallback):
            def merge(self, to_be_merged, merge_result):
                merged.append((sorted(to_be_merged), merge_result))

        windows = [TimeWindow(20, 25), TimeWindow(5, 9), TimeWindow(0, 5), TimeWindow(8, 12), TimeWindow(13, 14)]
        TimeWindow.merge_windows(windows, Recording())
        assert merged == [([TimeWindow(0, 5), TimeWindow(5, 9), TimeWindow(8, 12)], TimeWindow(0, 12))]

    def test_contents_stay_in_place_when_windows_merge(self):
        merges = []
        assigner, serializer = EventTimeSessionWindows.with_gap(5), TimeWindowSerializer()

        def add(stored, start):
            windows = MergingWindowSet(assigner, serializer, stored)
            window = windows.add(TimeWindow(start, start + 5), lambda *merge: merges.append(merge))
            return windows.dump(), window

        stored, _ = add(b"", 0)
        stored, _ = add(stored, 10)
        assert merges == []
        stored, window = add(stored, 5)
        assert window == TimeWindow(0, 15)
        assert merges == [
            (TimeWindow(0, 15), [TimeWindow(0, 5), TimeWindow(10, 15)], TimeWindow(0, 5), [TimeWindow(10, 15)])
        ]
        stored, window = add(stored, 3)
        assert (window, len(merges)) == (TimeWindow(0, 15), 1)
        assert MergingWindowSet(assigner, serializer, stored).state_window(window) == TimeWindow(0, 5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TumblingEventTimeWindows.of(0), "TumblingEventTimeWindows cannot have a size of 0 ms"),
        (lambda: TumblingProcessingTimeWindows.of(-5), "of -5 ms"),
        (lambda: TumblingEventTimeWindows.of(5, 5), "cannot have an offset of 5 ms"),
        (lambda: TumblingEventTimeWindows.of(5, -5), "cannot have an offset of -5 ms"),
        (lambda: SlidingEventTimeWindows.of(5, 0), "cannot have a slide of 0 ms"),
        (lambda: SlidingEventTimeWindows.of(0, 5), "cannot have a size of 0 ms"),
        (lambda: SlidingProcessingTimeWindows.of(5, 2, 2), "with a slide of 2 ms cannot have an offset of 2 ms"),
        (lambda: EventTimeSessionWindows.with_gap(0), "cannot have a gap of 0 ms"),
        (lambda: EventTimeSessionWindows.with_dynamic_gap(5), "not int"),
        (lambda: TumblingEventTimeWindows.of("5"), "Expected a length of time"),
    ],
)
def test_invalid_windows_are_refused_at_the_users_line(make, message):
    with pytest.raises(BadWindows, match=message) as refused:
        make()
    assert refused.value.locations[0].file == __file__


class TestNames:
    def test_names_of_time_windows_have_sixteen_bytes_in_the_order_of_the_windows(self):
        windows = [
            TimeWindow(-10, -5),
            TimeWindow(-5, 0),
            TimeWindow(0, 5),
            TimeWindow(0, 6),
            TimeWindow(2**62, 2**63 - 1),
        ]
        serializer = TimeWindowSerializer()
        names = [serializer.encode(window) for window in windows]
        assert names == sorted(names)
        assert {len(name) for name in names} == {16}
        assert [serializer.decode(name) for name in names] == windows

    def test_names_of_count_and_global_windows_can_be_decoded(self):
        counts = CountWindowSerializer()
        names = [counts.encode(CountWindow(number)) for number in (0, 1, 300)]
        assert names == sorted(names)
        assert [counts.decode(name) for name in names] == [CountWindow(0), CountWindow(1), CountWindow(300)]
        everything = GlobalWindowSerializer()
        assert everything.decode(everything.encode(GlobalWindow.get())) == GlobalWindow()
        assert len(everything.encode(GlobalWindow.get())) == len(names[0]) == 16

    def test_a_window_of_another_kind_cannot_be_named(self):
        with pytest.raises(WrongWindow, match="CountWindow"):
            TimeWindowSerializer().encode(CountWindow(1))
        with pytest.raises(WrongWindow):
            TimeWindowSerializer().encode(TimeWindow(0, 2**63 + 1))
        with pytest.raises(WrongWindow):
            GlobalWindowSerializer().encode(TimeWindow(0, 1))


def elements(*pairs):
    return [TimestampedValue(value, timestamp) for value, timestamp in pairs]


def evicted(evictor, given):
    kept = list(given)
    evictor.evict_before(kept, len(kept), None, None)
    before = [each.value for each in kept]
    evictor.evict_after(kept, len(kept), None, None)
    return before, [each.value for each in kept]


class TestEvictors:
    def test_a_count_evictor_keeps_the_last_records(self):
        given = elements(("a", 1), ("b", 2), ("c", 3))
        assert evicted(CountEvictor.of(2), given) == (["b", "c"], ["b", "c"])
        assert evicted(CountEvictor.of(2, True), given) == (["a", "b", "c"], ["b", "c"])
        assert evicted(CountEvictor.of(5), given) == (["a", "b", "c"], ["a", "b", "c"])

    def test_a_time_evictor_keeps_records_near_the_newest(self):
        given = elements(("a", 1), ("b", 8), ("c", 5), ("d", 10))
        assert evicted(TimeEvictor.of(Time.milliseconds(5)), given)[0] == ["b", "d"]
        assert evicted(TimeEvictor.of(5), elements(("a", None), ("b", 3)))[0] == ["a", "b"]

    def test_a_delta_evictor_keeps_records_near_the_last(self):
        given = elements((1, None), (9, None), (4, None), (8, None))
        assert evicted(DeltaEvictor.of(4, lambda a, b: abs(a - b)), given)[0] == [9, 8]


def test_invalid_triggers_are_refused():
    with pytest.raises(PenstockError, match="every 0 records"):
        CountTrigger.of(0)
    assert TriggerResult.FIRE_AND_PURGE.is_fire()
    assert TriggerResult.FIRE_AND_PURGE.is_purge()
    assert not GlobalWindows.create().get_default_trigger(None).can_merge()
