"""Records are isolated: no consumer sees changes made by another consumer or by the function that emitted them."""

import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from penstock.common import Row, Time, Types, WatermarkStrategy
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    CoFlatMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    SinkFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.window import CountTrigger, GlobalWindows
from penstock.runtime.sharing import independent
from penstock.testing import JobHarness

TAG = OutputTag("side")


@dataclass
class Account:
    n: int
    marks: list[str] | None = None


@dataclass
class Nested:
    n: int
    marks: list[str] = field(default_factory=list)


SHAPES = {
    "list": lambda n: [n],
    "dict": lambda n: {"n": n},
    "row": lambda n: Row(n, "a"),
    "nested list": lambda n: [[n]],
    "nested dict": lambda n: {"n": {"n": n}},
    "tuple with a list": lambda n: (n, [n]),
    "dataclass": Account,
    "nested dataclass": Nested,
}


def change(record: Any) -> Any:
    """Change a record in place, at the innermost level if it is nested."""
    if isinstance(record, (Account, Nested)):
        record.n = -1
        record.marks = [*(record.marks or []), "changed"]
        if isinstance(record, Nested):
            record.marks.append("changed")
    elif isinstance(record, tuple):
        record[1].append("changed")
    elif isinstance(record, Row):
        record[1] = "changed"
    else:
        inner = record[0] if isinstance(record, list) else record["n"]
        if isinstance(inner, (list, dict)):
            change(inner)
        elif isinstance(record, list):
            record.append("changed")
        else:
            record["n"] = "changed"
    return record


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def shape(request):
    return request.param


def run(stream, *records):
    with JobHarness(stream) as job:
        return job.push(*records).run()


class Both(ProcessFunction):
    """Emits one object to a side output and to the main output."""

    def __init__(self, shape, side_first):
        self.shape = shape
        self.side_first = side_first

    def process_element(self, value, ctx):
        record = self.shape(value)
        if self.side_first:
            yield TAG, record
        yield record
        if not self.side_first:
            yield TAG, record


class Twice(FlatMapFunction):
    def __init__(self, shape):
        self.shape = shape

    def flat_map(self, value):
        record = self.shape(value)
        return [record, record]


class Kept(MapFunction):
    """Emits the same object for every record and keeps it."""

    def __init__(self, shape):
        self.kept = shape(1)

    def map(self, value):
        return self.kept


class TestOneObject:
    @pytest.mark.parametrize("side_first", [True, False])
    def test_one_object_on_a_side_output_and_the_main_output_becomes_two_records(self, env, shape, side_first):
        stream = env.from_collection([]).process(Both(shape, side_first))
        side, main = stream.get_side_output(TAG), stream
        changed, other = (side, main) if side_first else (main, side)
        results = run(
            changed.map(change).map(lambda record: ("changed", record)).union(other.map(lambda r: ("unchanged", r))), 1
        )
        assert dict(results) == {"changed": change(shape(1)), "unchanged": shape(1)}

    def test_one_object_emitted_twice_becomes_two_records(self, env, shape):
        assert run(env.from_collection([]).flat_map(Twice(shape)).map(change), 1) == [change(shape(1))] * 2

    def test_an_object_kept_by_its_function_is_not_changed_by_a_consumer(self, env, shape):
        assert run(env.from_collection([]).map(Kept(shape)).map(change), 1, 2) == [change(shape(1))] * 2

    def test_an_object_kept_by_a_filter_is_not_changed_by_a_consumer(self, env, shape):
        class Repeated(FilterFunction):
            last = None

            def filter(self, value):
                repeated, self.last = self.last == value, value
                return not repeated

        stream = env.from_collection([]).filter(Repeated()).map(change)
        assert run(stream, shape(1), shape(1), shape(2)) == [change(shape(1)), change(shape(2))]

    def test_an_object_changed_later_keeps_its_content_for_a_consumer_that_keeps_it(self, env):
        class Grows(MapFunction):
            def __init__(self):
                self.record = []

            def map(self, value):
                self.record.append(value)
                return self.record

        class Collects(MapFunction):
            def __init__(self):
                self.kept = []

            def map(self, value):
                self.kept.append(value)
                return [list(each) for each in self.kept]

        assert run(env.from_collection([]).map(Grows()).map(Collects()), 1, 2)[-1] == [[1], [1, 2]]

    def test_one_object_with_several_consumers_becomes_a_record_for_each(self, env, shape):
        stream = env.from_collection([]).map(shape)
        streams = [stream.map(change).map(lambda record: record) for _ in range(2)]
        results = run(stream.map(lambda record: record).union(*streams), 1)
        assert sorted(map(str, results)) == sorted(map(str, [shape(1), change(shape(1)), change(shape(1))]))

    def test_one_object_behind_a_timestamp_assigner_becomes_two_records(self, env, shape):
        stream = (
            env.from_collection([])
            .flat_map(Twice(shape))
            .assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks())
        )
        assert run(stream.map(change), 1) == [change(shape(1))] * 2

    def test_a_sink_function_receives_its_own_copy(self, env, shape):
        kept = Kept(shape)

        class Changing(SinkFunction):
            def invoke(self, value, context):
                change(value)

        stream = env.from_collection([]).map(kept)
        stream.add_sink(Changing())
        assert run(stream.map(lambda record: record), 1, 2) == [shape(1), shape(1)]


