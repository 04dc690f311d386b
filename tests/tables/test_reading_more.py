"""Tables of library operators and earlier programs, and the memory use of streamed batches."""

import tracemalloc
from dataclasses import dataclass

import pytest
from table_jobs import environment, rows, saved

from penstock.common import Types
from penstock.common.time import Duration, Time
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import CheckpointedFunction, KeyedProcessFunction, ProcessJoinFunction
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.datastream.window import EventTimeSessionWindows
from penstock.tables import OperatorTransformation, Savepoint, SavepointWriter
from penstock.testing import JobHarness

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def first(pair):
    return pair[0]


def timed(name):
    stream = environment().from_collection([], type_info=PAIR).uid(name)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda value, time: value[1]))


class TestOperatorsOfTheLibrary:
    def test_an_interval_join_keeps_records_by_time(self, tmp_path):
        left = timed("left")
        env = left.get_execution_environment()
        right = env.from_collection([], type_info=PAIR).uid("right")
        strategy = WatermarkStrategy.for_monotonous_timestamps()
        right = right.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda value, time: value[1]))

        joined = left.key_by(first).interval_join(right.key_by(first)).between(Time.seconds(-5), Time.seconds(5))

        class Both(ProcessJoinFunction):
            def process_element(self, left, right, ctx):
                yield left, right

        with JobHarness(joined.process(Both()).uid("join")) as job:
            job.push(("a", 1000), ("a", 2000), source="left").epoch()
            found = Savepoint.load(job.savepoint(tmp_path))
        name = next(info.name for info in found.states("join") if info.kind == "timeline" and rows_of(found, info))
        assert rows(found.state("join", name)) == [
            ("a", 1000, 0, {"f0": "a", "f1": 1000}),
            ("a", 2000, 0, {"f0": "a", "f1": 2000}),
        ]

    def test_session_windows_have_start_and_end_columns(self, tmp_path):
        stream = (
            timed("numbers").key_by(lambda pair: pair[0]).window(EventTimeSessionWindows.with_gap(Time.seconds(10)))
        )
        summed = stream.reduce(lambda a, b: (a[0], a[1] + b[1]), output_type=PAIR).uid("sum")
        found = saved(summed, tmp_path, [("a", 1000), ("a", 5000)])
        assert rows(found.state("sum", "window contents"), "key", "window_start", "window_end", "value") == [
            ("a", 1000, 11000, {"f0": "a", "f1": 6000})
        ]

    def test_values_of_other_types_are_shown_in_their_own_column(self, tmp_path):
        def plus(a: int, b: int) -> int:
            return a + b

        def number(pair: tuple[str, int]) -> int:
            return pair[1]

        stream = environment().from_collection([]).uid("numbers").map(number).key_by(lambda n: n % 10)
        found = saved(stream.reduce(plus).uid("sum"), tmp_path, [("a", 11), ("b", 21), ("c", 2**70 + 8)])
        info = next(info for info in found.states("sum"))
        assert info.type == "long or any"
        shown = {row["key"]: (row["value"], row["value_any"]) for row in found.state("sum", info.name).rows()}
        assert shown == {1: (32, None), (2**70 + 8) % 10: (None, str(2**70 + 8))}
        objects = found.state("sum", info.name, allow_pickle=True).to_pandas()
        assert set(objects["value"]) == {32, 2**70 + 8}


def rows_of(found, info):
    return rows(found.state(info.uid, info.name))


@dataclass
class Visit:
    page: str
    n: int


class TestTypesFromAnnotations:
    def test_annotated_classes_have_columns(self, tmp_path):
        def visit(pair: tuple[str, int]) -> Visit:
            return Visit(*pair)

        def both(a: Visit, b: Visit) -> Visit:
            return Visit(a.page, a.n + b.n)

        stream = environment().from_collection([]).uid("numbers").map(visit).key_by(lambda visit: visit.page)
        found = saved(stream.reduce(both).uid("sum"), tmp_path, [("p", 1), ("p", 2)])
        (info,) = found.states("sum")
        assert [row["value"] for row in found.state("sum", info.name).rows()] == [{"page": "p", "n": 3}]


def with_ttl(descriptor, on=True):
    if on:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_millis(1000)).build())
    return descriptor


class Fading(KeyedProcessFunction):
    def __init__(self, ttl=True):
        self._ttl = ttl

    def open(self, runtime_context):
        self.value = runtime_context.get_state(with_ttl(ValueStateDescriptor("value", str), self._ttl))
        self.values = runtime_context.get_list_state(with_ttl(ListStateDescriptor("values", str), self._ttl))
        self.map = runtime_context.get_map_state(with_ttl(MapStateDescriptor("map", str, int), self._ttl))

    def process_element(self, value, ctx):
        self.value.update(value[0])
        self.values.add(value[0])
        self.map.put(value[0], value[1])
        yield value


