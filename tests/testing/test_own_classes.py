"""Classes from the program's own file, which the harness ships as Spark does."""

import enum
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import msgspec
import own_classes
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import JsonSchema, Types, WatermarkStrategy
from penstock.common.class_collector import ClassCollector
from penstock.common.program import Program
from penstock.common.serialization import BulkWriterFactory
from penstock.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import BulkFormat, FileSink, FileSource, StreamFormat
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.graph.ship import NotShippable
from penstock.state.driver_storage import DriverStorage
from penstock.testing import JobHarness


@pytest.fixture
def as_main(monkeypatch):
    """Run a text as the file of a program, whose classes then belong to `__main__`."""

    def run(text):
        module = ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", module)
        exec(compile(text, "program.py", "exec", dont_inherit=True), vars(module))
        return SimpleNamespace(**vars(module))

    return run


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


PROGRAM = Path(own_classes.__file__).read_text()


class TestAProgramOfItsOwnClasses:
    def run(self, program, folder, **options):
        env = StreamExecutionEnvironment.get_execution_environment()
        return JobHarness(program.build(env, str(folder)), parallelism=2, **options)

    def check(self, program, output):
        assert {type(order) for order in output} == {program.Order}
        assert {type(line) for order in output for line in order.lines} == {program.Line}
        texts = [f"{order.customer} {program.total(order)} -" for order in output]
        assert len(texts) == 60
        assert program.largest(texts) == program.expected()

    @pytest.mark.parametrize("records", [None, 7])
    def test_the_driver_receives_objects_of_the_programs_classes(self, as_main, tmp_path, records):
        program = as_main(PROGRAM)
        with self.run(program, tmp_path) as job:
            self.check(program, job.run(records))
            assert type(job.state("last", "a")) is program.Order
            assert type(job.state("anything", "a")["note"]) is program.Order.Note
            assert {type(visit) for visit in job.state("visits", "b")} == {program.Visit}
            assert [type(rules["all"]) for rules in job.operator_state("limits")] == [program.Limit] * 2

    def test_a_program_with_its_own_classes_survives_crashes_and_rescaling(self, as_main, tmp_path):
        program = as_main(PROGRAM)
        with self.run(program, tmp_path) as job:
            job.epoch(5)
            job.crash()
            job.epoch(5)
            job.rescale(3)
            job.epoch(5)
            job.crash_at("level2.snapshot")
            job.epoch(5)
            job.lose_replicas()
            self.check(program, job.run(5))

    def test_a_program_resumes_in_a_new_process_with_new_classes(self, as_main, tmp_path):
        storage = DriverStorage()
        first = as_main(PROGRAM)
        with self.run(first, tmp_path, storage=storage) as job:
            job.epoch(7)
            before = list(job.output)
            job._driver.stop()
            second = as_main(PROGRAM)
            assert second.Order is not first.Order
            with self.run(second, tmp_path, storage=storage) as again:
                again.run(7)
                assert type(again.state("anything", "a")["order"]) is second.Order
                assert len(before) + len(again.output) == 60
                assert {type(order) for order in again.output} == {second.Order}

    def test_a_program_starts_from_a_savepoint_with_new_classes(self, as_main, tmp_path):
        first = as_main(PROGRAM)
        with self.run(first, tmp_path) as job:
            job.epoch(7)
            path = job.stop_with_savepoint(tmp_path / "savepoints")
        second = as_main(PROGRAM)
        with self.run(second, tmp_path, from_savepoint=path) as again:
            assert type(again.state("anything", "a")["order"]) is second.Order
            assert type(again.state("last", "a")) is second.Order

    def test_an_imported_program_can_be_shipped_as_main(self, tmp_path):
        with self.run(own_classes, tmp_path, main=own_classes) as job:
            self.check(own_classes, job.run(7))


