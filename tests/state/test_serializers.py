"""Serializers: accepted values are decoded to equal values; all others are rejected when stored."""
# ruff: noqa: UP007, UP045 - users write unions in both forms

from __future__ import annotations

import enum
import math
import os
import pickle
import re
import subprocess
import sys
import threading
from collections import Counter, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar, Union
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.common import Instant, Row, RowKind, Types
from penstock.state.serializers import NotEncodable, UnsupportedType, serializer_for

np = pytest.importorskip("numpy")

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


@dataclass
class Line:
    item: str
    price: Decimal
    count: int = 1


@dataclass
class Order:
    id: int
    lines: list[Line]
    colour: Colour
    note: str | None = None
    tags: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float


@dataclass
class Tree:
    value: int
    left: Optional[Tree] = None
    right: Optional[Tree] = None


class Pair(NamedTuple):
    name: str
    count: int


class Address(TypedDict, total=False):
    street: str
    number: int


class Event(msgspec.Struct, frozen=True, tag="event", rename="camel"):
    user_id: int
    seen_by: frozenset[str] = frozenset()


class Packed(msgspec.Struct, array_like=True):
    a: int
    b: set[str]


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    content: T


UserId = NewType("UserId", int)


class Plain:
    pass


def round_trip(spec: Any, value: Any) -> Any:
    serializer = serializer_for(spec)
    return serializer.decode(serializer.encode(value))


# --- Every type preserves its values ---------------------------------------------------------------------------

longs = st.integers(LONG_MIN, LONG_MAX)
floats = st.floats(allow_nan=False)
decimals = st.decimals(allow_nan=False)
aware = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC))
lines = st.builds(Line, st.text(), decimals, longs)
trees = st.recursive(
    st.builds(Tree, longs),
    lambda inner: st.builds(Tree, longs, st.none() | inner, st.none() | inner),
    max_leaves=5,
)

HASHABLE = [
    (int, longs),
    (float, floats),
    (str, st.text()),
    (bool, st.booleans()),
    (bytes, st.binary()),
    (datetime, st.datetimes() | aware),
    (date, st.dates()),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (Decimal, decimals),
    (UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Size, st.sampled_from(Size)),
    (Literal[1, "a", None], st.sampled_from([1, "a", None])),
    (Pair, st.builds(Pair, st.text(), longs)),
    (Point, st.builds(Point, floats, floats)),
    (Event, st.builds(Event, longs, st.frozensets(st.text()))),
    (UserId, longs),
    (Instant, st.builds(Instant, longs, st.integers(0, 999_999_999))),
]
OTHERS = [
    (None, st.none()),
    (Line, lines),
    (Order, st.builds(Order, longs, st.lists(lines), st.sampled_from(Colour), st.text(), st.sets(st.text()))),
    (Tree, trees),
    (Address, st.fixed_dictionaries({}, optional={"street": st.text(), "number": longs})),
    (Packed, st.builds(Packed, longs, st.sets(st.text()))),
    (Box[int], st.builds(Box, longs)),
    (int | str | bool | None, longs | st.text() | st.booleans() | st.none()),
    (Union[int, float], longs | floats),
    (Types.STRING(), st.text()),
    (Types.BYTE(), st.integers(-128, 127)),
    (Types.BOOLEAN(), st.booleans()),
    (Types.SHORT(), st.integers(-(2**15), 2**15 - 1)),
    (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    (Types.LONG(), longs),
    (Types.FLOAT(), st.floats(width=32, allow_nan=False)),
    (Types.DOUBLE(), floats),
    (Types.CHAR(), st.characters(exclude_categories=["Cs"])),
    (Types.BIG_INT(), st.integers()),
    (Types.BIG_DEC(), decimals),
    (Types.INSTANT(), longs.map(Instant.of_epoch_milli)),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times()),
    (Types.SQL_TIMESTAMP(), st.datetimes()),
    (Types.PICKLED_BYTE_ARRAY(), st.none() | st.complex_numbers(allow_nan=False) | st.lists(longs)),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary()),
    (Types.PRIMITIVE_ARRAY(Types.INT()), st.lists(st.integers(-5, 5))),
    (Types.BASIC_ARRAY(Types.STRING()), st.lists(st.none() | st.text())),
]


