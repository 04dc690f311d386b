"""Interval joins in the harness: pairs, late records, and how long records are kept."""

from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Duration, Time, Types, WatermarkStrategy
from penstock.datastream import (
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.graph.logical import GraphError
from penstock.state.engines.lmdb import _LmdbReader
from penstock.state.engines.memory import _MemoryReader
from penstock.testing import JobHarness

BACKENDS = ["memory", "filesystem"]
END = 10**9


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def first(value):
    return value[0]


class Pair(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left[1], right[1], ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.timestamp()


def sources(env):
    return env.from_collection([]).uid("left"), env.from_collection([]).uid("right")


def joined(env, lower, upper):
    left, right = sources(env)
    return left.key_by(first).interval_join(right.key_by(first)).between(lower, upper)


def left(job, key, value, timestamp):
    job.push((key, value), source="left", timestamp=timestamp)


def right(job, key, value, timestamp):
    job.push((key, value), source="right", timestamp=timestamp)


def watermark(job, timestamp):
    job.push_watermark(timestamp, source="left").push_watermark(timestamp, source="right").epoch()


def names(job):
    return sorted(row[:2] for row in job.output)


class TestPairs:
    def test_records_of_one_key_within_the_bounds_are_paired_in_any_order(self, env):
        with JobHarness(joined(env, -5, 10).process(Pair()).uid("join")) as job:
            left(job, "a", "l100", 100)
            right(job, "a", "r94", 94)
            right(job, "a", "r95", 95)
            right(job, "b", "of another key", 100)
            job.epoch()
            right(job, "a", "r110", 110)
            right(job, "a", "r111", 111)
            left(job, "a", "l120", 120)
            job.epoch()
            assert sorted(job.output) == [
                ("l100", "r110", 100, 110, 110),
                ("l100", "r95", 100, 95, 100),
            ]

    @pytest.mark.parametrize(
        ("exclude", "expected"),
        [
            ((), ["at lower", "at upper", "inside"]),
            (("lower",), ["at upper", "inside"]),
            (("upper",), ["at lower", "inside"]),
            (("lower", "upper"), ["inside"]),
        ],
    )
    def test_bounds_are_inclusive_by_default(self, env, exclude, expected):
        join = joined(env, -5, 5)
        for bound in exclude:
            join = getattr(join, f"{bound}_bound_exclusive")()
        with JobHarness(join.process(Pair())) as job:
            left(job, "a", "l", 100)
            for name, time in (("at lower", 95), ("inside", 100), ("at upper", 105), ("out", 106), ("out", 94)):
                right(job, "a", name, time)
            job.epoch()
            assert sorted(row[1] for row in job.output) == expected

    @pytest.mark.parametrize(
        ("lower", "upper"),
        [
            (Duration.of_seconds(-2), Duration.of_seconds(1)),
            (Time.seconds(-2), Time.seconds(1)),
            (timedelta(seconds=-2), timedelta(seconds=1)),
            (-2000, 1000),
        ],
    )
    def test_bounds_can_be_any_kind_of_duration(self, env, lower, upper):
        with JobHarness(joined(env, lower, upper).process(Pair())) as job:
            left(job, "a", "l", 5000)
            for time in (2999, 3000, 6000, 6001):
                right(job, "a", time, time)
            job.epoch()
            assert sorted(row[1] for row in job.output) == [3000, 6000]

    @pytest.mark.parametrize(("lower", "upper", "expected"), [(10, 20, [110, 120]), (-20, -10, [80, 90])])
    @pytest.mark.parametrize("left_first", [True, False])
    def test_an_interval_can_lie_entirely_after_or_before(self, env, lower, upper, expected, left_first):
        with JobHarness(joined(env, lower, upper).process(Pair())) as job:
            if left_first:
                left(job, "a", "l", 100)
                job.epoch()
            for time in (79, 80, 90, 91, 100, 109, 110, 120, 121):
                right(job, "a", time, time)
            job.epoch()
            if not left_first:
                left(job, "a", "l", 100)
                job.epoch()
            assert [row[1] for row in job.output] == expected

    def test_equal_records_are_paired_as_often_as_they_occur(self, env):
        with JobHarness(joined(env, 0, 0).process(Pair())) as job:
            for _ in range(2):
                left(job, "a", "l", 1)
                job.epoch()
                right(job, "a", "r", 1)
                right(job, "a", "r", 1)
                job.epoch()
            assert names(job) == [("l", "r")] * 8

    def test_results_have_the_later_timestamp_for_downstream_operators_too(self, env):
        class Time(ProcessFunction):
            def process_element(self, value, ctx):
                yield value, ctx.timestamp()

        stream = joined(env, -10, 10).process(lambda left, right, ctx: [left[1] + right[1]]).process(Time())
        with JobHarness(stream) as job:
            left(job, "a", "l", 100)
            right(job, "a", "r1", 95)
            right(job, "a", "r2", 105)
            job.epoch()
            assert sorted(job.output) == [("lr1", 100), ("lr2", 105)]

    def test_a_function_can_hold_keyed_state_and_yield_to_side_outputs(self, env):
        odd = OutputTag("odd", Types.LONG())

        class Count(ProcessJoinFunction):
            def open(self, runtime_context):
                self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

            def process_element(self, left, right, ctx):
                count = (self.count.value() or 0) + 1
                self.count.update(count)
                yield (odd, count) if count % 2 else count

        result = joined(env, 0, 0).process(Count()).uid("join")
        with JobHarness(result.union(result.get_side_output(odd).map(lambda n: f"odd {n}"))) as job:
            for _ in range(3):
                left(job, "a", "l", 1)
                right(job, "a", "r", 1)
                job.epoch()
            assert job.state("count", "a") == 9
            assert sorted(map(str, job.output)) == sorted(
                [str(n) for n in (2, 4, 6, 8)] + [f"odd {n}" for n in (1, 3, 5, 7, 9)]
            )

    def test_a_record_changed_by_the_function_is_kept_unchanged(self, env):
        def change(left, right, ctx):
            left[1] += "!"
            right[1] += "?"
            yield left[1], right[1]

        with JobHarness(joined(env, -10, 10).process(change)) as job:
            job.push(["a", "l"], source="left", timestamp=1).epoch()
            job.push(["a", "r"], source="right", timestamp=2).epoch()
            job.push(["a", "s"], source="right", timestamp=2).epoch()
            assert job.output == [("l!", "r?"), ("l!", "s?")]


class TestLateRecords:
    def late_job(self, env):
        tags = OutputTag("left late"), OutputTag("right late")
        join = joined(env, -10, 10).side_output_left_late_data(tags[0]).side_output_right_late_data(tags[1])
        result = join.process(Pair()).uid("join")
        late = [result.get_side_output(tag).map(lambda value, tag=tag: (tag.tag_id, *value)) for tag in tags]
        return JobHarness(result.union(*late))

    @pytest.mark.parametrize("crash", [False, True])
    def test_late_records_go_to_the_side_output_of_their_side_and_are_not_paired(self, env, crash):
        with self.late_job(env) as job:
            left(job, "a", "l", 100)
            right(job, "a", "r", 100)
            watermark(job, 100)
            assert names(job) == [("l", "r")]
            if crash:
                job.crash()
            left(job, "a", "late", 99)
            right(job, "a", "late too", 99)
            right(job, "a", "in time", 100)
            job.epoch()
            assert sorted(job.output[1:], key=str) == [
                ("l", "in time", 100, 100, 100),
                ("left late", "a", "late"),
                ("right late", "a", "late too"),
            ]

    def test_late_records_without_a_side_output_are_dropped_and_counted(self, env):
        with JobHarness(joined(env, -10, 10).process(Pair()).uid("join")) as job:
            watermark(job, 100)
            left(job, "a", "late", 99)
            right(job, "a", "late", 5)
            right(job, "a", "in time", 100)
            job.epoch()
            assert job.metrics()["join.numLateRecordsDropped"] == 2
            assert job.states("_left") == {}
            assert job.states("_right") == {"a": {100: [("a", "in time")]}}

    def test_the_slower_of_both_watermarks_decides_lateness(self, env):
        with JobHarness(joined(env, -10, 10).process(Pair())) as job:
            job.push_watermark(100, source="left").push_watermark(50, source="right").epoch()
            left(job, "a", "l", 50)
            right(job, "a", "r", 50)
            job.epoch()
            assert names(job) == [("l", "r")]


class TestKeptRecords:
    @pytest.mark.parametrize(
        ("lower", "upper", "left_until", "right_until"),
        [(-5, 10, 110, 105), (3, 10, 110, 100), (-10, -3, 100, 110), (0, 0, 100, 100)],
    )
    @pytest.mark.parametrize("backend", BACKENDS)
    def test_a_record_is_removed_when_no_match_can_arrive_any_more(
        self, env, lower, upper, left_until, right_until, backend
    ):
        with JobHarness(joined(env, lower, upper).process(Pair()).uid("join"), backend=backend) as job:
            left(job, "a", "l", 100)
            right(job, "a", "r", 100)
            job.epoch()
            for time in sorted({left_until - 1, left_until, right_until - 1, right_until}):
                watermark(job, time)
                assert job.states("_left") == ({} if time >= left_until else {"a": {100: [("a", "l")]}})
                assert job.states("_right") == ({} if time >= right_until else {"a": {100: [("a", "r")]}})
            assert job.timers() == []

    def test_records_removed_in_the_same_epoch_leave_no_state(self, env):
        with JobHarness(joined(env, -5, 5).process(Pair()).uid("join"), parallelism=2) as job:
            for time in range(100):
                left(job, time % 7, time, time)
                right(job, time % 7, time, time)
            watermark(job, END)
            assert len(job.output) == 100
            assert (job.states("_left"), job.states("_right"), job.timers()) == ({}, {}, [])

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_a_lookup_reads_only_the_interval(self, env, backend, monkeypatch):
        """With 2,000 kept records of one key, the number of reads is proportional to the number of pairs."""
        read = 0

        def counting(between):
            def count(reader, start, end):
                nonlocal read
                for entry in between(reader, start, end):
                    read += 1
                    yield entry

            return count

        for reader in (_MemoryReader, _LmdbReader):
            monkeypatch.setattr(reader, "between", counting(reader.between))
        with JobHarness(joined(env, -1, 1).process(Pair()).uid("join"), backend=backend) as job:
            for time in range(2000):
                left(job, "a", time, time)
            job.epoch()
            read = 0
            for time in range(0, 2000, 100):
                right(job, "a", time, time)
            job.epoch()
            assert len(job.output) == 3 * 20 - 1
            assert read == len(job.output)

    def test_timestamps_at_the_ends_of_time_are_accepted(self, env):
        with JobHarness(joined(env, -(10**15), 10**15).process(Pair()).uid("join")) as job:
            for time in (-(2**63) + 1, 2**63 - 1):
                left(job, "a", time, time)
                right(job, "a", time, time)
            job.epoch()
            assert [row[0] for row in job.output] == [-(2**63) + 1, 2**63 - 1]

    @pytest.mark.parametrize("key", ["k" * 480, "k" * 2000])
    @pytest.mark.parametrize("backend", BACKENDS)
    def test_long_keys_are_accepted(self, env, key, backend):
        with JobHarness(joined(env, -2, 2).process(Pair()).uid("join"), backend=backend) as job:
            for time in (1, 5, 9):
                left(job, key, time, time)
            job.epoch()
            right(job, key, "r", 7)
            job.epoch()
            assert names(job) == [(5, "r"), (9, "r")]
            watermark(job, END)
            assert job.states("_left") == {}


@dataclass
class Click:
    user: str
    at: int


class Parse(MapFunction):
    def map(self, value) -> Click:
        return Click(*value)


class TestTypes:
    def test_buffers_have_the_types_of_the_streams(self, env):
        declared = Types.TUPLE([Types.STRING(), Types.LONG()])
        left_source, right_source = sources(env)
        lefts = left_source.map(lambda value: value, output_type=declared).key_by(first)
        rights = right_source.map(Parse()).key_by(lambda click: click.user)
        stream = lefts.interval_join(rights).between(0, 0).process(lambda left, right, ctx: [(left, right)])
        with JobHarness(stream.uid("join")) as job:
            left(job, "a", 1, 1)
            right(job, "a", 2, 1)
            job.epoch()
            assert job.output == [(("a", 1), Click("a", 2))]
            assert job.states("_left") == {"a": {1: [("a", 1)]}}
            assert job.states("_right") == {"a": {1: [Click("a", 2)]}}
            with job.committed().reading("_left", None) as (overlay, _):
                schemas = overlay.schemas()
        assert "any" not in schemas["_left"]
        assert "Click" in schemas["_right"]

    def test_a_record_that_does_not_match_the_annotated_type_is_kept_unchanged(self, env):
        def mistaken(value) -> int:
            return value

        left_source, right_source = sources(env)
        lefts, rights = left_source.map(mistaken).key_by(first), right_source.key_by(first)
        stream = lefts.interval_join(rights).between(0, 0).process(Pair())
        with JobHarness(stream) as job:
            left(job, "a", "no int", 1)
            job.epoch()
            right(job, "a", "r", 1)
            job.epoch()
            assert names(job) == [("no int", "r")]

    def test_an_annotation_can_be_added_while_records_are_kept(self, env):
        def build(parse):
            env = StreamExecutionEnvironment.get_execution_environment()
            left_source, right_source = sources(env)
            clicks = left_source.map(parse).uid("parse").key_by(lambda click: click.user)
            join = clicks.interval_join(right_source.key_by(first)).between(0, 0)
            return join.process(lambda left, right, ctx: [(left, right[1])]).uid("join")

        before = JobHarness(build(lambda value: Click(*value)))
        left(before, "a", 1, 1)
        before.epoch()
        with JobHarness(build(Parse()), storage=before.storage) as job:
            left(job, "a", 2, 1)
            right(job, "a", "r", 1)
            job.epoch()
            assert sorted(job.output, key=str) == [(Click("a", 1), "r"), (Click("a", 2), "r")]

    def test_none_can_be_a_record(self, env):
        left_source, right_source = sources(env)
        stream = left_source.key_by(lambda v: 1).interval_join(right_source.key_by(lambda v: 1)).between(0, 0)
        with JobHarness(stream.process(lambda left, right, ctx: [(left, right)])) as job:
            job.push(None, source="left", timestamp=1).epoch()
            job.push(None, source="right", timestamp=1).epoch()
            assert job.output == [(None, None)]


class TestRecovery:
    def fill(self, job, numbers):
        for number in numbers:
            left(job, number % 5, number, number)
            right(job, number % 5, number, number + 5)
        return job

    EXPECTED = sorted((a, b) for a in range(60) for b in range(60) if a % 5 == b % 5 and -10 <= b + 5 - a <= 10)

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("point", ["source.processed", "level1.snapshot", "driver.collected", "driver.committed"])
    def test_crashes_and_lost_replicas_do_not_change_results(self, env, backend, point):
        with JobHarness(joined(env, -10, 10).process(Pair()).uid("join"), parallelism=2, backend=backend) as job:
            self.fill(job, range(30)).epochs(7)
            job.crash_at(point)
            self.fill(job, range(30, 60)).epochs(7)
            job.lose_replicas()
            job.crash()
            watermark(job, END)
            assert names(job) == self.EXPECTED
            assert (job.states("_left"), job.states("_right"), job.timers()) == ({}, {}, [])

    def test_a_join_can_be_restored_at_another_parallelism(self, env):
        before = JobHarness(joined(env, -10, 10).process(Pair()).uid("join"), parallelism=2)
        self.fill(before, range(30)).epoch()
        env = StreamExecutionEnvironment.get_execution_environment()
        stream = joined(env, -10, 10).process(Pair()).uid("join")
        with JobHarness(stream, parallelism=5, storage=before.storage) as job:
            self.fill(job, range(30, 60)).epoch()
            watermark(job, END)
            assert sorted(names(before) + names(job)) == self.EXPECTED
            assert (job.states("_left"), job.states("_right"), job.timers()) == ({}, {}, [])


DISORDER = 20
events = st.lists(st.tuples(st.integers(0, 2), st.integers(-40, 40)), max_size=25)


def in_disorder(records):
    """Reorder records within DISORDER: each is at most that far behind the greatest time before it."""
    ordered = sorted(records, key=lambda record: record[1])
    kept, greatest = [], None
    for record in [*ordered[::2], *ordered[1::2]]:
        if greatest is None or record[1] >= greatest - DISORDER:
            kept.append(record)
            greatest = record[1] if greatest is None else max(greatest, record[1])
    return kept


@settings(deadline=None, max_examples=30)
@given(
    lefts=events.map(in_disorder),
    rights=events.map(in_disorder),
    bounds=st.tuples(st.integers(-30, 30), st.integers(-30, 30)).map(sorted),
    exclude=st.sampled_from([(), ("lower",), ("upper",), ("lower", "upper")]),
    parallelism=st.sampled_from([1, 2, 4]),
    per_epoch=st.sampled_from([None, 1, 4]),
    backend=st.sampled_from(BACKENDS),
    partitions=st.sampled_from([1, 3]),
)
def test_pairs_equal_those_of_a_filtered_product(
    lefts, rights, bounds, exclude, parallelism, per_epoch, backend, partitions
):
    lower, upper = bounds
    least = lower + ("lower" in exclude)
    greatest = upper - ("upper" in exclude)
    if least > greatest:
        return
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DISORDER + 1))
    strategy = strategy.with_timestamp_assigner(lambda value, _: value[1])
    keyed = [
        env.from_collection(records).uid(name).assign_timestamps_and_watermarks(strategy).key_by(first)
        for name, records in (("lefts", lefts), ("rights", rights))
    ]
    join = keyed[0].interval_join(keyed[1]).between(lower, upper)
    for bound in exclude:
        join = getattr(join, f"{bound}_bound_exclusive")()
    stream = join.process(lambda left, right, ctx: [(left, right, ctx.timestamp())]).uid("join")
    with JobHarness(stream, parallelism=parallelism, backend=backend) as job:
        for source in ("lefts", "rights"):
            job.set_partitions(partitions, source=source)
        job.run(per_epoch)
        assert sorted(job.output) == sorted(
            (left, right, max(left[1], right[1]))
            for left in lefts
            for right in rights
            if left[0] == right[0] and least <= right[1] - left[1] <= greatest
        )
        assert (job.states("_left"), job.states("_right"), job.timers("join")) == ({}, {}, [])


