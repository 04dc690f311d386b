"""What programs written for PyFlink see: rows, keyed streams, partitioning, plans and watermarks.

The values are those of PyFlink 2.3.
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, Duration, Row, Types, WatermarkStrategy
from penstock.datastream import (
    AggregateFunction,
    DataStream,
    KeyedProcessFunction,
    ProcessFunction,
    RuntimeContext,
    SourceFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.errors import PenstockError
from penstock.testing import JobHarness

PAIR = Types.ROW([Types.INT(), Types.STRING()])


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def results(stream: DataStream, parallelism: int | None = None) -> list[Any]:
    with JobHarness(stream, parallelism=parallelism) as job:
        return job.run()


class Previous(KeyedProcessFunction):
    """Emits what the state of the key held before."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", PAIR))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        before = self.last.value()
        self.last.update(value)
        yield repr(before) if before is None else f"{before} {before.f1}"


class TestRowsWithoutNames:
    def rows(self, env: StreamExecutionEnvironment) -> DataStream[Row]:
        return env.from_collection([(1, "a"), (2, "b")], PAIR)

    def test_the_fields_of_rows_without_names_are_f0_f1_and_so_on(self, env: StreamExecutionEnvironment) -> None:
        rows = results(self.rows(env))
        assert [repr(row) for row in rows] == ["Row(f0=1, f1='a')", "Row(f0=2, f1='b')"]
        assert rows[0].as_dict() == {"f0": 1, "f1": "a"}
        assert rows[0] == Row(f0=1, f1="a")
        assert rows[0] != Row(1, "a")

    def test_functions_read_them_by_name_position_and_attribute(self, env: StreamExecutionEnvironment) -> None:
        def text(row: Row) -> str:
            return f"{row.f0} {row['f1']} {row[0]} {row.as_dict()} {row} {row == Row(1, 'a')}"

        assert results(self.rows(env).map(text, Types.STRING())) == [
            "1 a 1 {'f0': 1, 'f1': 'a'} Row(f0=1, f1='a') False",
            "2 b 2 {'f0': 2, 'f1': 'b'} Row(f0=2, f1='b') False",
        ]

    def test_rows_that_a_function_returns_get_the_names(self, env: StreamExecutionEnvironment) -> None:
        mapped = self.rows(env).map(lambda row: Row(row[0], row[1]), PAIR)
        assert [repr(row) for row in results(mapped)] == ["Row(f0=1, f1='a')", "Row(f0=2, f1='b')"]
        again = env.from_collection([(1, "a"), (1, "b")], PAIR)
        reduced = again.key_by(lambda row: row.f0).reduce(lambda one, other: Row(one.f0, one.f1 + other.f1))
        assert results(reduced) == [Row(f0=1, f1="a"), Row(f0=1, f1="ab")]

    def test_the_names_survive_exchanges(self, env: StreamExecutionEnvironment) -> None:
        exchanged = self.rows(env).rebalance().map(lambda row: f"{row.f0}{row.f1}", Types.STRING())
        assert sorted(results(exchanged.set_parallelism(2), 2)) == ["1a", "2b"]

    def test_the_names_survive_state(self, env: StreamExecutionEnvironment) -> None:
        stream = env.from_collection([(1, "a"), (1, "b")], PAIR).key_by(lambda row: row.f0)
        with JobHarness(stream.process(Previous(), Types.STRING())) as job:
            assert job.run() == ["None", "Row(f0=1, f1='a') a"]

    def test_nested_rows_have_names(self, env: StreamExecutionEnvironment) -> None:
        (row,) = results(env.from_collection([(1, (2, "x"))], Types.ROW([Types.INT(), PAIR])))
        assert repr(row) == "Row(f0=1, f1=Row(f0=2, f1='x'))"
        assert row.as_dict(True) == {"f0": 1, "f1": {"f0": 2, "f1": "x"}}
        assert row.f1.f0 == 2

    def test_print_writes_their_fields_as_python_does(
        self, env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str]
    ) -> None:
        env.from_collection([(1, "a"), (2, None)], PAIR).print()
        with JobHarness(env) as job:
            job.run()
        assert capsys.readouterr().out == "+I[1,a]\n+I[2,None]\n"

    def test_aggregates_find_their_fields(self, env: StreamExecutionEnvironment) -> None:
        totals = env.from_collection([(1, "a"), (2, "a")], PAIR).key_by(lambda row: row.f1).sum("f0")
        assert results(totals) == [Row(f0=1, f1="a"), Row(f0=3, f1="a")]