def containers(typed: Any) -> Any:
    """Return a type that contains the given one, with its values."""
    spec, values = typed
    nullable = st.none() | values
    made: list[Any] = [
        (Types.LIST(spec), st.lists(nullable, max_size=4)),
        (Types.OBJECT_ARRAY(spec), st.lists(nullable, max_size=4)),
        (Types.MAP(Types.STRING(), spec), st.dictionaries(st.text(), nullable, max_size=4)),
        (Types.TUPLE([spec, Types.LONG()]), st.tuples(values, longs)),
        (Types.ROW([Types.LONG(), spec]), st.builds(lambda a, b: Row(f0=a, f1=b), st.none() | longs, nullable)),
        (
            Types.ROW_NAMED(["id", "of"], [int, spec]),
            st.builds(lambda a, b: Row(id=a, of=b), longs, nullable),
        ),
    ]
    if not isinstance(spec, type(Types.LONG()).__mro__[1]):  # Python's own containers accept only hints
        made += [
            (list[spec], st.lists(values, max_size=4)),
            (tuple[spec, ...], st.lists(values, max_size=4).map(tuple)),
            (tuple[spec, int], st.tuples(values, longs)),
            (dict[str, spec], st.dictionaries(st.text(), values, max_size=4)),
            (Optional[spec], nullable),
        ]
    return st.sampled_from(made)


def hashed(typed: Any) -> Any:
    spec, values = typed
    return st.sampled_from(
        [
            (set[spec], st.sets(values, max_size=4)),
            (frozenset[spec], st.frozensets(values, max_size=4)),
            (dict[spec, int], st.dictionaries(values, longs, max_size=4)),
        ]
    )


types = st.recursive(
    st.sampled_from(HASHABLE + OTHERS) | st.sampled_from(HASHABLE).flatmap(hashed),
    lambda inner: inner.flatmap(containers),
    max_leaves=3,
)


@st.composite
def typed_values(draw: Any) -> tuple[Any, Any]:
    spec, values = draw(types)
    return spec, draw(values)


@given(typed_values())
def test_a_value_is_decoded_to_an_equal_value_of_the_same_class(typed):
    spec, value = typed
    serializer = serializer_for(spec)
    back = serializer.decode(serializer.encode(value))
    assert back == value
    assert type(back) is type(value)
    assert serializer.check(value) == back
    assert serializer.encode(back) == serializer.encode(value)


@given(types.flatmap(lambda typed: st.tuples(st.just(typed[0]), st.lists(typed[1], max_size=5))))
@example((Types.PICKLED_BYTE_ARRAY(), [None, [1], 1j]))
def test_encode_many_concatenates_the_encoded_elements_after_a_header(typed):
    spec, values = typed
    serializer = serializer_for(spec)
    data = serializer.encode_many(values)
    assert data == msgspec.msgpack.encode([msgspec.Raw(serializer.encode_element(value)) for value in values])
    if spec != Types.PICKLED_BYTE_ARRAY():
        assert all(serializer.encode_element(value) == serializer.encode(value) for value in values)
    assert serializer.decode_many(data) == values


@given(st.sampled_from(HASHABLE + OTHERS), typed_values())
def test_a_value_of_another_type_is_rejected_or_decoded_to_an_equal_value(declared, other):
    spec, _ = declared
    _, value = other
    serializer = serializer_for(spec)
    try:
        data = serializer.encode(value)
    except NotEncodable:
        return
    back = serializer.decode(data)
    assert back == serializer.check(value)
    if spec in (int, str, bool, bytes, datetime, date, time, timedelta, Decimal, UUID, Colour, Size, Instant):
        assert back == value
        assert type(back) is type(value) is spec


@pytest.mark.parametrize(("spec", "values"), HASHABLE + OTHERS, ids=lambda value: getattr(value, "__name__", None))
def test_a_schema_is_stable_and_each_serializer_is_created_once(spec, values):
    serializer = serializer_for(spec)
    assert serializer_for(spec) is serializer
    assert pickle.loads(pickle.dumps(serializer)) is serializer
    assert "0x" not in serializer.schema()


