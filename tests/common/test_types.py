"""Types with equal parts are equal. Durations are accepted in several forms."""

import pickle
from datetime import timedelta

import pytest

from penstock.common import Duration, Instant, Row, Time, Types, to_millis, typeinfo
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    ExternalTypeInfo,
    InstantTypeInfo,
    ListTypeInfo,
    LocalTimeTypeInfo,
    SqlTimeTypeInfo,
)
from penstock.common.types import Row as RowOfTypes

SIMPLE = [
    (Types.STRING, "String"),
    (Types.BYTE, "Byte"),
    (Types.BOOLEAN, "Boolean"),
    (Types.SHORT, "Short"),
    (Types.INT, "Integer"),
    (Types.LONG, "Long"),
    (Types.FLOAT, "Float"),
    (Types.DOUBLE, "Double"),
    (Types.CHAR, "Char"),
    (Types.BIG_INT, "BigInteger"),
    (Types.BIG_DEC, "BigDecimal"),
    (Types.INSTANT, "Instant"),
    (Types.SQL_DATE, "DateTypeInfo"),
    (Types.SQL_TIME, "TimeTypeInfo"),
    (Types.SQL_TIMESTAMP, "TimestampTypeInfo"),
    (Types.PICKLED_BYTE_ARRAY, "PickledByteArrayTypeInfo"),
]

NESTED = [
    (lambda: Types.ROW([Types.LONG(), Types.STRING()]), "RowTypeInfo(Long, String)"),
    (lambda: Types.ROW_NAMED(["id", "n"], [Types.LONG(), str]), "RowTypeInfo(id: Long, n: str)"),
    (lambda: Types.TUPLE([Types.LONG(), Types.STRING()]), "TupleTypeInfo(Long, String)"),
    (lambda: Types.LIST(Types.LIST(Types.INT())), "ListTypeInfo<ListTypeInfo<Integer>>"),
    (lambda: Types.LIST(list[int]), "ListTypeInfo<list[int]>"),
    (lambda: Types.MAP(Types.STRING(), Types.LONG()), "MapTypeInfo<String, Long>"),
    (lambda: Types.PRIMITIVE_ARRAY(Types.INT()), "PrimitiveArrayTypeInfo<Integer>"),
    (lambda: Types.BASIC_ARRAY(Types.STRING()), "BasicArrayTypeInfo<String>"),
    (lambda: Types.OBJECT_ARRAY(Types.SQL_DATE()), "ObjectArrayTypeInfo<DateTypeInfo>"),
    (lambda: ExternalTypeInfo(Types.LONG()), "ExternalTypeInfo<Long>"),
    (lambda: LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_TIME), "LocalTimeTypeInfo<LOCAL_TIME>"),
]


@pytest.mark.parametrize(("make", "text"), SIMPLE + NESTED)
def test_types_with_the_same_parts_are_equal_and_picklable(make, text):
    assert repr(make()) == text
    assert make() == make()
    assert hash(make()) == hash(make())
    assert pickle.loads(pickle.dumps(make())) == make()


def test_different_types_are_not_equal():
    assert len({make() for make, _ in SIMPLE + NESTED}) == len(SIMPLE + NESTED)


@pytest.mark.parametrize("basic", BasicType)
def test_every_basic_type_has_pyflinks_factory(basic):
    made = getattr(BasicTypeInfo, f"{basic.name}_TYPE_INFO")()
    assert made == getattr(Types, basic.name)() == BasicTypeInfo(basic)
    assert hash(made) == hash(BasicTypeInfo(basic))
    assert made.get_basic_type() is basic


def test_other_pyflink_names_create_the_same_types():
    assert SqlTimeTypeInfo.DATE() == Types.SQL_DATE()
    assert SqlTimeTypeInfo.TIME() == Types.SQL_TIME()
    assert SqlTimeTypeInfo.TIMESTAMP() == Types.SQL_TIMESTAMP()
    assert isinstance(Types.INSTANT(), InstantTypeInfo)
    assert ListTypeInfo(Types.INT()).elem_type == Types.INT()
    assert RowOfTypes is Row