class TestReusedObjects:
    def test_an_object_reused_by_a_two_input_function_becomes_separate_records(self, env, shape):
        class Same(CoProcessFunction):
            def __init__(self):
                self.kept = shape(1)

            def process_element1(self, value, ctx):
                yield self.kept

            def process_element2(self, value, ctx):
                yield self.kept
                yield self.kept

        class Flat(CoFlatMapFunction):
            def __init__(self):
                self.kept = shape(1)

            def flat_map1(self, value):
                yield self.kept

            def flat_map2(self, value):
                return [self.kept, self.kept]

        for function, method in ((Same(), "process"), (Flat(), "flat_map")):
            env = StreamExecutionEnvironment.get_execution_environment()
            left, right = (env.from_collection([0]).uid(uid) for uid in ("left", "right"))
            stream = getattr(left.connect(right), method)(function).map(change)
            assert JobHarness(stream).run() == [change(shape(1))] * 3

    @pytest.mark.parametrize("ordered", [True, False])
    def test_an_object_reused_by_asynchronous_calls_becomes_separate_records(self, env, shape, ordered):
        class Looks(AsyncFunction):
            def __init__(self):
                self.kept = shape(1)

            async def async_invoke(self, value):
                return [self.kept, self.kept]

        wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
        stream = wait(env.from_collection([]), Looks(), Time.seconds(10))
        assert run(stream.map(change), 1) == [change(shape(1))] * 2

    def test_an_object_reused_by_a_window_function_becomes_separate_records(self, env, shape):
        class Same(ProcessWindowFunction):
            def process(self, key, context, elements):
                record = next(iter(elements))
                yield record
                yield record

        windows = env.from_collection([]).key_by(lambda value: 1).window(GlobalWindows.create())
        stream = windows.trigger(CountTrigger.of(1)).process(Same()).map(change)
        assert run(stream, shape(1)) == [change(shape(1))] * 2

    def test_an_object_reused_by_a_keyed_function_and_its_timers_becomes_separate_records(self, env, shape):
        class Same(KeyedProcessFunction):
            def __init__(self):
                self.kept = shape(1)

            def process_element(self, value, ctx):
                ctx.timer_service().register_event_time_timer(5)
                yield self.kept

            def on_timer(self, timestamp, ctx):
                yield self.kept
                yield TAG, self.kept

        stream = env.from_collection([]).key_by(lambda value: 1).process(Same())
        results = run(stream.map(change).union(stream.get_side_output(TAG).map(change)), 1)
        assert results == [change(shape(1))] * 3

    def test_an_object_reused_by_an_operator_with_a_declared_type_becomes_separate_records(self, env):
        stream = (
            env.from_collection([])
            .map(Kept(lambda n: [n]), output_type=Types.LIST(Types.PICKLED_BYTE_ARRAY()))
            .map(change)
        )
        assert run(stream, 1, 2) == [[1, "changed"]] * 2


class TestCopies:
    def test_an_immutable_record_is_not_copied(self, env):
        class Point(NamedTuple):
            x: int

        records = ["a", 1, 1.5, None, b"x", (1, "a"), True]
        given = [record for record in records if independent(record) is record]
        assert given == records
        assert independent(Point(1)) == Point(1)

    def test_a_copy_has_the_class_and_attributes_of_its_original(self):
        class Odd:
            def __init__(self):
                self.n = 1

            def __getstate__(self):
                return {"n": 5}

        class Slots:
            __slots__ = ("n",)

        account = Account(1)
        account.extra = "x"
        copy = independent(account)
        assert (copy, copy.extra, copy is account) == (account, "x", False)
        global _odd, _slots
        _odd, _slots = Odd, Slots
        Odd.__qualname__, Slots.__qualname__ = "_odd", "_slots"
        assert independent(Odd()).n == 5
        slotted = Slots()
        slotted.n = 7
        assert independent(slotted).n == 7


def test_records_that_cannot_be_copied_reach_chained_functions_unchanged() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection([]).map(lambda n: (each for each in range(n))).flat_map(lambda numbers: numbers)
    locked = numbers.map(lambda n: {"n": n, "lock": threading.Lock()}).filter(lambda both: not both["lock"].locked())
    with JobHarness(locked.map(lambda both: both["n"])) as job:
        job.push(1, 2, 3).epoch()
        assert job.output == [0, 0, 1, 0, 1, 2]
