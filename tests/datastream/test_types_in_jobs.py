"""Values of every declared type through an exchange and through state, and the values that are refused."""

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext

import pytest

from penstock.common import Instant, Row, RowKind, Types
from penstock.common.typeinfo import ExternalTypeInfo, LocalTimeTypeInfo
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.testing import JobHarness

LONG = Decimal("1234567890123456789012345678901234567890.1234567890123456789012345678901234567890")
NAMED = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
LOCAL = LocalTimeTypeInfo.TimeType


@dataclass
class Order:
    id: int
    price: Decimal


VALUES = [
    (Types.STRING(), ["", "é😀", "\x00"]),
    (Types.BOOLEAN(), [True, False]),
    (Types.BYTE(), [-128, 127]),
    (Types.SHORT(), [-(2**15), 2**15 - 1]),
    (Types.INT(), [-(2**31), 2**31 - 1]),
    (Types.LONG(), [-(2**63), 2**63 - 1]),
    (Types.FLOAT(), [0.5, -0.0, math.inf, 3.4028234663852886e38]),
    (Types.DOUBLE(), [0.1, 5e-324, -math.inf]),
    (Types.CHAR(), ["a", "😀"]),
    (Types.BIG_INT(), [0, 2**200, -(2**200)]),
    (Types.BIG_DEC(), [Decimal("1.10"), Decimal("-0"), Decimal("1E+400"), LONG]),
    (Types.INSTANT(), [Instant.of_epoch_milli(-1), Instant(1, 999_999_999)]),
    (Types.SQL_DATE(), [date.min, date.max]),
    (Types.SQL_TIME(), [time(23, 59, 59, 999_999), time(1, tzinfo=timezone(timedelta(hours=2)))]),
    (Types.SQL_TIMESTAMP(), [datetime.min, datetime(2024, 1, 1, 1, 1, 1, 1, tzinfo=UTC)]),
    (LocalTimeTypeInfo(LOCAL.LOCAL_DATE), [date(2024, 2, 29)]),
    (LocalTimeTypeInfo(LOCAL.LOCAL_TIME), [time(1, 2, 3, 4)]),
    (LocalTimeTypeInfo(LOCAL.LOCAL_DATE_TIME), [datetime(2024, 2, 29, 1)]),
    (ExternalTypeInfo(Types.INT()), [1]),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"", b"\x00\xff"]),
    (Types.PRIMITIVE_ARRAY(Types.DOUBLE()), [[], [0.5]]),
    (Types.BASIC_ARRAY(Types.STRING()), [["a", None]]),
    (Types.OBJECT_ARRAY(Types.SQL_DATE()), [[date.min, None]]),
    (Types.LIST(Types.LIST(Types.INT())), [[[1], None, []]]),
    (Types.MAP(Types.STRING(), Types.LIST(Types.LONG())), [{"a": [1], "b": None}]),
    (Types.TUPLE([Types.STRING(), Types.TUPLE([Types.INT(), NAMED])]), [("a", (1, Row(id=1, name=None)))]),
    (Types.ROW([Types.LONG(), NAMED]), [Row(f0=None, f1=Row(id=1, name="a")), Row(f0=1, f1=None)]),
    (NAMED, [Row(id=None, name=None), Row.of_kind(RowKind.DELETE, id=1, name="a")]),
    (Types.LIST(Order), [[Order(1, LONG), None]]),
    (Types.PICKLED_BYTE_ARRAY(), [None, {1, "a"}, 1j]),
]


class Held(KeyedProcessFunction):
    """Stores each record in state of every kind, and emits the previous contents."""

    def __init__(self, declared):
        self.declared = declared

    def open(self, runtime_context):
        self.value = runtime_context.get_state(ValueStateDescriptor("value", self.declared))
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", self.declared))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", Types.INT(), self.declared))

    def process_element(self, value, ctx):
        before = list(self.list)
        if before:
            yield self.value.value(), before, self.map.get(0)
        self.value.update(value)
        self.list.add(value)
        self.map.put(0, value)


def stream(*records):
    return StreamExecutionEnvironment.get_execution_environment().from_collection(list(records))


def same(given, expected):
    """Return whether two values are equal, including class, sign, digits and row kind."""
    return given == expected and type(given) is type(expected) and repr(given) == repr(expected)