def test_tasks_have_copies_of_the_programs_classes(as_main, env):
    program = as_main("class Order: made = []\ndef note(order): Order.made.append(order); return len(Order.made)")
    with JobHarness(env.from_collection([program.Order(), program.Order()]).map(program.note)) as job:
        assert job.run() == [1, 2]
    assert program.Order.made == []


def test_a_module_given_as_main_is_shipped_by_value(env, monkeypatch):
    module = ModuleType("a_job")
    monkeypatch.setitem(sys.modules, "a_job", module)
    exec("seen = []\ndef note(value): seen.append(value); return len(seen)", vars(module))
    with JobHarness(env.from_collection([1, 2]).map(module.note), main=module) as job:
        assert job.run() == [1, 2]
    assert module.seen == []


def test_an_object_that_cannot_be_shipped_fails_in_a_test_as_well(env, monkeypatch):
    module = ModuleType("a_job")
    monkeypatch.setitem(sys.modules, "a_job", module)
    exec("import threading\nlock = threading.Lock()\ndef guard(value):\n    with lock: return value", vars(module))
    stream = env.from_collection([1]).map(module.guard)
    with pytest.raises(NotShippable, match=r"guard cannot .* the global variable 'lock'"):
        JobHarness(stream, main=module)


class TestOneClassForAllOperators:
    def test_operators_share_one_copy_of_a_local_class(self, env):
        @dataclass
        class Reading:
            value: int

        class Check(MapFunction):
            def map(self, value):
                assert type(value) is Reading
                return Reading(value.value + 1)

        class Keep(KeyedProcessFunction):
            def open(self, runtime_context):
                self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.PICKLED_BYTE_ARRAY()))

            def process_element(self, value, ctx):
                assert type(value) is Reading
                assert self.last.value() is None or type(self.last.value()) is Reading
                self.last.update(value)
                yield value

        stream = env.from_collection([Reading(number) for number in range(6)]).rebalance().map(Check())
        stream = stream.key_by(lambda reading: reading.value % 2).process(Keep()).map(Check())
        with JobHarness(stream, parallelism=2) as job:
            job.epoch(2)
            job.crash()
            assert {type(reading) for reading in job.run(2)} == {Reading}
            assert sorted(reading.value for reading in job.output) == [2, 3, 4, 5, 6, 7]
            assert type(job.state("last", 0)) is Reading

    def test_operators_distinguish_two_classes_of_the_same_name(self, env):
        def make():
            @dataclass
            class Reading:
                value: int

            return Reading

        left, right = make(), make()
        stream = env.from_collection([left(1)]).map(lambda r: (r, isinstance(r, left), isinstance(r, right)))
        other = env.from_collection([right(2)]).map(lambda r: (r, isinstance(r, left), isinstance(r, right)))
        with JobHarness(stream.union(other)) as job:
            job.run()
            assert sorted(job.output, key=str) == [(left(1), True, False), (right(2), False, True)]

    def test_operators_share_one_copy_of_a_class_used_only_in_records(self, as_main, env):
        program = as_main("class Card:\n    def __init__(self, number): self.number = number")
        records = [program.Card(1), (program.Card(2), [program.Card(3)])]
        stream = env.from_collection(records).rebalance().map(lambda value: value)
        with JobHarness(stream, parallelism=2) as job:
            card, (second, (third,)) = sorted(job.run(), key=lambda value: isinstance(value, tuple))
            assert {type(card), type(second), type(third)} == {program.Card}

    def test_operators_accept_a_redefined_class(self, as_main, env):
        """As in a notebook whose cell ran twice."""
        program = as_main("class Card:\n    number = 1\nold = Card\nclass Card:\n    number = 2")
        stream = env.from_collection([program.old(), program.Card()]).map(lambda card: (card, card.number))
        with JobHarness(stream) as job:
            assert [(type(card), number) for card, number in job.run()] == [(program.old, 1), (program.Card, 2)]

    def test_operators_share_a_class_defined_by_a_task(self, env):
        def define(value):
            return type("Made", (), {"value": value})()

        stream = env.from_collection([1, 2]).map(define).rebalance().map(lambda made: made.value)
        with JobHarness(stream, parallelism=2) as job:
            assert sorted(job.run()) == [1, 2]

    def test_operators_share_functions_in_records(self, as_main, env):
        program = as_main("def double(value): return helper(value)\ndef helper(value): return 2 * value")
        stream = env.from_collection([program.double, lambda value: -value]).rebalance().map(lambda rule: rule(4))
        with JobHarness(stream, parallelism=2) as job:
            assert sorted(job.run()) == [-4, 8]