@pytest.mark.parametrize(
    ("spec", "schema"),
    [
        (int, "long"),
        (Types.LONG(), "long"),
        (list[str], "list<string>"),
        (Types.LIST(Types.STRING()), "list<string?>"),
        (tuple[int, str], "tuple<long, string>"),
        (tuple[int, ...], "tuple<long, ...>"),
        (dict[str, float], "map<string, double>"),
        (Instant, "instant"),
        (Optional[int], "long?"),
        (Union[str, int], "union<long, string>"),
        (Union[int, str], "union<long, string>"),
        (Types.ROW([Types.INT(), bool]), "row<int?, boolean?>"),
        (Types.ROW_NAMED(["a"], [Types.BIG_DEC()]), "row<a: decimal?>"),
        (frozenset[date], "frozenset<date>"),
        (Literal["b", 1], "literal<'b', 1>"),
        (Line, "dataclass {m}.Line(item: string, price: decimal, count: long)"),
        (Tree, "dataclass {m}.Tree(value: long, left: dataclass {m}.Tree?, right: dataclass {m}.Tree?)"),
        (Colour, "enum {m}.Colour(RED='red', BLUE='blue')"),
        (Pair, "namedtuple {m}.Pair(name: string, count: long)"),
        (Address, "typeddict {m}.Address(number: long, street: string) optional number, street"),
        (Types.PICKLED_BYTE_ARRAY(), "any"),
    ],
    ids=str,
)
def test_the_schema_describes_the_stored_type(spec, schema):
    assert serializer_for(spec).schema() == schema.replace("{m}", __name__)


@pytest.mark.parametrize(
    ("spec", "immutable"),
    [
        (int, True),
        (str, True),
        (None, True),
        (Decimal, True),
        (datetime, True),
        (Instant, True),
        (tuple[int, ...], True),
        (tuple[int, list[int]], False),
        (frozenset[str], True),
        (Optional[int], True),
        (Point, True),
        (Event, True),
        (Pair, True),
        (Line, False),
        (Tree, False),
        (list[int], False),
        (Address, False),
        (Types.BIG_INT(), True),
        (Types.TUPLE([Types.LONG()]), True),
        (Types.ROW([Types.LONG()]), False),
        (Types.PICKLED_BYTE_ARRAY(), False),
    ],
    ids=str,
)
def test_a_serializer_reports_whether_its_type_is_immutable(spec, immutable):
    assert serializer_for(spec).immutable is immutable


def test_exact_is_set_only_for_types_that_need_no_check():
    exact = {spec: serializer_for(spec).exact for spec in (str, bool, float, bytes, int)}
    assert exact == {spec: spec for spec in exact}
    assert serializer_for(Annotated[int, msgspec.Meta(ge=0)]).exact is None
    for spec in (
        Types.INT(),
        Types.FLOAT(),
        Types.CHAR(),
        Types.BIG_INT(),
        Decimal,
        list[int],
        Line,
        Optional[int],
    ):
        assert serializer_for(spec).exact is None


# --- Conversions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "given", "kept"),
    [
        (int, np.int64(1), 1),
        (int, np.uint8(1), 1),
        (float, 1, 1.0),
        (float, np.float32(1.5), 1.5),
        (float, np.float64(1.5), 1.5),
        (float, np.int64(1), 1.0),
        (Union[float, int], np.int64(1), 1),
        (Optional[float], 1, 1.0),
        (bool, np.bool_(True), True),
        (str, np.str_("a"), "a"),
        (bytes, np.bytes_(b"a"), b"a"),
        (Literal[1], np.int64(1), 1),
        (Types.FLOAT(), 0.1, 0.10000000149011612),
        (list[int], (1, 2), [1, 2]),
        (list[float], [1, np.float32(2)], [1.0, 2.0]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[str, int], Pair("a", 1), ("a", 1)),
        (set[int], frozenset([1]), {1}),
        (frozenset[int], {np.int64(1)}, frozenset([1])),
        (dict[str, int], Counter("aab"), {"a": 2, "b": 1}),
        (dict[str, list[int]], defaultdict(list, a=(1,)), {"a": [1]}),
        (Pair, ("a", 1), Pair("a", 1)),
        (Point, Point(1, np.float64(2)), Point(1.0, 2.0)),
        (Line, Line(np.str_("a"), Decimal(1), np.int32(1)), Line("a", Decimal(1), 1)),
        (Event, Event(np.int64(1), {"a"}), Event(1, frozenset("a"))),
        (Address, {"number": np.int64(1)}, {"number": 1}),
        (Types.ROW([int, str]), (1, "a"), Row(f0=1, f1="a")),
        (Types.ROW([int, str]), Row(1, "a"), Row(f0=1, f1="a")),
        (Types.ROW([int, str]), Row(f1="a", f0=1), Row(f0=1, f1="a")),
        (Types.ROW_NAMED(["a", "b"], [int, str]), Row(1, "a"), Row(a=1, b="a")),
        (Types.ROW_NAMED(["a", "b"], [int, str]), Row(b="a", a=np.int64(1)), Row(a=1, b="a")),
        (Types.ROW_NAMED(["a", "b"], [int, str]), {"b": "a"}, Row(a=None, b="a")),
        (
            datetime,
            datetime(2024, 7, 1, 14, tzinfo=ZoneInfo("Europe/Paris")),
            datetime(2024, 7, 1, 12, tzinfo=UTC),
        ),
    ],
    ids=str,
)
def test_check_returns_the_value_converted_to_the_declared_type(spec, given, kept):
    serializer = serializer_for(spec)
    for back in (round_trip(spec, given), serializer.check(given)):
        assert back == kept
        assert repr(back) == repr(kept)