@pytest.mark.parametrize(("declared", "values"), VALUES)
class TestEveryType:
    def test_every_type_passes_through_an_exchange(self, declared, values):
        given = stream(*values).map(lambda value: value, output_type=declared).rebalance()
        with JobHarness(given.map(lambda value: value).set_parallelism(1)) as job:
            job.epoch()
            assert len(job.output) == len(values)
            assert all(map(same, job.output, values))

    def test_every_type_passes_through_state(self, declared, values):
        for value in values:
            if value is None:
                continue  # a state without a value
            held = stream(value).key_by(lambda value: 0).process(Held(declared))
            with JobHarness(held, backend="filesystem") as job:
                job.epoch()
                job.push(value)
                job.epoch()
                [(in_value, in_list, in_map)] = job.output
                assert same(in_value, value)
                assert same(in_list, [value])
                assert same(in_map, value)


@pytest.mark.parametrize(
    ("declared", "bad", "words"),
    [
        (Types.BYTE(), 128, "The range of byte is -128 to 127; declare Types.LONG()"),
        (Types.SHORT(), -(2**15) - 1, "The range of short is -32768 to 32767"),
        (Types.INT(), 2**31, "The range of int is -2147483648 to 2147483647"),
        (Types.LONG(), 2**63, "declare Types.BIG_INT()"),
        (Types.LONG(), True, "The bool True is not a long"),
        (Types.LONG(), 1.0, "The float 1.0 is not a long"),
        (Types.FLOAT(), 1e39, "declare Types.DOUBLE()"),
        (Types.CHAR(), "ab", "A char is a str of one character"),
        (Types.STRING(), b"a", "The bytes b'a' is not a string"),
        (Types.BIG_DEC(), 1.1, "is not a decimal"),
        (Types.SQL_DATE(), datetime(2024, 1, 1), "is not a date"),
        (Types.INSTANT(), 1, "Instant.of_epoch_milli"),
        (Types.TUPLE([Types.STRING()]), ("a", "b"), "Wrong number of elements: expected 1, got 2"),
        (Types.TUPLE([Types.STRING()]), (None,), "element 0 of the tuple"),
        (NAMED, Row(id=1), "Its fields are id"),
        (NAMED, Row("a", "b"), "field 'id' of the Row"),
        (Types.MAP(Types.STRING(), Types.LONG()), {None: 1}, "the entry None of the dict"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [None], "element 0 of the list"),
    ],
)
def test_a_value_of_another_type_is_refused_in_exchange_and_state(declared, bad, words):
    given = stream(bad).map(lambda value: value, output_type=declared).name("give").rebalance()
    held = stream(bad).key_by(lambda value: 0).process(Held(declared))
    for program, place in ((given.map(str).set_parallelism(2), "give"), (held, "State 'value'")):
        with JobHarness(program) as job, pytest.raises(UserFunctionFailed) as failed:
            job.epoch()
        assert words in str(failed.value)
        assert place in str(failed.value)


def test_a_declared_float_is_always_rounded_to_32_bits():
    rounded = stream(0.1).map(lambda value: value, output_type=Types.FLOAT())
    for program in (rounded.map(lambda value: value), rounded.rebalance().map(lambda value: value).set_parallelism(1)):
        with JobHarness(program) as job:
            job.epoch()
            assert job.output == [0.10000000149011612]


def test_decimals_are_exact_regardless_of_the_context_precision():
    with localcontext(prec=3):
        given = stream(LONG).map(lambda value: value, output_type=Types.BIG_DEC()).rebalance()
        with JobHarness(given.map(lambda value: value).set_parallelism(2)) as job:
            job.epoch()
            assert job.output == [LONG]


def test_an_aware_timestamp_returns_as_the_same_moment_in_utc():
    moment = datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    given = stream(moment).map(lambda value: value, output_type=Types.SQL_TIMESTAMP()).map(lambda value: value)
    with JobHarness(given) as job:
        job.epoch()
        assert repr(job.output) == repr([datetime(2024, 1, 1, 10, tzinfo=UTC)])


def test_declaring_pickled_equals_declaring_no_type():
    """This lets a program disable an annotation at no cost."""

    def give(value) -> Order:
        return value

    given = stream(Order(1, LONG)).map(give, output_type=Types.PICKLED_BYTE_ARRAY())
    assert given.get_type() == Types.PICKLED_BYTE_ARRAY()
    with JobHarness(given.rebalance().map(lambda value: value).set_parallelism(2)) as job:
        job.epoch()
        assert job.output == [Order(1, LONG)]
        assert all(edge.pickled_type is None for edge in job._graph.edges)
