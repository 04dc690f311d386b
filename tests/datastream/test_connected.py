"""Connected streams and side outputs, in the harness."""

from typing import Any

import pytest

from penstock.common import Types
from penstock.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import PenstockError
from penstock.testing import JobHarness


def two_sources(left: list[Any], right: list[Any]) -> tuple[Any, Any]:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection(left).uid("left"), env.from_collection(right).uid("right")


class Enrich(KeyedCoProcessFunction):
    """Remembers a name per id from the second stream and adds it to the records of the first."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.name = runtime_context.get_state(ValueStateDescriptor("name", str))

    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield ctx.get_current_key(), value[1], self.name.value()

    def process_element2(self, value: Any, ctx: Any) -> Any:
        self.name.update(value[1])


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("backend", ["memory", "filesystem"])
def test_two_keyed_streams_share_the_state_of_a_key(parallelism: int, backend: str) -> None:
    orders, names = two_sources([], [])
    stream = orders.connect(names).key_by(lambda order: order[0], lambda name: name[0]).process(Enrich())
    with JobHarness(stream, parallelism=parallelism, backend=backend) as job:
        job.push((1, "one"), (2, "two"), source="right").epoch()
        job.push((2, 20), (1, 10), (3, 30), source="left").epoch()
        job.push((1, "uno"), source="right").epoch()
        job.crash()
        job.push((1, 11), source="left").epoch()
        assert sorted(job.output[:3]) == [(1, 10, "one"), (2, 20, "two"), (3, 30, None)]
        assert job.output[3:] == [(1, 11, "uno")]


def test_each_stream_has_its_own_method() -> None:
    class Tell(CoMapFunction):
        def map1(self, value: Any) -> Any:
            return "first", value

        def map2(self, value: Any) -> Any:
            return ("second", value) if value else None

    class Repeat(CoFlatMapFunction):
        def flat_map1(self, value: Any) -> Any:
            yield value
            yield value

        def flat_map2(self, value: Any) -> Any:
            return None

    class Label(CoProcessFunction):
        def process_element1(self, value: Any, ctx: Any) -> Any:
            yield 1

        def process_element2(self, value: Any, ctx: Any) -> Any:
            return [2]

    for function, method, expected in (
        (Tell(), "map", [("first", 5), ("second", 7)]),
        (Repeat(), "flat_map", [5, 5]),
        (Label(), "process", [1, 2, 2]),
    ):
        left, right = two_sources([5], [7, 0])
        with JobHarness(getattr(left.connect(right), method)(function), parallelism=2) as job:
            assert sorted(job.run(), key=repr) == expected


class Nothing(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any: ...

    def process_element2(self, value: Any, ctx: Any) -> Any: ...


class TestConnectedStreamsRefuse:
    def test_connected_streams_must_both_be_keyed_or_neither(self) -> None:
        left, right = two_sources([1], [1])
        with pytest.raises(PenstockError, match="Key both"):
            left.key_by(lambda n: n).connect(right).process(Nothing())

    def test_a_keyed_function_on_streams_without_keys_is_refused(self) -> None:
        left, right = two_sources([1], [1])
        with pytest.raises(PenstockError, match=r"Nothing is a KeyedCoProcessFunction.*not keyed: call key_by"):
            left.connect(right).process(Nothing())

    def test_connected_streams_refuse_a_function_of_another_kind(self) -> None:
        left, right = two_sources([1], [1])
        with pytest.raises(PenstockError, match="needs a CoMapFunction"):
            left.connect(right).map(lambda value: value)

    def test_streams_of_two_environments_cannot_be_connected(self) -> None:
        with pytest.raises(PenstockError, match="same environment"):
            two_sources([1], [1])[0].connect(two_sources([1], [1])[0])


ODD = OutputTag("odd")
BIG = OutputTag("big", Types.LONG())


class Sort(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        if value > 100:
            yield BIG, value
        elif value % 2:
            yield ODD, value
        else:
            yield value
            yield ()


class KeyedSort(KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield from Sort().process_element(value, ctx)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_side_outputs_are_separate_streams(keyed: bool, parallelism: int) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection([1, 2, 3, 200, 4])
    main = numbers.key_by(lambda n: n).process(KeyedSort()) if keyed else numbers.process(Sort())
    odd = main.get_side_output(ODD).map(lambda n: ("odd", n))
    big = main.get_side_output(OutputTag("big", Types.LONG())).key_by(lambda n: n).map(lambda n: ("big", n))
    with JobHarness(main.map(lambda n: ("main", n)).union(odd, big), parallelism=parallelism) as job:
        expected = [("big", 200), ("main", ()), ("main", ()), ("main", 2), ("main", 4), ("odd", 1), ("odd", 3)]
        assert sorted(job.run(), key=repr) == sorted(expected, key=repr)


def test_a_side_output_without_a_reader_is_dropped() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with JobHarness(env.from_collection([1, 2]).process(Sort())) as job:
        assert job.run() == [2, ()]


def test_a_connected_function_can_have_side_outputs() -> None:
    class Split(CoProcessFunction):
        def process_element1(self, value: Any, ctx: Any) -> Any:
            yield ODD, value

        def process_element2(self, value: Any, ctx: Any) -> Any:
            yield value

    left, right = two_sources([1], [2])
    with JobHarness(left.connect(right).process(Split()).get_side_output(ODD)) as job:
        assert job.run() == [1]


class TestSideOutputsRefuse:
    def test_an_operator_without_side_outputs_refuses_get_side_output(self) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        with pytest.raises(PenstockError, match="'Map' has no side outputs"):
            env.from_collection([1]).map(lambda n: n).get_side_output(ODD)

    def test_a_side_output_with_more_than_one_value_is_refused(self) -> None:
        class Wrong(ProcessFunction):
            def process_element(self, value: Any, ctx: Any) -> Any:
                yield ODD, value, value

        env = StreamExecutionEnvironment.get_execution_environment()
        with (
            JobHarness(env.from_collection([1]).process(Wrong())) as job,
            pytest.raises(PenstockError, match="yielded 2 values"),
        ):
            job.run()

    @pytest.mark.parametrize("name", ["", None, 3])
    def test_an_output_tag_without_a_name_is_refused(self, name: Any) -> None:
        with pytest.raises(PenstockError, match="non-empty string"):
            OutputTag(name)

    def test_a_side_output_of_the_wrong_type_is_refused(self) -> None:
        class Wrong(ProcessFunction):
            def process_element(self, value: Any, ctx: Any) -> Any:
                yield BIG, "not a number"

        env = StreamExecutionEnvironment.get_execution_environment()
        side = env.from_collection([1]).process(Wrong()).get_side_output(BIG).key_by(lambda n: n).map(str)
        with JobHarness(side) as job, pytest.raises(PenstockError, match="str"):
            job.run()
