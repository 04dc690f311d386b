"""States without a declared type: plain values are stored without pickling, and old pickles are still read."""

from datetime import datetime
from decimal import Decimal

import pytest

from penstock.common import Time, Types
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.state.local_storage import LocalStorage
from penstock.state.serializers import leaves, serializer
from penstock.tables import Savepoint
from penstock.testing import JobHarness

ANY = Types.PICKLED_BYTE_ARRAY()
VALUES = {
    "int": 5,
    "dict": {"a": [1, {"b": None}]},
    "tuple": ("x", (1, 2.5)),
    "set": {1, "a"},
    "dated": {"at": datetime(2024, 1, 1), "amount": Decimal("1.50")},
    "class": Decimal,
}
KINDS = ("value", "fading", "list", "map", "by key", "nested")


@pytest.fixture
def before(monkeypatch):
    """Make programs pickle everything without a type, as earlier versions did; calling the fixture ends that."""

    def begin():
        monkeypatch.setattr(leaves, "encode_plain", lambda value: None)
        monkeypatch.setattr(leaves, "to_bytes", leaves.to_pickle)
        monkeypatch.setattr(leaves.Pickled, "describe", lambda self, inside=frozenset(): "pickle")
        serializer._serializers.clear()

    def end():
        monkeypatch.undo()
        serializer._serializers.clear()

    begin()
    yield end
    end()


class Keep(KeyedProcessFunction):
    def open(self, runtime_context):
        fading = ValueStateDescriptor("fading", ANY)
        fading.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        self.value = runtime_context.get_state(ValueStateDescriptor("value", ANY))
        self.fading = runtime_context.get_state(fading)
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", ANY))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", str, ANY))
        self.by_key = runtime_context.get_map_state(MapStateDescriptor("by key", ANY, int))
        self.nested = runtime_context.get_state(ValueStateDescriptor("nested", Types.MAP(Types.STRING(), ANY)))

    def process_element(self, record, ctx):
        key, write = record
        if write:
            value = VALUES[key]
            self.value.update(value)
            self.fading.update(value)
            self.list.add(value)
            self.map.put(key, value)
            for map_key in (frozenset({1}), Decimal, ("a", 1)):
                self.by_key.put(map_key, (self.by_key.get(map_key) or 0) + 1)
            self.nested.update({"a": value})
        yield (
            key,
            self.value.value(),
            self.fading.value(),
            list(self.list.get()),
            dict(self.map.items()),
            dict(self.by_key.items()),
            self.nested.value(),
        )


def program():
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([]).uid("records").key_by(lambda record: record[0]).process(Keep()).uid("keep")


def read(job):
    job.output.clear()
    job.push(*((key, False) for key in VALUES)).epoch()
    return {key: dict(zip(KINDS, states, strict=True)) for key, *states in job.output}


def expected(value, key, times):
    return {
        "value": value,
        "fading": value,
        "list": [value] * times,
        "map": {key: value},
        "by key": {frozenset({1}): times, Decimal: times, ("a", 1): times},
        "nested": {"a": value},
    }


@pytest.mark.parametrize("backend", ["memory", "filesystem", "rocksdb"])
@pytest.mark.parametrize("restore", ["checkpoint", "savepoint"])
def test_old_pickles_and_plain_values_are_read_alike(before, backend, restore, tmp_path):
    with JobHarness(program(), backend=backend, parallelism=2) as old:
        old.push(*((key, True) for key in VALUES)).epoch()
        states = Savepoint.load(path := old.savepoint(tmp_path / "old")).states("keep")
        assert {info.type for info in states} >= {"pickle", "pickle -> long", "map<string, pickle?>"}
        before()
        given = {"storage": old.storage} if restore == "checkpoint" else {"from_savepoint": path}
        with JobHarness(program(), backend=backend, parallelism=3, **given) as job:
            assert read(job) == {key: expected(value, key, 1) for key, value in VALUES.items()}
            job.push(*((key, True) for key in VALUES)).epoch()
            job.lose_replicas()
            job.crash()
            assert read(job) == {key: expected(value, key, 2) for key, value in VALUES.items()}
            path = job.savepoint(tmp_path / "new")
        with JobHarness(program(), backend=backend, parallelism=1, from_savepoint=path) as again:
            found = read(again)
            assert found == {key: expected(value, key, 2) for key, value in VALUES.items()}
            assert type(found["tuple"]["value"][1]) is tuple


def reduced(function):
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([]).uid("records").key_by(lambda record: 0).reduce(function).uid("reduced")


def longest(a, b):
    return max(a, b)


def longest_pair(a: tuple[str, tuple[int, int]], b: tuple[str, tuple[int, int]]) -> tuple[str, tuple[int, int]]:
    return max(a, b)


@pytest.mark.parametrize("value", [("a", (1, 2)), ["a", [1, 2]], ["b", {"c": 1}], b"bytes"], ids=repr)
@pytest.mark.parametrize("form", ["pickled", "plain"])
def test_a_reduce_with_a_new_annotation_reads_state_stored_without_it(before, form, value, tmp_path):
    storage = LocalStorage(str(tmp_path))
    if form == "plain":
        before()
    with JobHarness(reduced(longest), storage=storage) as job:
        job.push(value).epoch()
    before()
    for _ in range(2):
        # A list could be mistaken for the annotated tuple.
        with JobHarness(reduced(longest_pair), storage=storage) as job:
            job.push(value).epoch()
            assert job.output == [value]
            assert type(job.output[0]) is type(value)
            job.crash()
            job.push(value).epoch()
            assert job.output == [value, value]
    with JobHarness(reduced(longest), storage=storage) as job:
        job.push(value)
        with pytest.raises(UserFunctionFailed, match="or any' but declared as 'value any'"):
            job.epoch()
