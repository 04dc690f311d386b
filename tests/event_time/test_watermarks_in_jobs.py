"""Watermarks in complete jobs: splits, partitions, idle channels, recovery."""

import pytest

from penstock.common import Duration, WatermarkStrategy
from penstock.common.watermark_strategy import Watermark, WatermarkGenerator
from penstock.datastream import KeyedProcessFunction, ProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors import Source
from penstock.errors import PenstockError
from penstock.graph.builder import build
from penstock.runtime.chain import ChainRun
from penstock.runtime.event_time import ChannelTime, OperatorTime
from penstock.runtime.moment import OfSplit, Timestamped
from penstock.runtime.report import decode_report
from penstock.runtime.rows import BARRIER, REPORT, decode_barrier
from penstock.runtime.task import Task
from penstock.runtime.task_epoch import TaskEpoch
from penstock.state.access import StateAccess
from penstock.testing import JobHarness


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def bounded(milliseconds):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(milliseconds))
    return strategy.with_timestamp_assigner(lambda value, timestamp: value)


class Seen(KeyedProcessFunction):
    """Yields (record, current watermark), and fires a timer at each record's time."""

    def process_element(self, value, ctx):
        yield value, ctx.timer_service().current_watermark()
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp, ctx):
        yield "timer", timestamp


def seen(stream):
    return stream.key_by(lambda value: 0).process(Seen()).uid("seen")


LEAST = -(2**63)


class TestOneChannel:
    def test_the_watermark_follows_the_highest_timestamp_with_a_bounded_delay(self, env):
        with JobHarness(seen(env.from_collection([]).assign_timestamps_and_watermarks(bounded(10)))) as job:
            job.push(1337).epoch()
            assert job.watermark == 1326
            job.push(12345, 12300, 12340, 12280).epoch()
            assert job.watermark == 12334
            assert [row for row in job.output if row[0] != "timer"] == [
                (1337, LEAST),
                (12345, 1326),
                (12300, 12334),
                (12340, 12334),
                (12280, 12334),
            ]

    @pytest.mark.parametrize("size", [1, 2, 3, 100])
    def test_a_record_sees_the_same_watermark_regardless_of_epoch_boundaries(self, env, size):
        records = [5, 30, 10, 50, 20, 51, 90, 40]
        with JobHarness(seen(env.from_collection(records).assign_timestamps_and_watermarks(bounded(10)))) as job:
            job.run(size)
            assert [row for row in job.output if row[0] != "timer"] == [
                (5, LEAST),
                (30, -6),
                (10, 19),
                (50, 19),
                (20, 39),
                (51, 39),
                (90, 40),
                (40, 79),
            ]

    def test_the_watermark_never_moves_backwards_across_epochs_and_crashes(self, env):
        with JobHarness(seen(env.from_collection([]).assign_timestamps_and_watermarks(bounded(0)))) as job:
            job.push(100).epoch()
            job.crash()
            job.push(50).epoch()
            assert job.watermark == 99
            assert (50, 99) in job.output

    def test_monotonous_timestamps_can_come_from_the_source(self, env):
        stream = env.from_collection([]).assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps())
        with JobHarness(seen(stream)) as job:
            job.push(7, timestamp=70).push(8, timestamp=80).epoch()
            assert job.watermark == 79


class TestPartitions:
    """Spark's partitions have no identity: any number of them is one channel."""

    @pytest.mark.parametrize("parallelism", [1, 2])
    def test_the_number_of_partitions_can_change_without_stalling_or_causing_late_records(self, env, parallelism):
        stream = seen(env.from_collection([]).assign_timestamps_and_watermarks(bounded(10)))
        with JobHarness(stream, parallelism=parallelism) as job:
            start = 0
            for parts in (7, 1, 3, 7):
                job.set_partitions(parts)
                # In order except for neighbours, which are swapped: disorder of at most 10.
                times = [start + n * 10 + (10 if n % 2 == 0 else -10) for n in range(40)]
                before = job.watermark
                job.push(*times).epoch()
                late = [(time, mark) for time, mark in job.output if time != "timer" and time <= mark]
                assert late == []
                assert job.watermark > before
                # The partition that is furthest behind ends at least six sevenths before the end.
                assert job.watermark >= start + 400 // parts - 40
                start += 400

    def test_a_partition_without_records_does_not_block_the_watermark(self, env):
        with JobHarness(seen(env.from_collection([]).assign_timestamps_and_watermarks(bounded(0)))) as job:
            job.set_partitions(5)
            job.push(100, 200).epoch()
            assert job.watermark == 99
            job.push(300).epoch()
            assert job.watermark == 299