class TestKeyedStreams:
    def collected(self, stream: DataStream) -> list[Any]:
        """Return what ``execute_and_collect`` would collect, without Spark."""
        collected: DataStream[Any] = stream._collected()  # type: ignore[assignment]
        return results(collected)

    def test_collecting_returns_rows_of_the_key_and_the_record(self, env: StreamExecutionEnvironment) -> None:
        pairs = env.from_collection([(1, "a"), (2, "b")], Types.TUPLE([Types.INT(), Types.STRING()]))
        keyed = pairs.key_by(lambda pair: pair[0], Types.INT())
        assert list(map(repr, self.collected(keyed))) == ["Row(f0=1, f1=(1, 'a'))", "Row(f0=2, f1=(2, 'b'))"]

    def test_a_key_or_record_without_a_type_is_returned_itself(self, env: StreamExecutionEnvironment) -> None:
        keyed = env.from_collection([{"id": 1}]).key_by(lambda record: [record["id"], 2])
        assert self.collected(keyed) == [Row(f0=(1, 2), f1={"id": 1})]

    def test_a_list_as_key_is_taken_as_a_tuple(self, env: StreamExecutionEnvironment) -> None:
        class Key(KeyedProcessFunction):
            def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
                yield ctx.get_current_key()

        records = env.from_collection([(1, "a"), (1, "b")])
        reduced = records.key_by(lambda pair: [pair[0], 2]).reduce(lambda one, other: (one[0], one[1] + other[1]))
        assert results(reduced) == [(1, "a"), (1, "ab")]
        for key_type in (None, Types.LIST(Types.INT())):
            again = StreamExecutionEnvironment.get_execution_environment().from_collection([(1, "a")])
            assert results(again.key_by(lambda pair: [pair[0], 2], key_type).process(Key())) == [(1, 2)]