def test_conversion_does_not_modify_the_original():
    given = Line(np.str_("a"), Decimal(1), np.int32(7))
    serializer_for(Line).check(given)
    assert type(given.count) is np.int32


def test_a_value_that_needs_no_conversion_is_not_copied():
    for spec, value in [(Line, Line("a", Decimal(1))), (list[int], [1]), (Order, Order(1, [], Colour.RED))]:
        assert serializer_for(spec).check(value) is value


def test_a_row_keeps_its_kind():
    spec = Types.ROW_NAMED(["a"], [int])
    assert round_trip(spec, Row.of_kind(RowKind.DELETE, a=1)).get_row_kind() is RowKind.DELETE
    assert round_trip(spec, Row.of_kind(RowKind.DELETE, 1)).get_row_kind() is RowKind.DELETE


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (Types.MAP(Types.ROW([int, str]), int), {Row(f0=1, f1="a"): 1, Row(f0=2, f1=None): 2}),
        (Types.MAP(Types.BIG_INT(), int), {1: 1, 2**100: 2}),
        (dict[frozenset[str], int], {frozenset("ab"): 1}),
        (dict[Event, set[str]], {Event(1, frozenset("ab")): {"c"}}),
        (dict[Pair, int], {Pair("a", 1): 1}),
        (set[tuple[int, frozenset[int]]], {(1, frozenset([2]))}),
    ],
    ids=str,
)
def test_dict_keys_and_set_members_can_be_composite(spec, value):
    assert round_trip(spec, value) == value


def test_floats_preserve_nan_infinity_and_negative_zero():
    assert math.isnan(round_trip(float, math.nan))
    assert math.isnan(round_trip(Types.FLOAT(), math.nan))
    assert round_trip(Types.FLOAT(), -math.inf) == -math.inf
    assert math.copysign(1, round_trip(float, -0.0)) == -1