class Shelves(Source):
    """Named splits, each a list of records that the test extends; None ends a split."""

    bounded = False
    shelves: dict = {}

    def advance(self, positions, limit):
        return (
            {name: len(records) for name, records in self.shelves.items()}
            | dict(positions)
            | {name: len(records) for name, records in self.shelves.items()}
        )

    def read(self, split, start, end):
        return [record for record in self.shelves[split][start or 0 : end] if record is not None]

    def ends(self, split, position):
        return self.shelves[split][:position][-1:] == [None]


@pytest.fixture
def shelves():
    Shelves.shelves = {}
    yield Shelves.shelves
    Shelves.shelves = {}


class TestSplits:
    def job(self, env, strategy=None, **options):
        return JobHarness(seen(env.from_source(Shelves(), strategy or bounded(0), "shelves")), **options)

    def test_a_source_with_watermarks_has_its_given_name_and_uid(self):
        env = StreamExecutionEnvironment.get_execution_environment()
        stream = env.from_source(Shelves(), bounded(0)).name("books").uid("books-1")
        env._graph.resolve_uids()
        assert [(node.name, node.uid) for node in env._graph.nodes.values()] == [
            ("books", "books-1"),
            ("Timestamps/Watermarks", "books-1 watermarks"),
        ]
        assert stream.get_name() == "books"

    def test_the_split_that_is_furthest_behind_determines_the_watermark(self, env, shelves):
        with self.job(env) as job:
            shelves["a"], shelves["b"] = [100], [50]
            job.epoch()
            assert job.watermark == 49
            shelves["b"].append(200)
            job.epoch()
            assert job.watermark == 99

    def test_a_silent_split_blocks_the_watermark_across_epochs_and_crashes(self, env, shelves):
        with self.job(env, parallelism=2) as job:
            shelves["a"], shelves["b"] = [100], [50]
            job.epoch()
            for time in (200, 300):
                shelves["a"].append(time)
                job.epoch()
                job.crash()
            assert job.watermark == 49

    def test_an_ended_split_does_not_block_the_watermark(self, env, shelves):
        with self.job(env) as job:
            shelves["a"], shelves["b"] = [100], [50, None]
            job.epoch()
            assert job.watermark == 99
            shelves["a"].append(200)
            job.epoch()
            assert job.watermark == 199

    def test_the_largest_watermark_counts_when_all_splits_have_ended_and_a_new_one_continues(self, env, shelves):
        with self.job(env) as job:
            shelves["a"], shelves["b"] = [100, None], [50, None]
            job.epoch()
            assert job.watermark == 99
            shelves["c"] = [120]
            job.epoch()
            assert job.watermark == 119

    def test_a_new_split_that_is_behind_is_late_but_does_not_move_the_watermark_backwards(self, env, shelves):
        with self.job(env) as job:
            shelves["a"] = [100]
            job.epoch()
            shelves["b"] = [10]
            job.epoch()
            assert job.watermark == 99
            assert (10, 99) in job.output

    def test_an_idle_split_stops_blocking_the_others_and_an_epoch_runs_for_it(self, env, shelves):
        with self.job(env, bounded(0).with_idleness(Duration.of_seconds(10))) as job:
            job.set_clock(1000)
            shelves["a"], shelves["b"] = [100], [50]
            job.epoch()
            assert (job.watermark, job.next_wakeup) == (49, 11_000)
            job.set_clock(5000)
            shelves["a"].append(200)
            job.epoch()
            assert job.watermark == 49
            run = job.epochs_run
            job.set_clock(11_000)
            assert (job.watermark, job.epochs_run, job.next_wakeup) == (199, run + 1, 15_000)
            job.set_clock(12_000)
            assert job.epochs_run == run + 1
            # Back again but behind: the record is late, and the split counts once it has caught up.
            shelves["b"] += [60]
            job.epoch()
            assert (60, 199) in job.output
            assert job.watermark == 199
            shelves["b"] += [300]
            job.epoch()
            shelves["a"] += [400]
            job.epoch()
            assert job.watermark == 299

    def test_all_idle_splits_advance_to_the_largest_watermark_and_cause_no_further_wakeup(self, env, shelves):
        with self.job(env, bounded(0).with_idleness(Duration.of_seconds(10))) as job:
            job.set_clock(1000)
            shelves["a"], shelves["b"] = [100], [50]
            job.epoch()
            job.set_clock(20_000)
            assert (job.watermark, job.next_wakeup) == (99, None)