def fading(ttl=True):
    return (
        environment().from_collection([]).uid("numbers").key_by(lambda pair: pair[1]).process(Fading(ttl)).uid("fade")
    )


class TestTimeToLive:
    def test_each_element_and_entry_has_its_own_expiry(self, tmp_path):
        with JobHarness(fading()) as job:
            job.set_clock(10_000).push(("a", 1)).epoch()
            job.set_clock(10_400).push(("b", 1)).epoch()
            found = Savepoint.load(job.savepoint(tmp_path))
        assert rows(found.state("fade", "value")) == [(1, "b", 10_400, 11_400)]
        assert rows(found.state("fade", "values")) == [(1, 0, "a", 10_000, 11_000), (1, 1, "b", 10_400, 11_400)]
        assert rows(found.state("fade", "map")) == [(1, "a", 1, 10_000, 11_000), (1, "b", 1, 10_400, 11_400)]

    def test_ttl_enabled_later_counts_from_the_restore(self, tmp_path):
        with JobHarness(fading(ttl=False)) as job:
            job.set_clock(10_000).push(("a", 1), ("a", 2)).epoch()
            plain = job.savepoint(tmp_path)
        with JobHarness(fading(), from_savepoint=plain) as job:
            job.set_clock(20_000).push(("b", 1)).epoch()
            found = Savepoint.load(job.savepoint(tmp_path))
        assert rows(found.state("fade", "values"), "key", "index", "value", "last_access") == [
            (1, 0, "a", 20_000),
            (1, 1, "b", 20_000),
            (2, 0, "a", 20_000),
        ]
        changed = SavepointWriter.from_existing_savepoint(found).transform_state("fade", "values", lambda frame: frame)
        again = Savepoint.load(changed.write(tmp_path / "again"))
        assert rows(again.state("fade", "values")) == rows(found.state("fade", "values"))
        with JobHarness(fading(), from_savepoint=again.path) as job:
            job.set_clock(20_500)
            assert job.states("values") == {1: ["a", "b"], 2: ["a"]}


class RawKeyed(KeyedProcessFunction, CheckpointedFunction):
    def initialize_state(self, context):
        self.bytes = dict(context.get_raw_keyed_state_inputs())

    def snapshot_state(self, context):
        output = context.get_raw_keyed_operator_state_output()
        for group in list(output.get_key_group_list())[:2]:
            output.start_new_key_group(group)
            output.write(b"group %d" % group)

    def process_element(self, value, ctx):
        yield value


def test_raw_keyed_state_is_shown_as_bytes_by_key_group(tmp_path):
    stream = (
        environment().from_collection([]).uid("numbers").key_by(lambda pair: pair[0]).process(RawKeyed()).uid("raw")
    )
    found = saved(stream, tmp_path, [("a", 1)], max_parallelism=4)
    assert rows(found.state("raw", "raw keyed state")) == [(0, b"group 0"), (1, b"group 1")]
    with pytest.raises(Exception, match="raw keyed state, whose keys are unknown"):
        SavepointWriter.from_existing_savepoint(found).change_max_parallelism(8).write(tmp_path / "other")


class TestAStreamOfBatches:
    def test_a_stream_keeps_one_key_group_in_memory(self, tmp_path):
        """60 MB of values in 128 key groups; a batch has about 4 MB."""
        data = ({"id": number, "text": f"{number:06d}" * 500} for number in range(20_000))
        bootstrap = (
            OperatorTransformation.bootstrap_with(data).key_by("id").state(ValueStateDescriptor("text", str), "text")
        )
        path = SavepointWriter.new_savepoint().with_operator("texts", bootstrap).write(tmp_path / "made")
        found = Savepoint.load(path)
        assert found.metadata.size > 60_000_000
        tracemalloc.start()
        try:
            seen = sum(batch.num_rows for batch in found.state("texts", "text").to_arrow())
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()
        assert seen == 20_000

    def test_a_list_is_not_split_between_batches(self, tmp_path, monkeypatch):
        monkeypatch.setattr("penstock.tables.contents._ENTRIES", 2)
        found = saved(fading(ttl=False), tmp_path, *([(str(epoch), key) for key in (1, 2, 3)] for epoch in range(5)))
        assert rows(found.state("fade", "values")) == [
            (key, index, str(index)) for key in (1, 2, 3) for index in range(5)
        ]
        assert len(list(found.state("fade", "map").batches())) > 5