class Where(ProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value, self.subtask


class TestSources:
    def test_rescale_directly_after_a_source_is_a_rescale(self, env: StreamExecutionEnvironment) -> None:
        env.set_parallelism(2)
        numbers = env.from_source(NumberSequenceSource(1, 10), WatermarkStrategy.no_watermarks(), "seq")
        numbers.rescale().map(lambda n: n).name("m").set_parallelism(4).shuffle().print()
        nodes = {node["contents"]: node for node in json.loads(env.get_execution_plan())["nodes"]}
        assert nodes["m"]["predecessors"][0]["ship_strategy"] == "RESCALE"
        assert nodes["Sink: Print to Std. Out"]["predecessors"][0]["ship_strategy"] == "SHUFFLE"
        assert [node["parallelism"] for node in nodes.values()] == [2, 4, 2]

    def test_rescale_after_a_collection_reaches_all_subtasks(self, env: StreamExecutionEnvironment) -> None:
        stream = env.from_collection(range(8)).rescale().process(Where()).set_parallelism(4)
        assert Counter(subtask for _, subtask in results(stream, 2)) == {0: 2, 1: 2, 2: 2, 3: 2}

    def test_a_source_can_have_its_own_parallelism(self, env: StreamExecutionEnvironment) -> None:
        env.set_parallelism(4)
        timed = WatermarkStrategy.for_monotonous_timestamps()
        numbers = env.from_source(NumberSequenceSource(1, 10), timed, "seq").set_parallelism(3)
        env.from_collection([1]).set_parallelism(1).union(numbers).map(lambda n: n).print()
        physical = env._physical()
        assert [chain.tasks for chain in physical.sources()] == [3, 1]
        nodes = json.loads(env.get_execution_plan())["nodes"]
        shown = {node["contents"]: node["parallelism"] for node in nodes}
        assert shown["Source: seq"] == 3
        assert shown["Source: Collection"] == 1
        assert shown["Map"] == 4

    def test_a_source_with_a_parallelism_reads_as_many_splits(self, env: StreamExecutionEnvironment) -> None:
        numbers = env.from_source(NumberSequenceSource(1, 9)).set_parallelism(3)
        with JobHarness(numbers, parallelism=1) as job:
            assert sorted(job.run()) == list(range(1, 10))
            (drawn,) = job._feed._drawn.values()
        assert len(drawn.positions) == 3

    def test_a_text_file_is_read_as_lines(self, env: StreamExecutionEnvironment, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("one\n\ntwö", "latin-1")
        lines = env.read_text_file(str(tmp_path / "a.txt"), "latin-1")
        assert results(lines.map(lambda line: f"<{line}>", Types.STRING())) == ["<one>", "<>", "<twö>"]

    def test_sources_of_the_java_api_are_those_of_penstock(self, env: StreamExecutionEnvironment) -> None:
        assert results(env.from_parallel_collection([1, 2], Types.INT())) == [1, 2]
        other = StreamExecutionEnvironment.get_execution_environment()
        assert sorted(results(other.generate_sequence(1, 3))) == [1, 2, 3]

    @pytest.mark.parametrize(
        ("function", "says"), [(SourceFunction("a.b.C"), "a SourceFunction, which wraps"), (1, "cannot read from 1")]
    )
    def test_add_source_names_its_replacement(self, env: StreamExecutionEnvironment, function: Any, says: str) -> None:
        with pytest.raises(PenstockError, match=rf"{says}.*env\.from_source.*env\.from_spark"):
            env.add_source(function)

    def test_add_source_accepts_a_source(self, env: StreamExecutionEnvironment) -> None:
        stream = env.add_source(NumberSequenceSource(1, 2), "numbers")
        assert stream.get_name() == "numbers"
        assert sorted(results(stream)) == [1, 2]


def test_the_plan_has_the_fields_of_flinks_plan(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(2)
    numbers = env.from_collection([1, 2, 3], Types.INT()).rescale().map(lambda n: n, Types.INT())
    numbers.key_by(lambda n: n).map(lambda n: n, Types.INT()).name("second").rebalance().print()
    nodes = json.loads(env.get_execution_plan())["nodes"]
    flinks = ("type", "pact", "contents", "parallelism")
    assert [tuple(node[field] for field in flinks) for node in nodes] == [
        ("Source: Collection", "Data Source", "Source: Collection", 1),
        ("Map", "Operator", "Map", 2),
        ("second", "Operator", "second", 2),
        ("Sink: Print to Std. Out", "Data Sink", "Sink: Print to Std. Out", 2),
    ]
    assert "predecessors" not in nodes[0]
    edges = [edge for node in nodes[1:] for edge in node["predecessors"]]
    assert [edge["ship_strategy"] for edge in edges] == ["RESCALE", "HASH", "REBALANCE"]
    assert [edge["id"] for edge in edges] == [node["id"] for node in nodes[:3]]
    assert {edge["side"] for edge in edges} == {"second"}


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class TestTheAutoWatermarkInterval:
    def windows(self, env: StreamExecutionEnvironment) -> JobHarness:
        """Return a job that counts records in windows of 10 ms of event time."""
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
        timed = env.from_collection([]).assign_timestamps_and_watermarks(strategy)
        windows = timed.key_by(lambda _: 0).window(TumblingEventTimeWindows.of(Duration.of_millis(10)))
        return JobHarness(windows.aggregate(Count()))

    def test_watermarks_follow_each_record_unless_an_interval_is_set(self, env: StreamExecutionEnvironment) -> None:
        assert env.get_config().get_auto_watermark_interval() == 0
        with self.windows(env) as job:
            # 5 comes after the watermark of 12, so its window has fired.
            job.push(1, 12, 5, 13).epoch()
            assert job.output == [1]

    def test_above_zero_no_record_is_late_within_its_epoch(self, env: StreamExecutionEnvironment) -> None:
        assert env.get_config().set_auto_watermark_interval(1000).get_auto_watermark_interval() == 1000
        with self.windows(env) as job:
            job.push(1, 12, 5, 13).epoch()
            assert job.output == [2]
            # 6 is late now: it comes an epoch after 13.
            job.push(6, 25).epoch()
            assert job.output == [2, 2]

    def test_the_setting_has_the_same_effect(self) -> None:
        configuration = Configuration().set_string("pipeline.auto-watermark-interval", "200 ms")
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        assert env.get_config().get_auto_watermark_interval() == 200
        with self.windows(env) as job:
            job.push(1, 12, 5).epoch()
            assert job.output == [2]

    def test_a_negative_interval_is_refused(self, env: StreamExecutionEnvironment) -> None:
        with pytest.raises(PenstockError, match="must not be negative"):
            env.get_config().set_auto_watermark_interval(-1)