class Known(Shelves):
    gives_time = True


class StoodAt:
    """The part of a checkpoint history that a task uses."""

    def __init__(self, times):
        self.times = lambda: times


@pytest.mark.parametrize("gives_time", [False, True])
def test_a_split_that_ends_after_the_epoch_of_its_last_record_is_reported(env, gives_time):
    stream = env.from_source(Known()) if gives_time else env.from_source(Shelves(), bounded(0), "shelves")
    stream.uid("shelves").key_by(lambda value: 0).map(lambda value: value).print()
    graph = build(env._graph, 1)
    chain = graph.sources()[0]
    graph.timed = True
    maker = "shelves" if gives_time else "shelves watermarks"
    times = {maker: OperatorTime(channels={name: ChannelTime(watermark=49, active_at=0) for name in ("a", "b")})}
    state = StateAccess(StoodAt(times), None, None, 0, 0)
    rows = Task(ChainRun(graph, chain, None), 0).over_records(
        TaskEpoch(2, False, state), [OfSplit("b", [], ended=True)]
    )
    by_kind = {row.kind: row.payload for row in rows}
    assert decode_report(by_kind[REPORT]).watermarks == {maker: {"b": 2**63 - 1}}
    barrier = decode_barrier(by_kind[BARRIER])
    assert (barrier.watermarks, barrier.idle) == ({"b": 49}, ["b"])


class TestFunctionsInASourceChain:
    """They see the smallest watermark over all splits, and it never moves backwards."""

    class Watermarks(ProcessFunction):
        def process_element(self, value, ctx):
            yield value, ctx.timer_service().current_watermark()

    def job(self, env, strategy=None):
        return JobHarness(env.from_source(Shelves(), strategy or bounded(0), "shelves").process(self.Watermarks()))

    def test_a_function_sees_the_smallest_watermark_of_all_known_splits(self, env, shelves):
        with self.job(env) as job:
            shelves["a"], shelves["b"] = [100, 110], [50, 60]
            job.epoch()
            # The second split is unknown before its first record, and then does not move the watermark backwards.
            assert job.output == [(100, LEAST), (110, 99), (50, 109), (60, 109)]
            shelves["a"].append(120)
            shelves["b"] += [130, 140]
            job.epoch()
            assert job.output[4:] == [(120, 109), (130, 119), (140, 119)]

    def test_a_function_sees_a_monotonic_watermark_across_a_crash_and_a_new_split(self, env, shelves):
        with self.job(env) as job:
            shelves["a"] = [100]
            job.epoch()
            job.crash()
            shelves["b"] = [10, 150]
            shelves["a"].append(120)
            job.epoch()
            assert job.output == [(100, LEAST), (120, 99), (10, 119), (150, 119)]

    def test_a_function_sees_a_watermark_that_ignores_an_ended_split(self, env, shelves):
        with self.job(env) as job:
            shelves["a"], shelves["b"] = [100], [100]
            job.epoch()
            shelves["a"] += [150, None]
            shelves["b"] += [200, 300]
            job.epoch()
            assert job.output[2:] == [(150, 99), (200, 99), (300, 199)]


class TestSourceTime:
    def test_a_source_can_assign_timestamps_and_emit_watermarks(self, env):
        class Known(Source):
            gives_time = True

            def advance(self, positions, limit):
                return {"a": 1}

            def read(self, split, start, end):
                yield Timestamped(10, 10)
                yield Watermark(15)
                yield Timestamped(20, 20)

        with JobHarness(seen(env.from_source(Known()))) as job:
            job.epoch()
            assert job.output == [(10, LEAST), ("timer", 10), (20, 15)]

    def test_a_sources_watermark_never_moves_backwards(self, env):
        class Watermarks(ProcessFunction):
            def process_element(self, value, ctx):
                yield value, ctx.timer_service().current_watermark()

        with JobHarness(env.from_collection([]).process(Watermarks())) as job:
            job.push_watermark(100).push(1, timestamp=101).epoch()
            job.crash()
            job.push_watermark(50).push(2, timestamp=102).push_watermark(120).push(3, timestamp=121).epoch()
            assert job.output == [(1, 100), (2, 100), (3, 120)]

    def test_a_source_cannot_end_the_input(self, env):
        with JobHarness(seen(env.from_collection([]))) as job:
            job.push_watermark(2**63 - 1).epoch()
            assert job.watermark == 2**63 - 2
            job.push_watermark(5).push(7, timestamp=7).epoch()
            assert job.output == [(7, 2**63 - 2)]
            job.end()
            assert job.output == [(7, 2**63 - 2), ("timer", 7)]


