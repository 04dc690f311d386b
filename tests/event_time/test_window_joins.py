"""Window joins and co-groups in the harness, compared with a plain product of lists."""

from collections import defaultdict
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Duration, Time, Types, WatermarkStrategy
from penstock.datastream import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    MapFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.graph.logical import GraphError
from penstock.testing import JobHarness

BACKENDS = ["memory", "filesystem"]
END = 10**9
TENS = TumblingEventTimeWindows.of(Time.milliseconds(10))


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def first(value):
    return value[0]


def keyed(env, how="join"):
    one, two = env.from_collection([]).uid("one"), env.from_collection([]).uid("two")
    return getattr(one, how)(two).where(first).equal_to(first)


def one(job, key, value, timestamp):
    job.push((key, value), source="one", timestamp=timestamp)


def two(job, key, value, timestamp):
    job.push((key, value), source="two", timestamp=timestamp)


def watermark(job, timestamp):
    job.push_watermark(timestamp, source="one").push_watermark(timestamp, source="two").epoch()


def pair(left, right):
    return left[1], right[1]


class Group(CoGroupFunction):
    def co_group(self, first, second):
        yield sorted(value[1] for value in first), sorted(value[1] for value in second)


class TestJoin:
    def test_a_join_emits_each_pair_of_a_key_and_window_when_the_window_ends(self, env):
        with JobHarness(keyed(env).window(TENS).apply(pair)) as job:
            one(job, "a", "l1", 1)
            one(job, "a", "l2", 9)
            one(job, "b", "alone", 1)
            two(job, "a", "r1", 5)
            two(job, "a", "next window", 10)
            watermark(job, 8)
            assert job.output == []
            two(job, "a", "r2", 9)
            watermark(job, 9)
            assert job.output == [("l1", "r1"), ("l1", "r2"), ("l2", "r1"), ("l2", "r2")]
            watermark(job, END)
            assert len(job.output) == 4

    def test_results_have_the_last_timestamp_of_the_window(self, env):
        class Look(ProcessFunction):
            def process_element(self, value, ctx):
                yield value, ctx.timestamp()

        with JobHarness(keyed(env).window(TENS).apply(pair).process(Look())) as job:
            one(job, "a", "l", 1)
            two(job, "a", "r", 5)
            watermark(job, END)
            assert job.output == [(("l", "r"), 9)]

    def test_a_join_accepts_functions_of_every_kind(self, env):
        class Join(JoinFunction):
            def join(self, first, second):
                return first[1] + second[1]

        class Flat(FlatJoinFunction):
            def join(self, first, second):
                if first[1] != "x":
                    yield first[1]
                    yield second[1]

        def generator(left, right):
            yield from (left[1], right[1])

        windows = keyed(env).window(TENS)
        for function, expected in (
            (Join(), ["lr", "xr"]),
            (Flat(), ["l", "r"]),
            (generator, ["l", "r", "r", "x"]),
            (lambda left, right: left[1] * 2, ["ll", "xx"]),
        ):
            env = StreamExecutionEnvironment.get_execution_environment()
            windows = keyed(env).window(TENS)
            with JobHarness(windows.apply(function)) as job:
                one(job, "a", "l", 1)
                one(job, "a", "x", 1)
                two(job, "a", "r", 5)
                watermark(job, END)
                assert sorted(job.output) == expected

    def test_a_join_function_can_hold_keyed_state(self, env):
        class Count(JoinFunction):
            def open(self, runtime_context):
                self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

            def join(self, first, second):
                self.count.update((self.count.value() or 0) + 1)
                return self.count.value()

        with JobHarness(keyed(env).window(TENS).apply(Count())) as job:
            for time in (1, 11, 21):
                one(job, "a", "l", time)
                two(job, "a", "r", time)
            watermark(job, END)
            assert job.output == [1, 2, 3]

    def test_processing_time_windows_need_no_timestamps(self, env):
        windows = keyed(env).window(TumblingProcessingTimeWindows.of(Time.seconds(1)))
        with JobHarness(windows.apply(pair)) as job:
            job.set_clock(500).push(("a", "l"), source="one").push(("a", "r"), source="two").epoch()
            assert job.output == []
            job.set_clock(1000)
            assert job.output == [("l", "r")]

    def test_the_slower_of_both_watermarks_counts(self, env):
        with JobHarness(keyed(env).window(TENS).apply(pair)) as job:
            one(job, "a", "l", 1)
            job.push_watermark(END, source="one").epoch()
            two(job, "a", "r", 5)
            job.epoch()
            job.push_watermark(9, source="two").epoch()
            assert job.output == [("l", "r")]

    def test_keys_and_types_of_the_streams_can_differ(self, env):
        clicks = env.from_collection([]).uid("one").map(Parse())
        buys = env.from_collection([]).uid("two").map(lambda v: v, output_type=Types.TUPLE([Types.STRING()] * 2))
        stream = clicks.join(buys).where(lambda click: click.user).equal_to(first).window(TENS)
        with JobHarness(stream.apply(lambda click, buy: (click, buy)).uid("join")) as job:
            one(job, "a", 1, 1)
            two(job, "a", "r", 5)
            job.epoch()
            with job.committed().reading(None, None) as (overlay, _):
                schemas = overlay.schemas()
            assert "Click" in schemas["window first"]
            assert "any" not in schemas["window second"]
            watermark(job, END)
            assert job.output == [(Click("a", 1), ("a", "r"))]


