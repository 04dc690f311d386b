"""Every type that a state can have is read as a column without its classes, and written back unchanged."""

import datetime
import decimal
import enum
import typing
import uuid
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pytest

from penstock.common import Row, Types
from penstock.common.time import Instant
from penstock.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.state.serializers import OrPickled, codec, serializer_for
from penstock.tables.schemas import shape_of, state_type


class Odd(enum.Enum):
    COMMA = "a, b"
    QUOTE = "it's)>"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Point:
    x: int
    y: str | None


class Pair(typing.NamedTuple):
    one: int
    point: Point


class Loose(typing.TypedDict, total=False):
    a: int
    b: str


class Packed(msgspec.Struct, array_like=True):
    a: int
    u: uuid.UUID


class Tagged(msgspec.Struct, tag="t", rename="camel"):
    first_name: str
    born: datetime.date


@dataclass
class Tree:
    n: int
    below: list["Tree"]


MARK = uuid.UUID(int=7)
WHEN = datetime.datetime(2024, 5, 6, 7, 8, 9, 10)
AWARE = datetime.datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=datetime.UTC)

CASES = [
    (int, 5, 5),
    (str, "s", "s"),
    (bytes, b"b", b"b"),
    (bool, True, True),
    (float, 1.5, 1.5),
    (Types.BYTE(), 5, 5),
    (Types.SHORT(), 5, 5),
    (Types.INT(), 5, 5),
    (Types.FLOAT(), 0.5, 0.5),
    (Types.CHAR(), "c", "c"),
    (Types.BIG_INT(), 2**70, str(2**70)),
    (Types.BIG_INT(), -5, "-5"),
    (decimal.Decimal, decimal.Decimal("1.50"), "1.50"),
    (datetime.date, datetime.date(2024, 5, 6), datetime.date(2024, 5, 6)),
    (datetime.datetime, WHEN, WHEN),
    (datetime.time, datetime.time(5, 6), "05:06:00"),
    (datetime.timedelta, datetime.timedelta(days=-1, seconds=5), datetime.timedelta(days=-1, seconds=5)),
    (uuid.UUID, MARK, str(MARK)),
    (Instant, Instant(5, 7), {"seconds": 5, "nanos": 7}),
    (Odd, Odd.QUOTE, "QUOTE"),
    (Level, Level.HIGH, "HIGH"),
    (typing.Literal["a", "b, c"], "b, c", "b, c"),
    (int | None, None, None),
    (Point, Point(1, None), {"x": 1, "y": None}),
    (Pair, Pair(1, Point(2, "p")), {"one": 1, "point": {"x": 2, "y": "p"}}),
    (list[Point], [Point(1, "a")], [{"x": 1, "y": "a"}]),
    (set[int], {3, 1}, [1, 3]),
    (tuple[int, ...], (1, 2), [1, 2]),
    (tuple[int, uuid.UUID], (1, MARK), {"f0": 1, "f1": str(MARK)}),
    (dict[str, Point], {"k": Point(1, "a")}, [("k", {"x": 1, "y": "a"})]),
    (dict[tuple[int, str], int], {(1, "a"): 2}, [({"f0": 1, "f1": "a"}, 2)]),
    (tuple[Loose, int], ({"a": 1}, 2), {"f0": {"a": 1, "b": None}, "f1": 2}),
    (Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]), Row(a=1, b=None), {"a": 1, "b": None}),
    (Types.ROW([Types.INT(), Types.STRING()]), Row(1, "x"), {"f0": 1, "f1": "x"}),
    (Types.MAP(Types.STRING(), Types.LIST(Types.LONG())), {"a": [1, None]}, [("a", [1, None])]),
]


@pytest.mark.parametrize(("spec", "value", "shown"), CASES, ids=lambda each: str(each)[:40])
def test_a_value_round_trips_through_a_column(spec, value, shown):
    serializer = serializer_for(spec)
    data = serializer.encode(value)
    shape = shape_of(serializer.schema())
    column = pa.array([shape.to_arrow(msgspec.msgpack.Decoder(shape.wire).decode(data))], shape.arrow)
    assert column.to_pylist() == [shown]
    assert codec.encode(shape.to_wire(column[0].as_py())) == data


@pytest.mark.parametrize(
    ("spec", "value", "shown"),
    [
        (Packed, Packed(1, MARK), {"a": 1, "u": str(MARK)}),
        (Tagged, Tagged("n", datetime.date(2024, 1, 2)), {"first_name": "n", "born": datetime.date(2024, 1, 2)}),
        (int | str, "u", '"u"'),
        (Tree, Tree(1, [Tree(2, [])]), {"n": 1, "below": ['{"n":2,"below":[]}']}),
        (datetime.datetime, AWARE, AWARE.replace(tzinfo=None)),
    ],
    ids=lambda each: str(each)[:40],
)
def test_types_without_an_arrow_equivalent_can_still_be_shown(spec, value, shown):
    serializer = serializer_for(spec)
    shape = shape_of(serializer.schema())
    wire = msgspec.msgpack.Decoder(shape.wire).decode(serializer.encode(value))
    assert pa.array([shape.to_arrow(wire)], shape.arrow).to_pylist() == [shown]


def test_an_unknown_type_is_shown_as_json():
    shape = shape_of("hypercube<long, 4>")
    assert shape.arrow == pa.string()
    assert shape.to_arrow({"a": [1, b"x"]}) == '{"a":[1,"eA=="]}'


def test_state_type_parses_kind_key_and_value():
    found = state_type(MapStateDescriptor("m", Odd, dict[str, int]).schema())
    assert (found.kind, found.key.arrow, found.value.arrow) == ("map", pa.string(), pa.map_(pa.string(), pa.int64()))
    assert state_type(ListStateDescriptor("l", Point).schema()).value.arrow == pa.struct(
        [("x", pa.int64()), ("y", pa.string())]
    )
    descriptor = ValueStateDescriptor("v", int)
    descriptor.serializer = OrPickled(int)
    assert state_type(descriptor.schema()).other == "value_any"
    assert state_type("value long or pickle").other == "value_pickle"
    assert state_type("value long").other == ""