# --- Rejected values and types ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "value", "message"),
    [
        (int, 1.0, "The float 1.0 is not a long. Convert it to int"),
        (int, "1", "The str '1' is not a long"),
        (int, True, "The bool True is not a long"),
        (int, np.bool_(True), "not a long"),
        (int, Size.SMALL, "not a long"),
        (int, None, r"`\| None`"),
        (int, 2**63, r"Types\.BIG_INT\(\)"),
        (int, -(2**63) - 1, r"Types\.BIG_INT\(\)"),
        (int, 2**70, r"Types\.BIG_INT\(\)"),
        (Types.BYTE(), 128, r"is -128 to 127; declare Types\.LONG\(\)"),
        (Types.SHORT(), -(2**15) - 1, "not a short"),
        (Types.INT(), 2**31, "not an int"),
        (Types.CHAR(), "ab", "one character"),
        (Types.FLOAT(), 1e300, r"Types\.DOUBLE\(\)"),
        (Types.BIG_INT(), 1.0, "not a bigint"),
        (float, "1.0", "not a double"),
        (float, True, "not a double"),
        (float, 10**400, "not a double"),
        (float, np.longdouble(1), "not a double"),
        (str, b"a", "not a string"),
        (str, "\ud800", "surrogates"),
        (bytes, "a", "not a bytes"),
        (bytes, bytearray(b"a"), "not a bytes"),
        (bool, 1, "not a boolean"),
        (datetime, "2024-01-01T00:00:00", "not a timestamp"),
        (datetime, date(2024, 1, 1), "not a timestamp"),
        (datetime, np.datetime64("2024-01-01"), "not a timestamp"),
        (datetime, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "outside the years"),
        (date, datetime(2024, 1, 1), "not a date"),
        (time, time(1, tzinfo=ZoneInfo("Europe/Paris")), "zone is lost"),
        (Decimal, 1, "not a decimal"),
        (Decimal, "1", "not a decimal"),
        (UUID, str(UUID(int=1)), "not a uuid"),
        (Colour, "red", "Store a member of Colour"),
        (Literal[1], True, "not a literal<1>"),
        (Instant, datetime(2024, 1, 1), "of_epoch_milli"),
        (Instant, Instant(2**64, 0), "not a long"),
        (list[int], [1, "2"], r"The str '2' is not a long \(at element 1 of the list\)"),
        (list[int], [1, 2**63], r"\(at element 1 of the list\)"),
        (list[int], {1}, r"list\(\.\.\.\)"),
        (list[int], deque([1]), r"list\(\.\.\.\)"),
        (list[int], "1", "not a list"),
        (set[int], [1], r"set\(\.\.\.\)"),
        (tuple[int, str], (1,), "expected 2, got 1"),
        (tuple[int, str], (1, 2), r"\(at element 1 of the tuple\)"),
        (dict[str, int], [("a", 1)], "not a map"),
        (dict[str, int], {1: 1}, r"\(at the entry 1 of the dict\)"),
        (dict[str, list[int]], {"a": [1.5]}, r"\(at element 0 of the list, in the entry 'a' of the dict\)"),
        (Types.MAP(Types.FLOAT(), int), {0.1: 1, 0.10000000149011612: 2}, "are equal after conversion"),
        (Types.MAP(str, int), {None: 1}, "not a string"),
        (Types.TUPLE([int]), (None,), "not a long"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [None], "not an int"),
        (Line, {"item": "a", "price": Decimal(1), "count": 1}, "Store an instance of exactly Line"),
        (Line, Line("a", 1.5), r"The float 1.5 is not a decimal \(at field 'price' of Line\)"),
        (
            Order,
            Order(1, [Line("a", None)], Colour.RED),
            "field 'price' of Line, in element 0 of the list, in field",
        ),
        (Point, Pair("a", 1), "Store an instance of exactly Point"),
        (Pair, namedtuple("Other", "name count")("a", 1), "Store an instance of Pair"),
        (Pair, ("a",), "Store an instance of Pair"),
        (Address, {"city": "Paris"}, "no key 'city'"),
        (Address, {"number": "1"}, r"\(at key 'number' of Address\)"),
        (Union[int, str], 1.5, "not a union<long, string>"),
        (Optional[Line], Line("a", 1), "field 'price' of Line"),
        (Types.ROW([int]), Row(1, 2), "expected 1, got 2"),
        (Types.ROW([int]), Row(a=1), "ROW_NAMED"),
        (Types.ROW_NAMED(["a"], [int]), Row(b=1), "Its fields are b"),
        (Types.ROW_NAMED(["a"], [int]), {"a": 1, "b": 2}, "no field 'b'"),
        (Types.ROW_NAMED(["a"], [int]), Row(a="1"), r"\(at field 'a' of the Row\)"),
        (Types.ROW([int]), Pair("a", 1), "Store a Row"),
        (Types.PICKLED_BYTE_ARRAY(), threading.Lock(), "could not be pickled"),
    ],
    ids=str,
)
def test_a_value_that_does_not_match_the_type_is_rejected(spec, value, message):
    serializer = serializer_for(spec)
    with pytest.raises(NotEncodable, match=message):
        serializer.encode(value)
    with pytest.raises(NotEncodable):
        serializer.encode_many([value])


def test_a_subclass_is_rejected_because_it_would_be_decoded_to_its_parent():
    @dataclass
    class Special(Line):
        pass

    with pytest.raises(NotEncodable, match="Store an instance of exactly Line"):
        serializer_for(Line).encode(Special("a", Decimal(1)))


def test_a_field_without_a_value_is_rejected():
    line = Line("a", Decimal(1))
    del line.item
    with pytest.raises(NotEncodable, match="no value"):
        serializer_for(Line).encode(line)


