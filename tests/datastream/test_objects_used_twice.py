"""One source, function or descriptor used by several operators: each operator has its own positions and state."""

import json

import pytest

from penstock.common.typeinfo import Types
from penstock.datastream import OutputTag, StreamExecutionEnvironment
from penstock.datastream.connectors import Sink, SinkWriter, Source
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.testing import JobHarness

POINTS = [f"driver.{point}" for point in ("triggered", "collected", "published", "committed")]


class Count(KeyedProcessFunction):
    """Emits each record with the number of records of its key so far."""

    def __init__(self, name):
        self.name = name

    def open(self, runtime_context):
        self.count = runtime_context.get_state(COUNT)

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield self.name, value, self.count.value()


class List(KeyedProcessFunction):
    """Uses the descriptor of another function for its own state."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(COUNT)
        self.values = runtime_context.get_list_state(VALUES)

    def process_element(self, value, ctx):
        self.values.add(value)
        self.count.update((self.count.value() or 0) + 100)
        yield "list", value, self.count.value(), list(self.values.get())


COUNT = ValueStateDescriptor("count", Types.LONG())
VALUES = ListStateDescriptor("values", Types.LONG())


class Numbers(Source[int]):
    """The numbers 0 to 19, of which every fifth cannot be decoded."""

    def start(self, parallelism):
        return {"all": 0}

    def advance(self, positions, limit):
        return {"all": min(20, positions["all"] + (limit or 20))}

    def read(self, split, start, end):
        for number in range(start or 0, end):
            yield self.unreadable(split, f"number {number}", b"?", "a fifth") if number % 5 == 4 else number


class Shelf(Sink):
    """Stores the records of each subtask and epoch once."""

    def __init__(self):
        self.epochs = {}

    def create_writer(self, context):
        return ShelfWriter()

    def commit(self, commits, context):
        for commit in commits:
            self.epochs[commit.epoch, commit.subtask] = json.loads(commit.payload)

    @property
    def records(self):
        return [record for epoch in self.epochs.values() for record in epoch]


class ShelfWriter(SinkWriter):
    def begin_epoch(self, epoch):
        self.records = []

    def write(self, value):
        self.records.append(value)

    def prepare_commit(self):
        return json.dumps(self.records).encode()


@pytest.mark.parametrize("point", POINTS)
def test_a_function_used_twice_counts_separately_for_each_operator(point):
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers, count = env.from_collection(range(20)).uid("numbers"), Count("count")
    first = numbers.key_by(lambda n: n % 2).process(count).uid("first")
    second = numbers.filter(lambda n: n < 10).key_by(lambda n: n % 2).process(count).uid("second")
    with JobHarness(first.union(second)) as job:
        job.epoch(5)
        job.crash_at(point)
        job.epoch(5)
        job.run(5)
        assert [job.state("count", key, operator="first") for key in (0, 1)] == [10, 10]
        assert [job.state("count", key, operator="second") for key in (0, 1)] == [5, 5]


def test_a_shared_descriptor_creates_separate_state_for_each_operator():
    env = StreamExecutionEnvironment.get_execution_environment()
    keyed = env.from_collection(range(20)).uid("numbers").key_by(lambda n: 0)
    with JobHarness(keyed.process(Count("count")).uid("count").union(keyed.process(List()).uid("list"))) as job:
        job.run(7)
        assert job.state("count", 0, operator="count") == 20
        assert job.state("count", 0, operator="list") == 2000
        assert job.state("values", 0, operator="list") == list(range(20))


@pytest.mark.parametrize("point", POINTS)
def test_a_source_used_twice_is_read_separately_with_separate_dead_letters(point):
    env = StreamExecutionEnvironment.get_execution_environment()
    source, broken, other = Numbers(), OutputTag("broken"), OutputTag("other")
    first = env.from_source(source, source_name="first", dead_letters=broken).uid("first")
    second = env.from_source(source, source_name="second", dead_letters=other).uid("second")
    letters = (
        first.get_side_output(broken)
        .union(second.get_side_output(other))
        .map(lambda each: (each.source, each.position))
    )
    records = first.map(lambda n: ("first", n)).union(second.map(lambda n: ("second", n)))
    shelf = Shelf()
    records.union(letters).sink_to(shelf).uid("shelf")
    with JobHarness(env) as job:
        job.epoch(6)
        job.crash_at(point)
        job.epoch(6)
        job.run(6)
    good = [[name, n] for name in ("first", "second") for n in range(20) if n % 5 != 4]
    bad = [[name, f"number {n}"] for name in ("first", "second") for n in (4, 9, 14, 19)]
    assert sorted(map(str, shelf.records)) == sorted(map(str, good + bad))
    assert vars(source) == {}