class TestMistakes:
    def test_a_record_without_a_timestamp_is_refused(self, env):
        with JobHarness(joined(env, 0, 0).process(Pair()).name("pairs").uid("pairs-1")) as job:
            job.push(("a", 1), source="right")
            with pytest.raises(UserFunctionFailed, match="a record of its right stream has no timestamp") as caught:
                job.epoch()
            assert "'pairs' (uid 'pairs-1')" in str(caught.value)
            assert "assign_timestamps_and_watermarks" in str(caught.value)

    def test_an_interval_that_ends_before_it_starts_is_refused(self, env):
        with pytest.raises(
            GraphError, match=r"lower bound .* \(5 ms\) is greater than the upper bound \(-5 ms\)"
        ) as caught:
            joined(env, 5, -5)
        assert "between(-5, 5)" in caught.value.fix

    def test_an_empty_interval_is_refused(self, env):
        with pytest.raises(GraphError, match="exclusive bounds is empty"):
            joined(env, 5, 6).lower_bound_exclusive().upper_bound_exclusive().process(Pair())

    def test_a_bound_that_is_not_a_duration_is_refused(self, env):
        with pytest.raises(GraphError, match="The upper bound of the interval join is invalid: Expected a duration"):
            joined(env, 5, "an hour")

    def test_a_stream_without_a_key_is_refused(self, env):
        left_source, right_source = sources(env)
        with pytest.raises(GraphError, match="The left stream of an interval join is not keyed") as caught:
            left_source.interval_join(right_source.key_by(first))
        assert "key_by" in caught.value.fix
        with pytest.raises(GraphError, match="The right stream of an interval join is not keyed"):
            left_source.key_by(first).interval_join(right_source)
        with pytest.raises(GraphError, match="The right stream of an interval join is not a stream but list"):
            left_source.key_by(first).interval_join([1])

    def test_streams_of_two_environments_are_refused(self, env):
        other = StreamExecutionEnvironment()
        with pytest.raises(GraphError, match="of the same environment"):
            env.from_collection([]).key_by(first).interval_join(other.from_collection([]).key_by(first))

    def test_process_without_bounds_is_refused(self, env):
        left_source, right_source = sources(env)
        join = left_source.key_by(first).interval_join(right_source.key_by(first))
        with pytest.raises(GraphError, match="process was called on a join before between") as caught:
            join.process(Pair())
        assert caught.value.fix == "Write .between(lower, upper).process(...)."
        with pytest.raises(AttributeError, match="no attribute 'proces'"):
            join.proces(Pair())

    def test_a_function_of_another_kind_is_refused(self, env):
        with pytest.raises(GraphError, match="process needs a ProcessJoinFunction or a function, not"):
            joined(env, 0, 0).process(Parse())
        with pytest.raises(
            GraphError, match=r"received the class Pair instead of an instance\. Write process\(Pair\(\)\)"
        ):
            joined(env, 0, 0).process(Pair)

    def test_a_late_output_that_is_not_a_tag_is_refused(self, env):
        with pytest.raises(GraphError, match="side_output_left_late_data needs an OutputTag, not str"):
            joined(env, 0, 0).side_output_left_late_data("late")

    def test_an_error_in_the_function_names_the_operator(self, env):
        def fail(left, right, ctx):
            raise ValueError("no")

        with JobHarness(joined(env, 0, 0).process(fail).name("pairs").uid("pairs-1")) as job:
            left(job, "a", 1, 1)
            right(job, "a", 2, 1)
            with pytest.raises(UserFunctionFailed, match="pairs-1"):
                job.epoch()