def test_a_tree_that_contains_itself_is_rejected():
    tree = Tree(1)
    tree.left = tree
    with pytest.raises(NotEncodable, match="recursion"):
        serializer_for(Tree).encode(tree)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (Plain, r"Plain cannot be stored.*dataclass.*PICKLED_BYTE_ARRAY"),
        (object, r"allows any value.*PICKLED_BYTE_ARRAY"),
        (Any, r"allows any value.*list\[int\]"),
        (list, r"allows any value.*at the elements of a list.*list\[int\]"),
        (dict, r"allows any value.*at the keys of a dict"),
        (tuple, r"allows any value.*at the elements of a tuple"),
        (list[Plain], r"Plain cannot be stored.*at the elements of a list"),
        (Row, "ROW_NAMED"),
        (Types.LONG, r"Call it: Types\.LONG\("),
        (complex, "complex cannot be stored"),
        (np.int64, "Declare the Python type"),
        (bytearray, "Declare bytes"),
        (deque[int], "deque cannot be stored"),
        (enum.Flag("Rights", "READ WRITE"), "Flag"),
        (enum.Enum("Mixed", {"A": 1, "B": "b"}), "all str or all int"),
        (set[list[int]], "not hashable.*at the members of a set"),
        (dict[Line, int], "not hashable.*at the keys of a dict"),
        (Types.MAP(list[int], int), "not hashable.*at the keys of a map"),
        (Types.LIST(Plain), "Plain cannot be stored.*at the elements of a list"),
        (Types.ROW_NAMED(["a"], [Plain]), "Plain cannot be stored.*at field 'a' of a row"),
        (Union[Line, Tree], "more than one dataclass"),
        (Union[str, datetime], "more than one str-like"),
        (list[Types.LONG()], "cannot be stored"),
        ("int", "cannot be stored"),
    ],
    ids=str,
)
def test_declaring_an_unsupported_type_raises_an_error(spec, message):
    with pytest.raises(UnsupportedType, match=message):
        serializer_for(spec)


def test_the_error_for_an_unsupported_field_names_the_field():
    @dataclass
    class Cart:
        items: list

    with pytest.raises(UnsupportedType, match=r"at the elements of a list, in field 'items' of .*Cart"):
        serializer_for(Cart)


# --- User code that runs when a value is decoded ---------------------------------------------------------------


@dataclass
class Checked:
    low: int
    high: int

    def __post_init__(self):
        if self.low > self.high:
            raise ValueError("low is above high")


@dataclass
class Counting:
    reads: int

    def __post_init__(self):
        self.reads += 1


@dataclass
class Bounded:
    age: Annotated[int, msgspec.Meta(ge=0)]


def test_a_value_that_its_class_would_reject_on_decoding_is_rejected():
    assert round_trip(Checked, Checked(1, 2)) == Checked(1, 2)
    value = Checked(1, 2)
    value.low = 3
    with pytest.raises(NotEncodable, match="low is above high"):
        serializer_for(Checked).encode(value)
    with pytest.raises(NotEncodable, match="low is above high"):
        serializer_for(list[Checked]).encode([value])
    with pytest.raises(NotEncodable, match="low is above high"):
        serializer_for(Types.ROW([Checked])).encode(Row(value))


def test_a_value_that_decoding_would_change_is_rejected():
    with pytest.raises(NotEncodable, match="Reading it changes it"):
        serializer_for(Counting).encode(Counting(1))


@pytest.mark.parametrize(
    ("spec", "good", "bad"),
    [
        (Bounded, Bounded(1), Bounded(-1)),
        (Annotated[int, msgspec.Meta(ge=0)], 1, -1),
        (list[Annotated[str, msgspec.Meta(max_length=1)]], ["a"], ["ab"]),
    ],
)
def test_constraints_are_checked_when_a_value_is_stored(spec, good, bad):
    assert round_trip(spec, good) == good
    with pytest.raises(NotEncodable, match="cannot be read back"):
        serializer_for(spec).encode(bad)


# --- Classes that are not at the top level of a module ---------------------------------------------------------


def test_a_local_class_works_if_its_annotations_can_be_resolved():
    @dataclass
    class Visit:
        page: str
        at: datetime

    visit = Visit("/", datetime(2024, 1, 1))
    assert round_trip(Visit, visit) == visit