KINDS = """
# a dataclass of slots
@dataclass(slots=True, order=True)
class T:
    a: int
    b: list[int] = field(default_factory=list)
# a dataclass that is frozen
@dataclass(frozen=True, kw_only=True)
class T:
    a: int
    b: str = "b"
# a dataclass that holds itself
@dataclass
class T:
    a: int
    b: "T | None" = None
# a dataclass of another
@dataclass
class U:
    c: "list[T]"
@dataclass
class T:
    a: int
    b: U | None = None
# a dataclass with a base
@dataclass
class U:
    a: int
@dataclass
class T(U):
    b: int = 2
# a generic dataclass
V = TypeVar("V")
@dataclass
class T(Generic[V]):
    a: V
# a struct
class T(msgspec.Struct):
    a: int
    b: list[int] = []
    def twice(self):
        return T(2 * self.a)
# a tagged struct
class T(msgspec.Struct, tag="t", tag_field="k", rename="camel"):
    a: int
    in_b: int = 1
# a frozen struct
class T(msgspec.Struct, frozen=True, order=True, kw_only=True, array_like=True):
    a: int
# a struct with a base
class U(msgspec.Struct, kw_only=True):
    c: int = 3
class T(U):
    a: int
    b: "T | None" = None
# a generic struct
V = TypeVar("V")
class T(msgspec.Struct, Generic[V]):
    a: V
# a named tuple
class T(NamedTuple):
    a: int
    b: str = "b"
    def twice(self):
        return T(2 * self.a)
# attrs
import attrs
@attrs.define
class T:
    a: int
    b: list[int] = attrs.field(factory=list)
# pydantic
import pydantic
class T(pydantic.BaseModel):
    a: int
    b: "list[T]" = []
# a cached property
from functools import cached_property
class T:
    def __init__(self, a):
        self.a = a
    @cached_property
    def twice(self):
        return T(2 * self.a)
    def __eq__(self, other):
        return (type(other), other.twice.a) == (T, self.twice.a)
# an enum
class T(enum.IntEnum):
    ONE = 1
# slots
class T:
    __slots__ = ("__hidden", "a")
    def __init__(self, a):
        self.a = self.__hidden = a
    def __eq__(self, other):
        return type(other) is T and other.__hidden == self.__hidden
# a plain class
class T:
    def __init__(self, a):
        self.a = a
    def __eq__(self, other):
        return type(other) is T and other.a == self.a
"""
KINDS = dict(kind.split("\n", 1) for kind in KINDS.split("\n# ")[1:])
IMPORTS = """
import enum
import msgspec
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar
"""
FUTURE = "from __future__ import annotations\n"