@dataclass
class Click:
    user: str
    at: int


class Parse(MapFunction):
    def map(self, value) -> Click:
        return Click(*value)


class TestCoGroup:
    def test_a_co_group_emits_the_records_of_each_stream_even_if_one_has_none(self, env):
        with JobHarness(keyed(env, "co_group").window(TENS).apply(Group())) as job:
            one(job, "a", "l1", 1)
            one(job, "a", "l2", 2)
            two(job, "a", "r", 3)
            one(job, "b", "l", 1)
            two(job, "c", "r", 1)
            watermark(job, END)
            assert sorted(job.output) == [([], ["r"]), (["l"], []), (["l1", "l2"], ["r"])]

    def test_a_co_group_accepts_a_plain_function(self, env):
        stream = keyed(env, "co_group").window(TENS)
        with JobHarness(stream.apply(lambda first, second: [(len(list(first)), len(list(second)))])) as job:
            one(job, "a", "l", 1)
            watermark(job, END)
            assert job.output == [(1, 0)]

    def test_sessions_span_both_streams(self, env):
        windows = keyed(env, "co_group").window(EventTimeSessionWindows.with_gap(Time.milliseconds(10)))
        with JobHarness(windows.apply(Group())) as job:
            one(job, "a", "l0", 0)
            one(job, "a", "l18", 18)
            job.epoch()
            two(job, "a", "r9", 9)
            two(job, "a", "r40", 40)
            watermark(job, END)
            assert sorted(job.output) == [([], ["r40"]), (["l0", "l18"], ["r9"])]

    def test_triggers_see_records_of_both_streams(self, env):
        stream = keyed(env, "co_group").window(TENS).trigger(CountTrigger.of(3)).apply(Group())
        with JobHarness(stream) as job:
            one(job, "a", "l1", 1)
            job.epoch()
            two(job, "a", "r", 1)
            job.epoch()
            assert job.output == []
            one(job, "a", "l2", 1)
            job.epoch()
            assert job.output == [(["l1", "l2"], ["r"])]

    def test_evictors_remove_from_both_streams_together(self, env):
        stream = keyed(env, "co_group").window(TENS).evictor(CountEvictor.of(2)).apply(Group())
        with JobHarness(stream) as job:
            one(job, "a", "l1", 1)
            job.epoch()
            one(job, "a", "l2", 1)
            job.epoch()
            two(job, "a", "r", 1)
            watermark(job, END)
            assert job.output == [(["l2"], ["r"])]

    def test_assigners_see_the_stream_of_a_record(self, env):
        def gap(tagged):
            return 5 if tagged.is_one() and tagged.get_two() is None and tagged.get_one()[1] == "short" else 50

        windows = keyed(env, "co_group").window(EventTimeSessionWindows.with_dynamic_gap(gap_of(gap)))
        with JobHarness(windows.apply(Group())) as job:
            one(job, "a", "short", 0)
            two(job, "a", "r", 10)
            one(job, "a", "l", 40)
            watermark(job, END)
            assert sorted(job.output) == [(["l"], ["r"]), (["short"], [])]

    def test_a_late_record_fires_again_within_the_allowed_lateness_and_is_dropped_afterwards(self, env):
        stream = keyed(env, "co_group").window(TENS).allowed_lateness(5).apply(Group()).uid("group")
        with JobHarness(stream) as job:
            one(job, "a", "l", 1)
            watermark(job, 12)
            two(job, "a", "late", 2)
            job.epoch()
            assert job.output == [(["l"], []), (["l"], ["late"])]
            watermark(job, 14)
            two(job, "a", "too late", 2)
            one(job, "a", "too late", 2)
            job.epoch()
            assert len(job.output) == 2
            assert job.metrics()["group.numLateRecordsDropped"] == 2


