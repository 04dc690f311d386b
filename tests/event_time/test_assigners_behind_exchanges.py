"""Timestamps and watermarks assigned behind an exchange: across epochs, crashes, rescales and savepoints."""

import msgspec
import pytest

from penstock.common import Duration, Time, WatermarkStrategy
from penstock.common.watermark_strategy import Watermark, WatermarkGenerator
from penstock.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.runtime.event_time import OperatorTime, standing
from penstock.runtime.plan import Chain, ChainedOperator
from penstock.testing import JobHarness

LEAST = -(2**63)


def bounded(milliseconds, idle=None):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(milliseconds))
    strategy = strategy.with_timestamp_assigner(lambda value, timestamp: value)
    return strategy if idle is None else strategy.with_idleness(Duration.of_millis(idle))


class Items(AggregateFunction):
    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        return [*accumulator, value]

    def get_result(self, accumulator):
        return sorted(accumulator)

    def merge(self, a, b):
        return a + b


class Seen(KeyedProcessFunction):
    """Yields (record, current watermark)."""

    def process_element(self, value, ctx):
        yield value, ctx.timer_service().current_watermark()


class Watermarks(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timer_service().current_watermark()


def task(stream, parallelism=1):
    return stream.rebalance().map(lambda value: value).set_parallelism(parallelism)


def stamped(stream, strategy, parallelism=1):
    """Assign timestamps in the subtasks of a task."""
    return task(stream, parallelism).assign_timestamps_and_watermarks(strategy).set_parallelism(parallelism)


def windows(stream):
    tumbling = stream.key_by(lambda value: 0).window(TumblingEventTimeWindows.of(Time.milliseconds(50)))
    return tumbling.aggregate(Items()).uid("windows")


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def two_streams(env, strategy, parallelism=1):
    """Return the union of streams a and b, each with timestamps assigned behind an exchange."""
    streams = [
        stamped(env.from_collection([]).uid(name), strategy, parallelism)
        .uid(f"{name} watermarks")
        .map(lambda value: value)
        .set_parallelism(parallelism)
        .uid(f"{name} map")
        for name in "ab"
    ]
    return streams[0].union(streams[1])


class TestLateness:
    EPOCHS = (([300], [300]), ([295], []), ([], [10_000]), ([301, 302, 303], []))

    @pytest.mark.parametrize("cut", ["one epoch", "epochs", "epochs and crashes"])
    def test_no_record_of_two_streams_is_dropped_unless_it_is_late(self, env, cut):
        with JobHarness(windows(two_streams(env, bounded(10)))) as job:
            for a, b in self.EPOCHS:
                job.push(*a, source="a").push(*b, source="b")
                if cut != "one epoch":
                    job.epoch()
                if cut == "epochs and crashes":
                    job.crash()
            job.end()
            assert job.output == [[295], [300, 300, 301, 302, 303], [10_000]]

    @pytest.mark.parametrize("size", [2, 4, 100])
    def test_no_record_of_two_subtasks_is_dropped_unless_it_is_late(self, env, size):
        stream = stamped(env.from_collection([]), bounded(10), 2).map(lambda value: value).set_parallelism(2)
        with JobHarness(windows(stream)) as job:
            job.push(300, 300, 295, 301, 294, 1000, 301, 1001, 302, 1002).epochs(size).end()
            assert job.output == [[294, 295], [300, 300, 301, 301, 302], [1000, 1001, 1002]]

    @pytest.mark.parametrize("parallelism", [1, 2, 3])
    def test_no_record_is_dropped_after_a_rescale_unless_it_is_late(self, env, parallelism):
        with JobHarness(windows(two_streams(env, bounded(10), 2))) as job:
            for number, (a, b) in enumerate(self.EPOCHS):
                job.push(*a, *a, source="a").push(*b, *b, source="b").epoch()
                if number == 1:
                    job.rescale({"a watermarks": parallelism, "b watermarks": parallelism})
            job.end()
            assert job.output == [[295, 295], [300] * 4 + [301, 301, 302, 302, 303, 303], [10_000, 10_000]]

    @pytest.mark.parametrize("parallelism", [1, 2, 3])
    def test_no_record_is_dropped_after_a_savepoint_unless_it_is_late(self, env, tmp_path, parallelism):
        with JobHarness(windows(two_streams(env, bounded(10), 2))) as job:
            for a, b in self.EPOCHS[:2]:
                job.push(*a, *a, source="a").push(*b, *b, source="b").epoch()
            before = {name: job.watermark_of(name) for name in ("a watermarks", "a map", "windows")}
            output = job.output
            path = job.stop_with_savepoint(tmp_path)
        again = StreamExecutionEnvironment.get_execution_environment()
        with JobHarness(windows(two_streams(again, bounded(10), parallelism)), from_savepoint=path) as job:
            assert {name: job.watermark_of(name) for name in before} == before
            for a, b in self.EPOCHS[2:]:
                job.push(*a, *a, source="a").push(*b, *b, source="b").epoch()
                assert all(job.watermark_of(name) >= before[name] for name in before)
            job.end()
            assert output + job.output == [[295, 295], [300] * 4 + [301, 301, 302, 302, 303, 303], [10_000, 10_000]]


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
        output.emit_watermark(self.furthest - 1)


class TestMonotonicWatermarks:
    STRATEGIES = pytest.mark.parametrize(
        "strategy",
        [
            bounded(0),
            *(
                WatermarkStrategy.for_generator(each).with_timestamp_assigner(lambda value, timestamp: value)
                for each in (Punctuated, Periodic)
            ),
        ],
        ids=["bounded", "punctuated", "periodic"],
    )

    @STRATEGIES
    def test_the_watermark_never_moves_backwards_across_epochs_and_crashes(self, env, strategy):
        chained = stamped(env.from_collection([]), strategy).uid("stamped").process(Watermarks()).uid("chained")
        with JobHarness(chained) as job:
            job.push(100).epoch()
            reached = job.watermark_of("stamped")
            assert reached in (99, 100)
            for value in (50, 60, 70):
                job.push(value).epoch()
                job.crash()
                assert job.watermark_of("stamped") == job.watermark_of("chained") == reached
            assert job.output == [(100, LEAST), (50, reached), (60, reached), (70, reached)]

    def test_the_watermark_stays_in_an_epoch_without_records(self, env):
        stream = stamped(env.from_collection([]), bounded(0)).uid("stamped")
        with JobHarness(stream.map(lambda value: value).uid("chained")) as job:
            job.push(100).epoch()
            job.epoch()
            assert (job.watermark_of("stamped"), job.watermark_of("chained")) == (99, 99)

    @pytest.mark.parametrize("parallelism", [1, 3])
    def test_the_watermark_never_moves_backwards_across_a_rescale(self, env, parallelism):
        stream = stamped(env.from_collection([]), bounded(0), 2).uid("stamped")
        with JobHarness(stream.key_by(lambda value: 0).process(Seen()).uid("seen")) as job:
            job.push(100, 200).epoch()
            assert (job.watermark_of("stamped"), job.watermark_of("seen")) == (99, 99)
            job.rescale({"stamped": parallelism})
            job.push(150).epoch()
            assert job.watermark_of("seen") >= 99
            job.push(*[300] * 6).epoch()
            assert job.watermark_of("seen") == 299

    def test_the_watermark_stays_when_the_assigner_moves_out_of_the_sources_chain(self, env, tmp_path):
        stream = env.from_collection([]).uid("source").assign_timestamps_and_watermarks(bounded(0)).uid("stamped")
        with JobHarness(stream.key_by(lambda value: 0).process(Seen()).uid("seen")) as job:
            job.push(100).epoch()
            path = job.stop_with_savepoint(tmp_path)
        again = StreamExecutionEnvironment.get_execution_environment()
        stream = stamped(again.from_collection([]).uid("source"), bounded(0))
        stream = stream.uid("stamped").key_by(lambda value: 0).process(Seen()).uid("seen")
        with JobHarness(stream, from_savepoint=path) as job:
            job.push(50).epoch()
            assert job.watermark_of("stamped") == job.watermark_of("seen") == 99
            assert job.output == [(50, 99)]

    def test_the_watermark_stays_when_the_assigner_moves_into_the_sources_chain(self, env, tmp_path):
        stream = stamped(env.from_collection([]).uid("source"), bounded(0), 2).uid("stamped")
        with JobHarness(stream.process(Watermarks()).set_parallelism(2).uid("chained")) as job:
            job.push(100, 100).epoch()
            path = job.stop_with_savepoint(tmp_path)
        again = StreamExecutionEnvironment.get_execution_environment()
        stream = again.from_collection([]).uid("source").assign_timestamps_and_watermarks(bounded(0)).uid("stamped")
        with JobHarness(stream.process(Watermarks()).uid("chained"), from_savepoint=path) as job:
            job.push(50, 60).epoch()
            job.push(70).epoch()
            assert job.output == [(50, 99), (60, 99), (70, 99)]


class TestOperatorsInASourceChain:
    def test_an_operator_in_a_sources_chain_sees_a_watermark_that_continues_across_epochs(self, env):
        stream = env.from_collection([]).assign_timestamps_and_watermarks(bounded(0)).process(Watermarks())
        with JobHarness(stream) as job:
            job.push(100).epoch()
            job.push(50, 120, 60).epoch()
            job.crash()
            job.push(70).epoch()
            assert job.output == [(100, LEAST), (50, 99), (120, 99), (60, 119), (70, 119)]


class TestIdleness:
    """`with_idleness` applies to an assigner in any position."""

    def job(self, env, parallelism=1, **options):
        united = two_streams(env, bounded(0, idle=1000), parallelism)
        return JobHarness(united.key_by(lambda value: 0).process(Seen()).uid("seen"), **options)

    def test_a_silent_stream_stops_blocking_the_other_and_an_epoch_runs_for_it(self, env):
        with self.job(env) as job:
            job.set_clock(5000)
            job.push(100, source="a").push(50, source="b").epoch()
            assert (job.watermark_of("seen"), job.next_wakeup) == (49, 6000)
            job.set_clock(5500)
            job.push(200, source="a").epoch()
            assert job.watermark_of("seen") == 49
            run = job.epochs_run
            job.set_clock(6000)
            assert (job.watermark_of("seen"), job.epochs_run, job.next_wakeup) == (199, run + 1, 6500)
            job.set_clock(6100)
            assert job.epochs_run == run + 1
            # Back again but behind: the record is late, and the stream counts once it has caught up.
            job.push(60, source="b").epoch()
            assert (60, 199) in job.output
            assert job.watermark_of("seen") == 199
            job.push(300, source="b").epoch()
            job.push(400, source="a").epoch()
            assert job.watermark_of("seen") == 299

    @pytest.mark.parametrize("how", ["crash", "rescale", "savepoint"])
    def test_a_silent_stream_stays_idle_after_a_crash_rescale_or_restore(self, env, tmp_path, how):
        with self.job(env, 2) as job:
            job.set_clock(5000)
            job.push(100, 100, source="a").push(50, 50, source="b").epoch()
            job.set_clock(5900)
            job.push(200, 200, source="a").epoch()
            job.set_clock(6000)
            assert job.watermark_of("seen") == 199
            if how == "crash":
                job.crash()
            elif how == "rescale":
                job.rescale({"a watermarks": 3, "b watermarks": 3})
            path = job.savepoint(tmp_path)
            if how != "savepoint":
                job.push(300, 300, 300, source="a").epoch()
                assert job.watermark_of("seen") == 299
                return
        with self.job(StreamExecutionEnvironment.get_execution_environment(), 3, from_savepoint=path) as job:
            job.set_clock(6001)
            job.push(300, 300, 300, source="a").epoch()
            assert job.watermark_of("seen") == 299

    def test_a_stream_without_any_record_becomes_idle(self, env):
        with self.job(env) as job:
            job.set_clock(5000)
            job.push(100, source="a").epoch()
            assert (job.watermark_of("seen"), job.next_wakeup) == (LEAST, 6000)
            job.set_clock(5999)
            job.push(200, source="a").epoch()
            assert job.watermark_of("seen") == LEAST
            job.set_clock(6000)
            assert job.watermark_of("seen") == 199

    def test_a_source_without_any_record_becomes_idle(self, env):
        streams = [
            env.from_collection([]).uid(name).assign_timestamps_and_watermarks(bounded(0, idle=1000)) for name in "ab"
        ]
        seen = streams[0].union(streams[1]).key_by(lambda value: 0).process(Seen()).uid("seen")
        with JobHarness(seen) as job:
            job.set_clock(5000)
            job.push(100, source="a").epoch()
            assert (job.watermark_of("seen"), job.next_wakeup) == (LEAST, 6000)
            job.crash()
            job.set_clock(5500)
            job.push(200, source="a").epoch()
            assert job.watermark_of("seen") == LEAST
            job.set_clock(6000)
            assert (job.watermark_of("seen"), job.next_wakeup) == (199, 6500)
            job.set_clock(6100)
            job.push(150, source="b").epoch()
            assert (150, 199) in job.output
            job.push(250, source="b").epoch()
            job.push(300, source="a").epoch()
            assert job.watermark_of("seen") == 249

    def test_a_subtask_without_any_record_becomes_idle(self, env):
        by_key = env.from_collection([]).key_by(lambda value: 0).map(lambda value: value)
        stream = by_key.assign_timestamps_and_watermarks(bounded(0, idle=1000))
        with JobHarness(stream.rebalance().process(Watermarks()).uid("seen"), parallelism=4) as job:
            job.set_clock(5000)
            job.push(100).epoch()
            assert job.watermark_of("seen") == LEAST
            job.set_clock(5500)
            job.push(200).epoch()
            job.set_clock(6000)
            assert (job.watermark_of("seen"), job.next_wakeup) == (199, 6500)

    def test_all_idle_streams_advance_to_the_largest_watermark_and_run_no_more_epochs(self, env):
        with self.job(env) as job:
            job.set_clock(5000)
            job.push(100, source="a").push(50, source="b").epoch()
            job.set_clock(9000)
            assert (job.watermark_of("seen"), job.next_wakeup) == (99, None)

    def test_an_assigner_behind_an_idle_source_is_idle_only_by_its_own_strategy(self, env):
        # The source of the first stream is idle, but a downstream assigner without idleness replaces its watermarks.
        idle = env.from_collection([]).uid("a").assign_timestamps_and_watermarks(bounded(0, idle=1000))
        again = stamped(idle, bounded(0)).uid("again")
        other = env.from_collection([]).uid("b").assign_timestamps_and_watermarks(bounded(0))
        with JobHarness(again.union(other).key_by(lambda value: 0).process(Seen()).uid("seen")) as job:
            job.set_clock(5000)
            job.push(100, source="a").push(50, source="b").epoch()
            job.set_clock(9000)
            job.push(200, source="b").epoch()
            job.crash()
            job.push(300, source="b").epoch()
            assert job.watermark_of("seen") == 99

    def test_a_strategy_whose_idleness_was_removed_blocks_again(self, env, tmp_path):
        with self.job(env) as job:
            job.set_clock(5000)
            job.push(100, source="a").push(200, source="b").epoch()
            job.set_clock(9000)
            path = job.savepoint(tmp_path)
        united = two_streams(StreamExecutionEnvironment.get_execution_environment(), bounded(0))
        seen = united.key_by(lambda value: 0).process(Seen()).uid("seen")
        with JobHarness(seen, from_savepoint=path) as job:
            job.set_clock(9001)
            job.push(300, source="a").epoch()
            assert (job.watermark_of("seen"), job.next_wakeup) == (199, None)


class TestInitialPositions:
    def chain(self, parallelism):
        def operator(uid, parent, assigns_time=False):
            return ChainedOperator(
                uid=uid,
                name=uid,
                kind="",
                parent=parent,
                keyed=False,
                pickled=b"",
                output_type=None,
                assigns_time=assigns_time,
                idle_timeout_ms=1000 if assigns_time else None,
            )

        operators = [operator("head", None), operator("stamped", 0, True), operator("behind", 1)]
        return Chain(id=1, level=1, parallelism=parallelism, max_parallelism=128, operators=operators)

    def places(self, parallelism, times):
        chain = self.chain(parallelism)
        return {
            operator.uid: [standing(chain, place, subtask, times)[:2] for subtask in range(parallelism)]
            for place, operator in enumerate(chain.operators)
        }

    def test_a_manifest_without_idleness_per_subtask_is_readable(self):
        old = msgspec.msgpack.encode([[100, 50], True, {}, False])
        time = msgspec.msgpack.decode(old, type=OperatorTime)
        assert time.of_subtask(1, 2) == (50, True, None)
        # For an operator that generates watermarks, the stored flag tells whether its input was idle.
        assert time.of_subtask(1, 2, makes_watermarks=True) == (50, False, None)

    def test_an_operator_behind_its_assigner_in_an_older_manifest_starts_with_it(self):
        times = {
            "head": OperatorTime(subtasks=[7]),
            "stamped": OperatorTime(subtasks=[100]),
            "behind": OperatorTime(subtasks=[LEAST]),
        }
        assert self.places(1, times) == {"head": [(7, False)], "stamped": [(100, False)], "behind": [(100, False)]}

    def test_an_operator_ahead_of_a_new_assigner_keeps_its_position(self):
        assert self.places(1, {"behind": OperatorTime(subtasks=[100])})["behind"] == [(100, False)]

    def test_assigners_start_at_their_combined_watermark_after_a_rescale(self):
        stood = OperatorTime(subtasks=[10, 200, 100], idle_subtasks=[True, False, False], active_at=[1, 2, 3])
        times = {"head": OperatorTime(subtasks=[7, 5, 6]), "stamped": stood, "behind": stood}
        assert self.places(2, times) == {
            "head": [(5, False)] * 2,
            "stamped": [(100, False)] * 2,
            "behind": [(100, False)] * 2,
        }
        assert stood.of_subtask(0, 2, makes_watermarks=True).active_at == 3

    def test_a_lagging_assigner_does_not_move_the_watermark_backwards_after_a_rescale(self):
        stood = OperatorTime(subtasks=[10, 200], idle_subtasks=[False, False], reached=200)
        assert self.places(3, {"stamped": stood})["stamped"] == [(200, False)] * 3

    def test_idle_assigners_start_idle_at_the_largest_watermark_after_a_rescale(self):
        stood = OperatorTime(subtasks=[10, 200], idle=True, idle_subtasks=[True, True])
        assert self.places(3, {"stamped": stood})["stamped"] == [(200, True)] * 3