class TestChangedInterval:
    """A restored program whose interval differs from the one for which the timers of stored records were set."""

    @pytest.mark.parametrize("before", [(-100, 100), (-20, 20)])
    @pytest.mark.parametrize("after", [(-50, 50), (0, 10), (-200, -100)])
    def test_a_changed_interval_still_removes_every_earlier_record(self, tmp_path, before, after):
        def program(bounds):
            return joined(StreamExecutionEnvironment.get_execution_environment(), *bounds).process(Pair()).uid("join")

        with JobHarness(program(before)) as job:
            for time in (0, 1, 30):
                left(job, "a", "left", time)
                right(job, "a", "right", time)
            job.epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(program(after), parallelism=2, from_savepoint=path) as job:
            left(job, "a", "new", 40)
            job.epoch()
            for time in (45, 110, 190, 5000):
                watermark(job, time)
                job.epoch()
            assert job.timers() == []
            assert job.states("_left") == {}
            assert job.states("_right") == {}

    def test_a_wider_interval_keeps_the_records_it_still_needs(self, tmp_path):
        def program(bounds):
            return joined(StreamExecutionEnvironment.get_execution_environment(), *bounds).process(Pair()).uid("join")

        with JobHarness(program((-10, 10))) as job:
            left(job, "a", "left", 0)
            job.epoch()
            path = job.savepoint(tmp_path)
        with JobHarness(program((-100, 100)), from_savepoint=path) as job:
            watermark(job, 50)
            job.epoch()
            right(job, "a", "right", 60)
            job.epoch()
            assert [result[:2] for result in job.output] == [("left", "right")]