def gap_of(function):
    from penstock.datastream.window import SessionWindowTimeGapExtractor

    class Extractor(SessionWindowTimeGapExtractor):
        def extract(self, element):
            return function(element)

    return Extractor()


class TestRecovery:
    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("point", ["source.processed", "level1.snapshot", "driver.collected", "driver.committed"])
    def test_crashes_lost_replicas_and_a_rescale_do_not_change_results(self, env, backend, point):
        def fill(job, times):
            for time in times:
                one(job, time % 3, time, time)
                two(job, time % 3, time, time)

        with JobHarness(keyed(env).window(TENS).apply(pair).uid("join"), parallelism=2, backend=backend) as before:
            fill(before, range(30))
            before.epochs(7)
            watermark(before, 15)
            before.crash_at(point)
            fill(before, range(30, 60))
            before.epochs(7)
            before.lose_replicas()
            before.crash()
            env = StreamExecutionEnvironment.get_execution_environment()
            stream = keyed(env).window(TENS).apply(pair).uid("join")
            job = JobHarness(stream, parallelism=5, backend=backend, storage=before.storage)
            watermark(job, END)
            assert sorted(before.output + job.output) == sorted(
                (a, b) for a in range(60) for b in range(60) if a % 3 == b % 3 and a // 10 == b // 10
            )
            assert (job.states("window first"), job.states("window second"), job.timers()) == ({}, {}, [])


DISORDER = 20
events = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 80)), max_size=20)


def in_disorder(records):
    """Reorder records within DISORDER: each is at most that far behind the greatest time before it."""
    ordered = sorted(records, key=lambda record: record[1])
    kept, greatest = [], None
    for record in [*ordered[::2], *ordered[1::2]]:
        if greatest is None or record[1] >= greatest - DISORDER:
            kept.append(record)
            greatest = record[1] if greatest is None else max(greatest, record[1])
    return kept


def sessions(lefts, rights, gap):
    """Return a function from a record to the start of its session, which ends when nothing arrives for `gap`."""
    times = defaultdict(set)
    for key, time in [*lefts, *rights]:
        times[key].add(time)
    starts = {}
    for key, found in times.items():
        start = last = None
        for time in sorted(found):
            if last is None or time - last > gap:
                start = time
            starts[key, time] = start
            last = time
    return lambda record: [starts[record]]


