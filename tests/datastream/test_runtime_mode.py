"""The runtime mode: the results of a keyed reduce as a stream and as a batch."""

import pytest

from penstock.common import Configuration, Time, Types, WatermarkStrategy
from penstock.common.options import BadSetting
from penstock.datastream import (
    CheckpointedFunction,
    KeyedProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.execution_mode import RuntimeExecutionMode as SameMode
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.driver.epoch_settings import Settings
from penstock.errors import PenstockError
from penstock.graph.logical import GraphError, SourceSpec
from penstock.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from penstock.state.keys import encode_key
from penstock.state.overlay import Overlay
from penstock.testing import JobHarness

LETTERS = [("a", 0), ("c", 1), ("d", 1), ("b", 0), ("e", 1)]

STREAMING, BATCH, AUTOMATIC = RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH, RuntimeExecutionMode.AUTOMATIC


def make_env(mode=None):
    env = StreamExecutionEnvironment.get_execution_environment()
    return env if mode is None else env.set_runtime_mode(mode)


def joined(env, type_info=None):
    letters = env.from_collection(LETTERS, type_info)
    return letters.key_by(lambda pair: pair[1]).reduce(lambda one, two: (one[0] + two[0], one[1]))


@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("records", [None, 1, 2])
@pytest.mark.parametrize("backend", ["memory", "filesystem"])
class TestAReduceOfBoundedInput:
    def texts(self, mode, parallelism, records, backend):
        with JobHarness(joined(make_env(mode)), parallelism=parallelism, backend=backend) as job:
            return sorted(text for text, _ in job.run(records))

    @pytest.mark.parametrize("mode", [None, STREAMING])
    def test_a_streaming_reduce_emits_every_value(self, mode, parallelism, records, backend):
        assert self.texts(mode, parallelism, records, backend) == ["a", "ab", "c", "cd", "cde"]

    @pytest.mark.parametrize("mode", [BATCH, AUTOMATIC])
    def test_a_batch_reduce_emits_the_last_value_of_each_key(self, mode, parallelism, records, backend):
        assert self.texts(mode, parallelism, records, backend) == ["ab", "cde"]

    def test_a_batch_reduce_with_event_time_emits_each_value_once(self, parallelism, records, backend):
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda pair, timestamp: 0)
        letters = make_env(BATCH).from_collection(LETTERS).assign_timestamps_and_watermarks(strategy)
        texts = letters.key_by(lambda pair: pair[1]).reduce(lambda one, two: (one[0] + two[0], one[1]))
        with JobHarness(texts.key_by(lambda pair: 0).map(lambda pair: pair), parallelism=parallelism) as job:
            assert sorted(text for text, _ in job.run(records)) == ["ab", "cde"]

    def test_a_batch_reduce_feeds_another_reduce_in_the_final_epoch(self, parallelism, records, backend):
        numbers = make_env(BATCH).from_collection([(n % 7, n) for n in range(40)])
        per_seven = numbers.key_by(lambda pair: pair[0]).sum(1)
        largest = per_seven.key_by(lambda pair: pair[0] % 2).max_by(1)
        sums = {seven: sum(range(seven, 40, 7)) for seven in range(7)}
        expected = [
            max(((s, total) for s, total in sums.items() if s % 2 == odd), key=lambda p: p[1]) for odd in (0, 1)
        ]
        with JobHarness(largest, parallelism=parallelism, backend=backend) as job:
            assert sorted(job.run(records)) == sorted(expected)


@pytest.mark.parametrize(
    ("method", "expected"),
    [("sum", [("a", 6), ("b", 9)]), ("min", [("a", 1), ("b", 4)]), ("max", [("a", 3), ("b", 5)])],
)
def test_batch_aggregations_behave_like_reduces(method, expected):
    pairs = make_env(BATCH).from_collection([("a", 3), ("b", 4), ("a", 1), ("b", 5), ("a", 2)])
    with JobHarness(getattr(pairs.key_by(lambda pair: pair[0]), method)(1), parallelism=2) as job:
        assert sorted(job.run(2)) == expected


def test_a_batch_emits_old_and_recent_keys_once_each_in_order():
    typed = Types.TUPLE([Types.STRING(), Types.INT()])
    stream = make_env(BATCH).from_collection([], typed).key_by(lambda pair: pair[0]).sum(1)
    with JobHarness(stream) as job:
        job.push(("old", 1), ("both", 1)).epoch()
        job.push(("both", 2), ("new", 5)).epoch()
        assert job.output == []
        job.end()
        again = list(job.output)
        assert sorted(again) == [("both", 3), ("new", 5), ("old", 1)]
    stream = make_env(BATCH).from_collection([], typed).key_by(lambda pair: pair[0]).sum(1)
    with JobHarness(stream) as job:
        job.push(("new", 5), ("both", 3), ("old", 1)).end()
        assert job.output == again


@pytest.mark.parametrize("point", ["level1.processed", "driver.collected"])
def test_a_crash_in_the_final_epoch_loses_and_duplicates_nothing(point):
    with JobHarness(joined(make_env(BATCH)), parallelism=2) as job:
        job.epochs(2)
        job.crash_at(point)
        job.end()
        assert sorted(job.output) == [("ab", 0), ("cde", 1)]


def test_a_key_whose_reduce_returned_none_emits_nothing():
    stream = make_env(BATCH).from_collection([1, 2, 3]).key_by(lambda n: n % 2).reduce(lambda one, two: None)
    with JobHarness(stream) as job:
        assert job.run() == [2]


