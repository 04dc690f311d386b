"""A function can emit the same object repeatedly; each record keeps the content it was emitted with."""

from dataclasses import dataclass
from typing import Any

import pytest

from penstock.common import Row
from penstock.datastream import MapFunction, StreamExecutionEnvironment
from penstock.runtime.sharing import Frozen, hold, independent
from penstock.testing import JobHarness


@dataclass
class Point:
    x: int


class Reuses(MapFunction):
    """Emits one object for all records."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape

    def map(self, value: int) -> Any:
        shape = self.shape
        if isinstance(shape, Point):
            shape.x = value
        elif isinstance(shape, tuple):
            shape[0][0] = value
        else:
            shape[0] = value
        return shape


def read(record: Any) -> int:
    if isinstance(record, Point):
        return record.x
    return read(record[0]) if isinstance(record[0], list) else record[0]


class Nested(MapFunction):
    def __init__(self) -> None:
        self.record: list[list[int]] = [[0]]

    def map(self, value: int) -> Any:
        self.record[0][0] = value
        return self.record


@pytest.mark.parametrize("shape", [Row(0, "a"), [0], {0: 0}, ([0], 1), Point(0), "nested"], ids=str)
@pytest.mark.parametrize("per_epoch", [1, 5])
@pytest.mark.parametrize("way", ["collected", "keyed", "rebalanced"])
def test_an_object_emitted_again_becomes_a_separate_record(shape: Any, per_epoch: int, way: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    mapped = env.from_collection(range(5)).map(Nested() if shape == "nested" else Reuses(shape))
    if way == "keyed":
        stream = mapped.key_by(lambda record: 1).map(read)
    elif way == "rebalanced":
        stream = mapped.map(read).set_parallelism(2)
    else:
        stream = mapped
    with JobHarness(stream) as job:
        output = job.run(per_epoch)
    assert sorted(output if way != "collected" else map(read, output)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("parallelism", [None, 2], ids=["chained", "behind an exchange"])
def test_an_operator_that_changes_a_record_does_not_affect_others(parallelism: int | None) -> None:
    def spoil(record: list[int]) -> list[int]:
        record[0] = -1
        return record

    env = StreamExecutionEnvironment.get_execution_environment()
    source = env.from_collection([[1], [2]])
    given = source.map(lambda record: record)
    spoiled, untouched = given.map(spoil), given.map(lambda record: record[0])
    also = source.map(spoil)
    if parallelism:
        for stream in (spoiled, untouched):
            stream.set_parallelism(parallelism)
    seen = untouched.union(spoiled.filter(lambda record: False), also.filter(lambda record: False))
    with JobHarness(seen) as job:
        assert sorted(job.run()) == [1, 2]


def test_immutable_values_are_not_copied() -> None:
    for value in (1, "a", None, (1, "b"), 2.5, b"c"):
        assert hold(value) is value


def test_mutable_values_are_copied() -> None:
    row, nested = Row(a=1), [[1]]
    assert independent(row) == row
    assert independent(row) is not row
    assert isinstance(hold(nested), Frozen)
    copy = independent(nested)
    nested[0].append(2)
    assert copy == [[1]]