# Names that a PyFlink program can import from pyflink.common.typeinfo, read from PyFlink 2.3.0.
PYFLINK_NAMES = """
    TypeInformation BasicType BasicTypeInfo InstantTypeInfo SqlTimeTypeInfo PrimitiveArrayTypeInfo BasicArrayTypeInfo
    ObjectArrayTypeInfo PickledBytesTypeInfo RowTypeInfo TupleTypeInfo DateTypeInfo TimeTypeInfo TimestampTypeInfo
    ListTypeInfo MapTypeInfo LocalTimeTypeInfo ExternalTypeInfo Types
"""


def test_typeinfo_has_every_pyflink_class():
    assert [name for name in PYFLINK_NAMES.split() if not hasattr(typeinfo, name)] == []


def test_row_types_with_different_names_are_not_equal():
    named = Types.ROW_NAMED(["id"], [Types.LONG()])
    assert named != Types.ROW([Types.LONG()])
    assert named != Types.ROW_NAMED(["key"], [Types.LONG()])


def test_a_row_type_returns_its_fields():
    named = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
    assert named.get_field_names() == ["id", "name"]
    assert named.get_field_types() == [Types.LONG(), Types.STRING()]
    assert named.get_field_index("name") == 1
    assert Types.ROW([Types.LONG(), Types.STRING()]).get_field_names() == ["f0", "f1"]


def test_a_row_type_needs_one_name_per_field():
    with pytest.raises(ValueError, match="1 names for 2 types"):
        Types.ROW_NAMED(["id"], [Types.LONG(), Types.LONG()])
    with pytest.raises(ValueError, match="must be unique"):
        Types.ROW_NAMED(["id", "id"], [Types.LONG(), Types.LONG()])


def test_array_types_reject_other_element_types():
    with pytest.raises(TypeError, match="LIST"):
        Types.PRIMITIVE_ARRAY(Types.STRING())
    with pytest.raises(TypeError, match="OBJECT_ARRAY"):
        Types.BASIC_ARRAY(Types.SQL_DATE())


@pytest.mark.parametrize(
    ("length", "millis"),
    [
        (5, 5),
        (Time.milliseconds(5), 5),
        (Time.seconds(5), 5_000),
        (Time.minutes(5), 300_000),
        (Time.hours(5), 18_000_000),
        (Time.days(5), 432_000_000),
        (Duration.of_nanos(5_999_999), 5),
        (Duration.of_millis(5), 5),
        (Duration.of_seconds(5), 5_000),
        (Duration.of_minutes(5), 300_000),
        (Duration.of_hours(5), 18_000_000),
        (Duration.of_days(5), 432_000_000),
        (timedelta(seconds=5), 5_000),
        (timedelta(0), 0),
    ],
)
def test_every_kind_of_duration_converts_to_milliseconds(length, millis):
    assert to_millis(length) == millis
    assert pickle.loads(pickle.dumps(length)) == length


@pytest.mark.parametrize("length", ["5 s", 5.0, True, None])
def test_other_values_are_rejected_as_durations(length):
    with pytest.raises(TypeError, match="Expected a duration"):
        to_millis(length)


@pytest.mark.parametrize("length", [timedelta(microseconds=500), Duration.of_nanos(1)])
def test_a_duration_below_a_millisecond_is_rejected(length):
    with pytest.raises(ValueError, match="shorter than a millisecond"):
        to_millis(length)


def test_durations_compare_by_value():
    assert Time.seconds(60) == Time.minutes(1)
    assert Time.seconds(60) != Duration.of_seconds(60)
    assert len({Duration.of_seconds(60), Duration.of_minutes(1)}) == 1
    assert str(Time.seconds(1)) == "1000 ms"
    assert eval(repr(Duration.of_nanos(7))) == Duration.of_nanos(7)
    assert eval(repr(Duration.of_days(7))) == Duration.of_days(7)


@pytest.mark.parametrize("millis", [0, 1, 999, 1_000, 1_555_516_800_123, -1, -1_001])
def test_an_instant_round_trips_milliseconds(millis):
    assert Instant.of_epoch_milli(millis).to_epoch_milli() == millis