class TestEveryKindOfClass:
    @pytest.mark.parametrize("future", ["", FUTURE], ids=["", "postponed annotations"])
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind_of_class_behaves_the_same_in_tasks(self, as_main, env, kind, future):
        for name in ("attrs", "pydantic"):
            if kind == name:
                pytest.importorskip(name)
        program = as_main(
            f"{future}{IMPORTS}{KINDS[kind]}\n"
            "def check(value):\n"
            "    assert type(value) is T, (type(value), T)\n"
            "    return value\n"
        )
        make = program.T if kind == "an enum" else lambda number: program.T(a=number)
        if "struct" in kind or "dataclass" in kind:
            msgspec.json.Decoder(program.T)
        values = [make(1), make(1)]
        stream = env.from_collection(values).rebalance().map(program.check).rebalance().map(program.check)
        with JobHarness(stream, parallelism=2) as job:
            assert job.run() == values
            assert {type(value) for value in job.output} == {program.T}

    @pytest.mark.parametrize("future", ["", FUTURE], ids=["", "postponed annotations"])
    @pytest.mark.parametrize("kind", [kind for kind in KINDS if "struct" in kind or "dataclass" in kind])
    def test_every_kind_of_class_is_read_and_written_as_json_in_tasks(self, as_main, env, kind, future):
        program = as_main(f"{future}{IMPORTS}{KINDS[kind]}\n")
        schema = JsonSchema(program.T)
        texts = [schema.serialize(program.T(a=number)) for number in (1, 2)]
        stream = env.from_collection(texts).map(schema.deserialize).map(schema.serialize)
        with JobHarness(stream) as job:
            assert job.run() == texts


class TestFormats:
    """Formats are created in the driver with the program's class and used in the tasks."""

    @pytest.fixture(params=["", FUTURE], ids=["", "postponed annotations"])
    def program(self, request, as_main):
        program = as_main(
            f"{request.param}{IMPORTS}@dataclass\nclass Txn:\n    card: str\n    amount: float\n"
            "def check(value):\n    assert type(value) is Txn, type(value)\n    return value\n"
            "def make(pair): return Txn(*pair)\n"
        )
        # From now on msgspec's cached data is stored on the class.
        msgspec.json.decode(b'{"card": "a", "amount": 1}', type=program.Txn)
        return program

    def read(self, program, env, source):
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "cards").rebalance().map(program.check)
        with JobHarness(stream, parallelism=2) as job:
            read = sorted(job.run(), key=lambda txn: txn.card)
        assert read == [program.Txn("a", 1.0), program.Txn("b", 2.5)]
        assert {type(txn) for txn in read} == {program.Txn}

    def test_csv_is_read_as_a_class_of_the_program(self, program, env, tmp_path):
        (tmp_path / "cards.csv").write_text("card,amount\na,1.0\nb,2.5\n")
        csv = StreamFormat.csv(value_type=program.Txn, header=True)
        self.read(program, env, FileSource.for_record_stream_format(csv, str(tmp_path)).build())

    def test_parquet_is_read_as_a_class_of_the_program(self, program, env, tmp_path):
        pq.write_table(pa.table({"card": ["a", "b"], "amount": [1.0, 2.5]}), tmp_path / "cards.parquet")
        parquet = BulkFormat.parquet(value_type=program.Txn)
        self.read(program, env, FileSource.for_bulk_file_format(parquet, str(tmp_path)).build())

    def test_kafka_is_read_as_a_class_of_the_program(self, program, env, kafka):
        topic = kafka.topic()
        kafka.send(topic, '{"card": "a", "amount": 1}', '{"card": "b", "amount": 2.5}')
        builder = KafkaSource.builder().set_bootstrap_servers(kafka.servers).set_topics(topic)
        builder.set_starting_offsets(KafkaOffsetsInitializer.earliest()).set_bounded(KafkaOffsetsInitializer.latest())
        self.read(program, env, builder.set_value_only_deserializer(JsonSchema(program.Txn)).build())

    def test_parquet_is_written_from_a_class_of_the_program(self, program, env, tmp_path):
        sink = FileSink.for_bulk_format(str(tmp_path), BulkWriterFactory.parquet(program.Txn)).build()
        txns = env.from_collection([("a", 1.0), ("b", 2.5)]).map(program.make, program.Txn)
        txns.map(program.check).sink_to(sink)
        with JobHarness(env) as job:
            job.run()
        rows = [row for part in tmp_path.rglob("part-*") for row in pq.read_table(part).to_pylist()]
        assert rows == [{"card": "a", "amount": 1.0}, {"card": "b", "amount": 2.5}]