def test_the_mode_can_be_set_late_and_by_a_setting():
    env = make_env()
    stream = joined(env)
    env.set_runtime_mode(BATCH)
    with JobHarness(stream) as job:
        assert len(job.run()) == 2
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.runtime-mode": "batch"})
    )
    with JobHarness(joined(env)) as job:
        assert len(job.run()) == 2


class Remembering(KeyedProcessFunction, CheckpointedFunction):
    """Counts per key. A snapshot of it would fail."""

    def initialize_state(self, context):
        self.seen = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen", int))

    def snapshot_state(self, context):
        raise AssertionError("a batch has no checkpoint")

    def open(self, runtime_context):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value, ctx):
        self.n.update((self.n.value() or 0) + 1)
        self.seen.add(value)
        yield value % 10, self.n.value()


class TestAWholeBatch:
    """`run()` without a record limit. As on Spark, a batch is one job."""

    @pytest.mark.parametrize("partitions", [1, 3])
    @pytest.mark.parametrize("overlay", [1, 1 << 20])
    def test_a_batch_is_one_epoch_without_checkpoints_even_with_large_state(self, partitions, overlay):
        numbers = make_env(BATCH).from_sequence(0, 4999)
        stream = numbers.key_by(lambda n: n % 10).process(Remembering())
        with JobHarness(stream, parallelism=2, settings=Settings(overlay_bytes=overlay)) as job:
            job.set_partitions(partitions)
            assert sorted(job.run()) == [(key, n) for key in range(10) for n in range(1, 501)]
            assert job.epochs_run == 1
            assert job.storage.list("manifests/") == job.storage.list("deltas/") == []

    @pytest.mark.parametrize("point", ["source.processed", "level1.processed", "level1.reported", "driver.collected"])
    def test_a_batch_starts_from_scratch_after_a_crash(self, point):
        with JobHarness(joined(make_env(BATCH)), parallelism=2) as job:
            job.crash_at(point)
            assert sorted(job.run()) == [("ab", 0), ("cde", 1)]
            assert job.epochs_run == 1

    def test_a_batch_has_no_late_records(self):
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda pair, _: pair[1])

        def sums(mode):
            pairs = make_env(mode).from_collection([("a", 25), ("a", 1), ("b", 7), ("a", 3), ("a", 12)])
            keyed = pairs.assign_timestamps_and_watermarks(strategy).key_by(lambda pair: pair[0])
            windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
            with JobHarness(windows.reduce(lambda one, two: (one[0], one[1] + two[1]))) as job:
                return sorted(job.run())

        assert sums(BATCH) == [("a", 4), ("a", 12), ("a", 25), ("b", 7)]
        assert sums(STREAMING) == [("a", 25)]


def test_a_batch_ignores_the_watermarks_of_its_source():
    windows = make_env(BATCH).from_collection([]).key_by(lambda pair: pair[0])
    sums = windows.window(TumblingEventTimeWindows.of(Time.milliseconds(10))).reduce(lambda one, two: one + two[1:])
    with JobHarness(sums) as job:
        job.push(("a", 25), timestamp=25).push_watermark(24).push(("a", 1), timestamp=1)
        assert sorted(job.run()) == [("a", 1), ("a", 25)]


def endless(env):
    return env._source("Ticks", SourceSpec("chunks", [], bounded=False), None).key_by(lambda v: v).sum()


class TestASourceWithoutEnd:
    def test_an_unbounded_source_in_a_batch_is_refused_with_name_and_line(self):
        env = make_env(BATCH)
        endless(env)
        with pytest.raises(GraphError, match=r"BATCH, but source 'Ticks' is unbounded.*STREAMING") as raised:
            env.get_execution_plan()
        assert raised.value.locations[0].function == "endless"

    def test_an_unbounded_source_makes_automatic_mode_streaming(self):
        with JobHarness(endless(make_env(AUTOMATIC))) as job:
            job.push(1, 1).epoch()
            assert job.output == [1, 2]


def test_an_unknown_mode_is_refused():
    with pytest.raises(BadSetting, match=r"execution\.runtime-mode is 'fast'.*AUTOMATIC"):
        StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict({"execution.runtime-mode": "fast"})
        )


def test_an_error_in_a_batch_reduce_names_the_record():
    stream = make_env(BATCH).from_collection([1, "x"]).key_by(lambda v: 0).reduce(lambda one, two: one + two)
    with JobHarness(stream) as job, pytest.raises(PenstockError) as raised:
        job.run()
    assert raised.value.failures[0].record == "'x'"


def test_the_mode_is_importable_from_pyflinks_module():
    assert SameMode is RuntimeExecutionMode
    assert [mode.name for mode in SameMode] == ["STREAMING", "BATCH", "AUTOMATIC"]


def test_an_overlay_lists_only_the_keys_of_the_given_key_groups():
    overlay = Overlay(128)
    state = overlay.register(ValueStateDescriptor("n", int))
    keys = [encode_key(n) for n in range(50)]
    for key in keys:
        overlay.key = key
        state.update(1)
    overlay.key = keys[7]
    state.clear()
    halves = [list(overlay.keys("n", range(64))), list(overlay.keys("n", range(64, 128)))]
    assert all(halves)
    assert sorted(halves[0] + halves[1]) == sorted(key for key in keys if key != keys[7])