class Punctuated(WatermarkGenerator):
    def on_event(self, event, event_timestamp, output):
        if event % 10 == 0:
            output.emit_watermark(Watermark(event_timestamp))


class Periodic(WatermarkGenerator):
    def __init__(self):
        self.furthest = LEAST

    def on_event(self, event, event_timestamp, output):
        self.furthest = max(self.furthest, event_timestamp)

    def on_periodic_emit(self, output):
        output.emit_watermark(self.furthest - 3)


class TestCustomGenerators:
    def test_a_punctuated_generator_emits_watermarks_with_records(self, env):
        strategy = WatermarkStrategy.for_generator(Punctuated).with_timestamp_assigner(lambda value, timestamp: value)
        with JobHarness(seen(env.from_collection([]).assign_timestamps_and_watermarks(strategy))) as job:
            job.push(7, 20, 15, 23).epoch()
            assert job.output == [
                (7, LEAST),
                (20, LEAST),
                ("timer", 7),
                ("timer", 20),
                (15, 20),
                (23, 20),
            ]
            # A timer for a past time fires with the next watermark.
            job.push(30).epoch()
            assert job.output[6:] == [(30, 20), ("timer", 15), ("timer", 23), ("timer", 30)]

    def test_a_periodic_generator_emits_watermarks_at_the_end_of_an_epoch(self, env):
        strategy = WatermarkStrategy.for_generator(Periodic).with_timestamp_assigner(lambda value, timestamp: value)
        with JobHarness(seen(env.from_collection([]).assign_timestamps_and_watermarks(strategy))) as job:
            job.push(7, 20, 15).epoch()
            assert job.watermark == 17
            job.push(10).epoch()
            assert job.watermark == 17


def test_the_smallest_watermark_of_two_sources_counts_in_all_downstream_operators(env):
    left = env.from_collection([]).uid("left").assign_timestamps_and_watermarks(bounded(0))
    right = env.from_collection([]).uid("right").assign_timestamps_and_watermarks(bounded(0))
    stream = left.union(right).key_by(lambda v: v % 5).map(lambda v: v)
    with JobHarness(seen(stream), parallelism=3) as job:
        job.push(100, source="left").epoch()
        assert job.watermark == LEAST
        job.push(50, source="right").epoch()
        assert job.watermark == 49
        job.push(80, source="right").epoch()
        assert job.watermark == 79


def test_an_assigner_behind_an_exchange_has_a_watermark_for_each_subtask(env):
    stamped = (
        env.from_collection([]).key_by(lambda v: v % 2).map(lambda v: v).assign_timestamps_and_watermarks(bounded(0))
    )
    with JobHarness(seen(stamped.rebalance().map(lambda v: v)), parallelism=2) as job:
        job.push(*range(1, 41)).epoch()
        before = job.watermark_of("seen")
        assert before in (38, 39)
        job.crash()
        # Only one of the two subtasks continues: the other blocks it.
        job.push(100).epoch()
        assert job.watermark_of("seen") == before


def test_the_end_of_the_input_is_the_largest_watermark(env):
    with JobHarness(seen(env.from_collection([3, 1]))) as job:
        job.end()
        assert job.output == [(3, LEAST), (1, LEAST), ("timer", 1), ("timer", 3)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(-1)), "must not be negative"),
        (lambda: WatermarkStrategy.no_watermarks().with_idleness(Duration.of_millis(0)), "longer than nothing"),
        (lambda: WatermarkStrategy.no_watermarks().with_timestamp_assigner(5), "a function of"),
        (lambda: WatermarkStrategy.for_generator(Periodic()), "Give it the class itself"),
    ],
)
def test_invalid_strategies_are_refused(make, message):
    with pytest.raises(PenstockError, match=message):
        make()


def test_an_invalid_timestamp_names_the_assigner(env):
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, timestamp: 1.5)
    stream = env.from_collection([1]).assign_timestamps_and_watermarks(strategy)
    with (
        JobHarness(stream) as job,
        pytest.raises(PenstockError, match=r"returned 1\.5 as the timestamp.*int\(d\.timestamp"),
    ):
        job.epoch()