ASSIGNERS = {
    "tumbling": (TENS, lambda lefts, rights: lambda record: [record[1] // 10]),
    "sliding": (
        SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(10)),
        lambda lefts, rights: lambda record: [record[1] // 10, record[1] // 10 - 1],
    ),
    "sessions": (
        EventTimeSessionWindows.with_gap(Time.milliseconds(7)),
        lambda lefts, rights: sessions(lefts, rights, 7),
    ),
}


@pytest.mark.parametrize("assigner", ASSIGNERS)
@settings(deadline=None, max_examples=12)
@given(
    lefts=events.map(in_disorder),
    rights=events.map(in_disorder),
    parallelism=st.sampled_from([1, 2, 4]),
    per_epoch=st.sampled_from([None, 1, 4]),
    backend=st.sampled_from(BACKENDS),
    partitions=st.sampled_from([1, 3]),
)
def test_joins_and_co_groups_equal_those_of_plain_lists(
    assigner, lefts, rights, parallelism, per_epoch, backend, partitions
):
    windows, oracle = ASSIGNERS[assigner]
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DISORDER + 1))
    strategy = strategy.with_timestamp_assigner(lambda value, _: value[1])
    streams = [
        env.from_collection(records).uid(name).assign_timestamps_and_watermarks(strategy)
        for name, records in (("lefts", lefts), ("rights", rights))
    ]
    joined = streams[0].join(streams[1]).where(first).equal_to(first).window(windows)
    grouped = streams[0].co_group(streams[1]).where(first).equal_to(first).window(windows)
    joined = joined.apply(lambda left, right: ("pair", left, right)).uid("join")
    grouped = grouped.apply(lambda one, two: [("group", sorted(one), sorted(two))]).uid("group")
    held = defaultdict(lambda: ([], []))
    window_of = oracle(lefts, rights)
    for number, records in enumerate((lefts, rights)):
        for record in records:
            for window in window_of(record):
                held[record[0], window][number].append(record)
    expected = [("group", sorted(one), sorted(two)) for one, two in held.values()]
    expected += [("pair", left, right) for one, two in held.values() for left in one for right in two]
    with JobHarness(joined.union(grouped), parallelism=parallelism, backend=backend) as job:
        for source in ("lefts", "rights"):
            job.set_partitions(partitions, source=source)
        job.run(per_epoch)
        assert sorted(job.output, key=repr) == sorted(expected, key=repr)
        for operator in ("join", "group"):
            assert job.timers(operator) == []
            assert job.states("window first", operator) == job.states("window second", operator) == {}


class TestMistakes:
    def test_the_error_names_a_missing_step(self, env):
        streams = env.from_collection([]).join(env.from_collection([]))
        with pytest.raises(GraphError, match=r"equal_to was called on a join before where\(") as caught:
            streams.equal_to(first)
        assert caught.value.fix == "Write .where(key of the first stream).equal_to(...)."
        with pytest.raises(GraphError, match=r"window was called on a join before where\(.*\)\.equal_to\("):
            streams.window(TENS)
        with pytest.raises(GraphError, match=r"window was called on a join before equal_to\("):
            streams.where(first).window(TENS)
        with pytest.raises(GraphError, match=r"apply was called on a join before window\(assigner\)"):
            streams.where(first).equal_to(first).apply(pair)

    def test_an_invalid_window_assigner_is_refused(self, env):
        with pytest.raises(GraphError, match="window needs a WindowAssigner, not int"):
            keyed(env).window(10)

    def test_a_function_of_another_kind_is_refused(self, env):
        with pytest.raises(GraphError, match="apply needs a JoinFunction or a function"):
            keyed(env).window(TENS).apply(Group())
        with pytest.raises(GraphError, match="apply needs a CoGroupFunction or a function"):
            keyed(env, "co_group").window(TENS).apply(Parse())
        with pytest.raises(GraphError, match=r"Write apply\(Group\(\)\)"):
            keyed(env, "co_group").window(TENS).apply(Group)
        with pytest.raises(GraphError, match="where needs a KeySelector or a function, not int"):
            env.from_collection([]).join(env.from_collection([])).where(0)
        with pytest.raises(GraphError, match="equal_to needs a KeySelector or a function, not int"):
            env.from_collection([]).join(env.from_collection([])).where(first).equal_to(0)

    def test_an_invalid_stream_is_refused(self, env):
        with pytest.raises(GraphError, match="joined with another stream, not with list"):
            env.from_collection([]).join([1])
        with pytest.raises(GraphError, match="of one environment"):
            env.from_collection([]).co_group(StreamExecutionEnvironment().from_collection([]))

    def test_a_result_that_cannot_be_iterated_is_refused(self, env):
        with JobHarness(keyed(env, "co_group").window(TENS).apply(lambda first, second: 1).uid("group")) as job:
            one(job, "a", "l", 1)
            with pytest.raises(UserFunctionFailed, match="returned int from co_group, which must yield its results"):
                watermark(job, END)

    def test_a_record_without_a_timestamp_is_refused(self, env):
        with JobHarness(keyed(env).window(TENS).apply(pair).name("pairs").uid("pairs-1")) as job:
            job.push(("a", 1), source="two")
            with pytest.raises(UserFunctionFailed, match=r"without a timestamp reached 'pairs' \(uid 'pairs-1'\)"):
                job.epoch()
