"""Type parameters are only for type checkers: functions, tags and descriptors behave the same without them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Generic, TypeVar

import cloudpickle
import pytest

from penstock.common import Types
from penstock.datastream import (
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.graph.logical import GraphError
from penstock.state.serializers import Hinted
from penstock.testing import JobHarness

T = TypeVar("T")


class Bare(MapFunction):
    def map(self, value):
        return value + 1


class Parameterised(MapFunction[int, int]):
    def map(self, value: int) -> int:
        return value + 1


class Own(MapFunction[T, T], Generic[T]):
    def map(self, value: T) -> T:
        return value


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


@pytest.mark.parametrize("function", [Bare(), Parameterised()], ids=["bare", "parameterised"])
def test_a_function_runs_the_same_with_and_without_type_parameters(env, function) -> None:
    assert isinstance(function, MapFunction)
    with JobHarness(env.from_collection([1, 2]).map(function)) as job:
        assert job.run() == [2, 3]


def test_a_generic_user_class_is_a_valid_function(env) -> None:
    with JobHarness(env.from_collection([1, 2]).map(Own[int]())) as job:
        assert job.run() == [1, 2]


def test_a_class_with_type_parameters_is_pickled_by_value() -> None:
    class Local(MapFunction[int, str]):
        def map(self, value: int) -> str:
            return str(value)

    there = cloudpickle.loads(cloudpickle.dumps(Local))
    assert there.__orig_bases__ == (MapFunction[int, str],)
    assert there().map(1) == "1"
    assert isinstance(there(), MapFunction)


def test_the_error_for_a_wrong_function_names_its_kind(env) -> None:
    with pytest.raises(GraphError, match="filter needs a FilterFunction or a function, not the MapFunction"):
        env.from_collection([1]).filter(Parameterised())


def test_a_tag_with_a_type_parameter_reads_the_same_side_output(env) -> None:
    tag = OutputTag[str]("odd", Types.STRING())

    class Split(ProcessFunction[int, int]):
        def process_element(
            self, value: int, ctx: ProcessFunction.Context
        ) -> Iterator[int | tuple[OutputTag[str], str]]:
            yield (tag, str(value)) if value % 2 else value

    assert tag == OutputTag("odd")
    stream = env.from_collection([1, 2, 3]).process(Split())
    assert stream._type() == Hinted(int, "")
    with JobHarness(stream.get_side_output(tag)) as job:
        assert job.run() == ["1", "3"]


@pytest.mark.parametrize(
    "descriptor",
    [ValueStateDescriptor[int]("n", Types.LONG()), MapStateDescriptor[str, int]("m", Types.STRING(), Types.LONG())],
)
def test_a_pickled_descriptor_holds_no_type_parameters(descriptor) -> None:
    there = pickle.loads(pickle.dumps(descriptor))
    assert not hasattr(there, "__orig_class__")
    assert there.schema() == descriptor.schema()


def test_state_is_the_same_with_and_without_type_parameters(env) -> None:
    class Count(KeyedProcessFunction[str, str, tuple[str, int]]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.counted = runtime_context.get_state(ValueStateDescriptor[int]("count", Types.LONG()))

        def process_element(self, value: str, ctx: KeyedProcessFunction.Context[str]) -> Iterator[tuple[str, int]]:
            self.counted.update((self.counted.value() or 0) + 1)
            yield ctx.get_current_key(), self.counted.value() or 0

    with JobHarness(env.from_collection(["a", "b", "a"]).key_by(lambda v: v).process(Count())) as job:
        assert job.run() == [("a", 1), ("b", 1), ("a", 2)]