def test_the_stored_type_of_a_class_has_its_qualified_name(as_main, env):
    program = as_main(
        "from dataclasses import dataclass\nclass Outer:\n    @dataclass\n    class Inner:\n        a: int\n"
    )
    stream = env.from_collection([program.Outer.Inner(1)]).key_by(lambda r: r.a).reduce(lambda a, b: b).uid("r")
    typed = env.from_collection([program.Outer.Inner(1)], type_info=program.Outer.Inner).key_by(lambda r: r.a)
    typed.reduce(lambda a, b: b).uid("typed").print()
    with JobHarness(stream) as job:
        job.run()
        states = {uid: of.states for uid, of in job._driver.last.operators.items() if of.states}
        assert any("dataclass __main__.Outer.Inner(a: long)" in str(held) for held in states.values()), states


class TestClassesThatNoFunctionNames:
    def test_classes_used_only_in_state_are_available(self, as_main):
        program = as_main("class Used: pass\nclass Stored: pass")
        classes = ClassCollector()
        classes.add([program.Used])
        there = Program(classes.pack())
        assert "Stored" not in vars(there.modules["__main__"])
        with there.entered():
            assert sys.modules["__main__"].Stored.__name__ == "Stored"
            with pytest.raises(AttributeError, match="no attribute 'Gone'"):
                sys.modules["__main__"].Gone  # noqa: B018

    def test_unused_classes_do_not_have_to_be_shippable(self, as_main, env):
        program = as_main(
            "import threading\nclass Guarded:\n    lock = threading.Lock()\nclass Fine: pass\n"
            "class Large:\n    data = bytes(3_000_000)\ndef same(value): return value"
        )
        stream = env.from_collection([program.Fine()]).map(program.same)
        graph_size = len(JobHarness(stream)._graph.program)
        assert graph_size < 100_000

    def test_an_unshippable_class_in_records_is_refused(self, as_main, env):
        program = as_main("import threading\nclass Guarded:\n    lock = threading.Lock()")
        with pytest.raises(NotShippable, match=r"'cards'.*Guarded cannot be sent .* attribute 'lock' of class Guarded"):
            JobHarness(env.from_collection([program.Guarded()]).name("cards").map(str))

    def test_an_unshippable_class_in_a_function_is_refused(self, as_main, env):
        program = as_main(
            "import threading\nclass Guarded:\n    lock = threading.Lock()\ndef use(value): return Guarded.lock"
        )
        with pytest.raises(NotShippable, match=r"use cannot be sent to the tasks because of .*'Guarded'"):
            JobHarness(env.from_collection([1]).map(program.use))


def test_threads_that_leave_a_program_out_of_order_restore_main(as_main):
    as_main("class A: pass")
    main = sys.modules["__main__"]
    first, second = (Program(ClassCollector().pack()) for _ in range(2))
    inner, outer = first.entered(), second.entered()
    inner.__enter__()
    outer.__enter__()
    inner.__exit__(None, None, None)
    assert sys.modules["__main__"] is second.modules["__main__"]
    outer.__exit__(None, None, None)
    assert sys.modules["__main__"] is main


class Shared(NamedTuple):
    number: int


class Level(enum.Enum):
    LOW = 1


class Renamed(NamedTuple):
    number: int


def test_a_class_under_another_name_in_its_module_is_found(env):
    stream = env.from_collection([Renamed(1)]).rebalance().map(lambda value: (value, type(value) is Renamed))
    with JobHarness(stream, parallelism=2) as job:
        assert job.run() == [(Renamed(1), True)]
        assert type(job.output[0][0]) is Renamed
        assert len(job._graph.program) < 200


def test_classes_that_tasks_can_import_are_not_shipped(env):
    stream = env.from_collection([Shared(1), Level.LOW]).map(lambda value: (value, Shared(2)))
    with JobHarness(stream) as job:
        assert job.run() == [(Shared(1), Shared(2)), (Level.LOW, Shared(2))]
        assert len(job._graph.program) < 200