def test_the_error_for_a_local_class_that_uses_another_contains_a_fix():
    @dataclass
    class Page:
        url: str

    @dataclass
    class Visit:
        page: Page

    with pytest.raises(UnsupportedType, match=r"'Page' is not defined.*top level of a module"):
        serializer_for(Visit)


SCRIPT = """
from __future__ import annotations
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple
from penstock.state.serializers import serializer_for

class Price(NamedTuple):
    amount: Decimal

@dataclass
class Sale:
    price: Price
    lines: list[Line]

@dataclass
class Line:
    cost: Decimal

sale = Sale(Price(Decimal("1.5")), [Line(Decimal(2))])
serializer = serializer_for(Sale)
assert serializer.decode(serializer.encode(sale)) == sale

import pickle
from penstock.common.class_collector import ClassCollector
classes = ClassCollector()
part = classes.dumps((serializer, sale))
sys.stdout.buffer.write(pickle.dumps((classes.pack(), part)))
"""

WORKER = """
import pickle, sys
from penstock.common.program import enter_program
program, part = pickle.loads(sys.stdin.buffer.read())
enter_program(program)
serializer, sale = pickle.loads(part)
assert serializer.decode(serializer.encode(sale)) == sale
print(serializer.schema())
"""


def test_the_classes_of_a_script_are_sent_to_a_worker_that_lacks_the_script(tmp_path):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment = {**os.environ, "PYTHONPATH": root}
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    driver = subprocess.run([sys.executable, script], env=environment, capture_output=True, check=True)
    worker = subprocess.run(
        [sys.executable, "-c", WORKER], env=environment, input=driver.stdout, capture_output=True, check=True
    )
    assert re.search(rb"Sale\(price: .*decimal", worker.stdout)


def test_a_set_has_the_same_bytes_in_every_process():
    program = (
        "from penstock.state.serializers import serializer_for\n"
        "print(serializer_for(dict[str, set[str]]).encode({'a': {'x', 'yy', 'zzz', 'w'}}).hex())\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    answers = set()
    for seed in ("0", "1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root}
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        answers.add(run.stdout)
    assert len(answers) == 1


# --- Types that change -----------------------------------------------------------------------------------------


def test_a_class_can_be_decoded_after_a_field_was_added_or_removed():
    @dataclass
    class First:
        id: int
        old: str

    @dataclass
    class Second:
        id: int
        new: float = 0.5

    assert serializer_for(Second).decode(serializer_for(First).encode(First(1, "a"))) == Second(1, 0.5)


def test_bytes_of_another_type_are_rejected():
    with pytest.raises(msgspec.ValidationError):
        serializer_for(int).decode(serializer_for(str).encode("1"))


def test_a_value_can_be_decoded_from_any_buffer():
    assert serializer_for(list[int]).decode(memoryview(serializer_for(list[int]).encode([1]))) == [1]


@dataclass
class Measured:
    low: float
    high: float


class Span(NamedTuple):
    left: int
    right: int


class Marked(Span):
    """Not slotted, so an instance can have further attributes."""


def test_check_drops_attributes_that_are_not_fields():
    measured, pair = Measured(1.0, 2.0), Marked(1, 2)
    measured.unit = pair.unit = "kelvin"
    for value in (measured, pair):
        checked = serializer_for(type(value)).check(value)
        assert checked == value
        assert not hasattr(checked, "unit")
    plain = Measured(1.0, 2.0)
    assert serializer_for(Measured).check(plain) is plain


@pytest.mark.parametrize("value", [datetime(2024, 10, 27, 2, 30, fold=1), time(2, 30, fold=1)])
def test_check_drops_the_fold_of_a_time(value):
    serializer = serializer_for(type(value))
    assert serializer.check(value).fold == serializer.decode(serializer.encode(value)).fold == 0


def test_a_row_without_names_is_accepted_as_a_tuple():
    serializer = serializer_for(Types.TUPLE([Types.STRING(), Types.LONG()]))
    assert serializer.decode(serializer.encode(Row("a", 1))) == ("a", 1)
    with pytest.raises(NotEncodable, match="Row"):
        serializer.encode(Row(name="a", n=1))
    with pytest.raises(NotEncodable, match="Row"):
        serializer_for(tuple[str, int]).encode(Row("a", 1))
