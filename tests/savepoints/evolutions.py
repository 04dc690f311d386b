"""Type changes that state supports and that it does not, and a job that holds state of any type and kind."""

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec

from penstock.common import Instant, RenamedFrom, Row, Time, Types
from penstock.datastream import CheckpointedFunction, KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)


def called(name):
    """Give a class this name, as the next version of a program's class keeps its name."""

    def rename(cls):
        cls.__qualname__ = cls.__name__ = name
        return cls

    return rename


@called("Order")
@dataclass
class Order:
    id: int
    price: int
    note: str = ""


@called("Order")
@dataclass
class WithTags:
    id: int
    price: int
    note: str = ""
    tags: list[str] = field(default_factory=lambda: ["new"])


@called("Order")
@dataclass
class WithoutNote:
    id: int
    price: int


@called("Order")
@dataclass
class Widened:
    id: int
    price: float
    note: str | None = None


@called("Order")
@dataclass
class Renamed:
    amount: Annotated[int, RenamedFrom("cost", "price")]
    id: int
    note: str = ""


@called("Order")
@dataclass
class AllAtOnce:
    amount: Annotated[float, RenamedFrom("price")]
    id: int
    open: bool = True


@dataclass
class MovedElsewhere:
    id: int
    price: int
    note: str = ""


@called("Order")
@dataclass
class NeedsColour:
    id: int
    price: int
    colour: str
    note: str = ""


@called("Order")
@dataclass
class PriceInWords:
    id: int
    price: str
    note: str = ""


@dataclass
class Stranger:
    size: int = 0


@called("Basket")
@dataclass
class Basket:
    lines: list[Order]
    by_name: dict[str, Order]
    first: tuple[Order, int]
    best: Order | None = None


@called("Basket")
@dataclass
class NewBasket:
    lines: list[AllAtOnce]
    by_name: dict[str, AllAtOnce]
    first: tuple[AllAtOnce, float]
    best: AllAtOnce | None = None


@called("Basket")
@dataclass
class WrongBasket:
    lines: list[PriceInWords]
    by_name: dict[str, Order]
    first: tuple[Order, int]
    best: Order | None = None


@called("Node")
@dataclass
class Node:
    name: str
    children: list["Node"] = field(default_factory=list)


@called("Node")
@dataclass
class WeighedNode:
    name: str
    children: list["WeighedNode"] = field(default_factory=list)
    weight: float = 1.0


class Point(NamedTuple):
    x: int
    y: int


@called("Point")
class DeepPoint(NamedTuple):
    depth: float = 0.5
    y: float = 0.0
    across: Annotated[int, RenamedFrom("x")] = 0


@called("Point")
class NewPoint(NamedTuple):
    x: int
    y: int
    z: int


class Struct(msgspec.Struct):
    a: int
    b: str


@called("Struct")
class NewStruct(msgspec.Struct):
    a: float
    c: str = "c"


class Tagged(msgspec.Struct, tag=True):
    a: int


@called("Tagged")
class NewTagged(msgspec.Struct, tag=True):
    a: int
    b: int = 0


class Settings(TypedDict):
    a: int
    b: NotRequired[int]


@called("Settings")
class NewSettings(TypedDict):
    alpha: Annotated[int, RenamedFrom("a")]
    b: NotRequired[float]
    c: NotRequired[str]


@called("Settings")
class StrictSettings(TypedDict):
    a: int
    b: int


@called("Colour")
class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


@called("Colour")
class MoreColours(enum.Enum):
    GREEN = "g"
    RED = "r"
    BLUE = "b"


class RenamedWithAlias(enum.Enum):
    CRIMSON = "x"
    BLUE = "b"
    RED = CRIMSON


@called("Colour")
class RenamedColour(enum.Enum):
    CRIMSON: Annotated[str, RenamedFrom("ROUGE", "RED")] = "x"
    BLUE = "b"


@called("Colour")
class RenamedSilently(enum.Enum):
    CRIMSON = "r"
    BLUE = "b"


@called("Colour")
class SwappedColours(enum.Enum):
    RED = "b"
    BLUE = "r"


@called("State")
class State(enum.Enum):
    OPEN = enum.auto()
    PAID = enum.auto()
    CANCELLED = enum.auto()


@called("State")
class Reordered(enum.Enum):
    OPEN = enum.auto()
    CANCELLED = enum.auto()
    PAID = enum.auto()


@called("State")
class WithOneInFront(enum.Enum):
    DRAFT = enum.auto()
    OPEN = enum.auto()
    PAID = enum.auto()
    CANCELLED = enum.auto()


@called("State")
class InWords(enum.StrEnum):
    OPEN = enum.auto()
    PAID = enum.auto()
    CANCELLED = enum.auto()


@called("State")
class OneReplaced(enum.Enum):
    """`PAID` is gone, and another member has its value."""

    OPEN = enum.auto()
    CANCELLED = enum.auto()
    REFUNDED = enum.auto()


@called("Level")
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@called("Level")
class SwappedLevel(enum.IntEnum):
    HIGH = 1
    LOW = 2


@called("Ticket")
@dataclass
class Ticket:
    state: State
    seen: list[State]
    by_name: dict[str, State]
    last: State | None = None


@called("Ticket")
@dataclass
class NewTicket:
    state: Reordered
    seen: list[Reordered]
    by_name: dict[str, Reordered]
    last: Reordered | None = None


@called("Colour")
class FewerColours(enum.Enum):
    BLUE = "b"


@called("Everything")
@dataclass
class Everything:
    day: date
    naive: datetime
    aware: datetime
    hour: time
    length: timedelta
    money: Decimal
    id: UUID
    moment: Instant
    data: bytes
    number: float
    members: frozenset[str]
    by_place: dict[tuple[int, str], list[int]]
    colour: Colour
    either: int | str | None


@called("Everything")
@dataclass(kw_only=True)
class MoreThanEverything:
    more: str = "more"
    day: date
    naive: datetime
    aware: datetime
    hour: time
    length: timedelta
    money: Decimal
    id: UUID
    moment: Instant
    data: bytes
    number: float
    members: frozenset[str]
    by_place: dict[tuple[int, str], list[int]]
    colour: Colour
    either: int | str | None

    @staticmethod
    def of(everything):
        return MoreThanEverything(**vars(everything))


EVERYTHING = Everything(
    date(2024, 2, 29),
    datetime(2024, 2, 29, 12, 30, 1, 5),
    datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    time(23, 59, 1),
    timedelta(days=-1, microseconds=7),
    Decimal("1.00"),
    UUID(int=7),
    Instant(5, 6),
    b"\xc1\x00",
    float("-inf"),
    frozenset({"a", "b"}),
    {(1, "a"): [1, 2], (2, "b"): []},
    Colour.RED,
    None,
)

ROW = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])

ALLOWED: dict[str, tuple[Any, Any, Any, Any]] = {
    # name: previous type, a value of it, current type, the value as read
    "field added": (Order, Order(1, 2, "n"), WithTags, WithTags(1, 2, "n", ["new"])),
    "field removed": (Order, Order(1, 2, "n"), WithoutNote, WithoutNote(1, 2)),
    "field widened": (Order, Order(1, 2, "n"), Widened, Widened(1, 2.0, "n")),
    "field renamed": (Order, Order(1, 2, "n"), Renamed, Renamed(2, 1, "n")),
    "all at once": (Order, Order(1, 2, "n"), AllAtOnce, AllAtOnce(2.0, 1, True)),
    "class moved": (Order, Order(1, 2, "n"), MovedElsewhere, MovedElsewhere(1, 2, "n")),
    "nested": (
        Basket,
        Basket([Order(1, 2), Order(3, 4)], {"a": Order(5, 6)}, (Order(7, 8), 9), None),
        NewBasket,
        NewBasket([AllAtOnce(2.0, 1), AllAtOnce(4.0, 3)], {"a": AllAtOnce(6.0, 5)}, (AllAtOnce(8.0, 7), 9.0), None),
    ),
    "nested in an optional": (
        Basket,
        Basket([], {}, (Order(7, 8), 9), Order(1, 2)),
        NewBasket,
        NewBasket([], {}, (AllAtOnce(8.0, 7), 9.0), AllAtOnce(2.0, 1)),
    ),
    "class that holds itself": (
        Node,
        Node("a", [Node("b"), Node("c", [Node("d")])]),
        WeighedNode,
        WeighedNode("a", [WeighedNode("b"), WeighedNode("c", [WeighedNode("d")])]),
    ),
    "every kind of field": (Everything, EVERYTHING, MoreThanEverything, MoreThanEverything.of(EVERYTHING)),
    "list of a class": (list[Order], [Order(1, 2)], list[Renamed], [Renamed(2, 1)]),
    "list of elements that became optional": (list[int], [1, 2], list[int | None], [1, 2]),
    "dict of a class": (dict[str, Order], {"k": Order(1, 2)}, dict[str, WithoutNote], {"k": WithoutNote(1, 2)}),
    "tuple of a class": (tuple[Order, int], (Order(1, 2), 3), tuple[Renamed, float], (Renamed(2, 1), 3.0)),
    "named tuple": (Point, Point(1, 2), DeepPoint, DeepPoint(0.5, 2.0, 1)),
    "struct": (Struct, Struct(1, "b"), NewStruct, NewStruct(1.0, "c")),
    "typed dict": (Settings, {"a": 1, "b": 2}, NewSettings, {"alpha": 1, "b": 2.0}),
    "typed dict without a key": (Settings, {"a": 1}, NewSettings, {"alpha": 1}),
    "row": (
        ROW,
        Row(id=1, name="n"),
        Types.ROW_NAMED(
            ["title", "id", "more"], [Annotated[str, RenamedFrom("name")], Types.LONG(), Types.LIST(Types.INT())]
        ),
        Row(title="n", id=1, more=None),
    ),
    "row without names": (
        Types.ROW([Types.INT()]),
        Row(1),
        Types.ROW([Types.DOUBLE(), Types.STRING()]),
        Row(f0=1.0, f1=None),
    ),
    "byte to short": (Types.BYTE(), 7, Types.SHORT(), 7),
    "int to long": (Types.INT(), 7, Types.LONG(), 7),
    "long to big int": (int, 7, Types.BIG_INT(), 7),
    "int to float": (int, 7, float, 7.0),
    "float to double": (Types.FLOAT(), 0.5, Types.DOUBLE(), 0.5),
    "char to string": (Types.CHAR(), "c", str, "c"),
    "became optional": (str, "s", str | None, "s"),
    "more members of a union": (int | str, "s", int | str | list[int], "s"),
    "more of an enum": (Colour, Colour.RED, MoreColours, MoreColours.RED),
    "member renamed with an alias": (Colour, Colour.RED, RenamedWithAlias, RenamedWithAlias.CRIMSON),
    "member renamed": (Colour, Colour.RED, RenamedColour, RenamedColour.CRIMSON),
    "values of an enum swapped": (Colour, Colour.RED, SwappedColours, SwappedColours.RED),
    "enum reordered": (State, State.PAID, Reordered, Reordered.PAID),
    "member put in front": (State, State.CANCELLED, WithOneInFront, WithOneInFront.CANCELLED),
    "numbers become words": (State, State.PAID, InWords, InWords.PAID),
    "int enum reordered": (Level, Level.LOW, SwappedLevel, SwappedLevel.LOW),
    "set of a reordered enum": (
        frozenset[State],
        frozenset({State.PAID, State.OPEN}),
        frozenset[Reordered],
        frozenset({Reordered.PAID, Reordered.OPEN}),
    ),
    "reordered enum in a class": (
        Ticket,
        Ticket(State.PAID, [State.OPEN, State.CANCELLED], {"a": State.CANCELLED}, State.PAID),
        NewTicket,
        NewTicket(Reordered.PAID, [Reordered.OPEN, Reordered.CANCELLED], {"a": Reordered.CANCELLED}, Reordered.PAID),
    ),
    "more of a literal": (Literal["a", "b"], "a", Literal["c", "b", "a"], "a"),
    "set of wider": (set[int], {1, 2}, set[float], {1.0, 2.0}),
}

FORBIDDEN: dict[str, tuple[Any, Any, Any, str]] = {
    # name: previous type, a value of it, current type, the expected error
    "int to string": (int, 7, str, "is stored as '.*long' but declared as '.*string'"),
    "float to int": (float, 7.0, int, "'.*double' but declared as '.*long'"),
    "narrower": (int, 7, Types.INT(), "'.*long' but declared as '.*int'"),
    "big int to float": (Types.BIG_INT(), 7, float, "'.*bigint' but declared as '.*double'"),
    "no None any more": (str | None, "s", str, "it does not allow a stored None"),
    "field of another type": (
        Order,
        Order(1, 2),
        PriceInWords,
        "In field 'price' of Order: it was 'long' and is declared as 'string' now",
    ),
    "field without a default": (
        Order,
        Order(1, 2),
        NeedsColour,
        "In field 'colour' of Order: it is new, of type 'string', and has no default",
    ),
    "another class": (Order, Order(1, 2), Stranger, "it is a different class, with no field in common"),
    "deep inside": (
        Basket,
        Basket([], {}, (Order(7, 8), 9)),
        WrongBasket,
        "In field 'price' of Order, the elements of the list, field 'lines' of Basket: it was 'long'",
    ),
    "named tuple without a default": (Point, Point(1, 2), NewPoint, "In field 'z' of Point: it is new"),
    "tagged struct": (Tagged, Tagged(1), NewTagged, "a struct with tags, array encoding or renamed fields"),
    "key required": (Settings, {"a": 1}, StrictSettings, "In field 'b' of Settings: it was optional"),
    "longer tuple": (tuple[int, int], (1, 2), tuple[int, int, int], "a tuple's elements have no names"),
    "keys of a dict": (dict[int, int], {1: 2}, dict[float, int], "In the keys of the dict: it was 'long'"),
    "fewer of an enum": (Colour, Colour.RED, FewerColours, "it lacks 'RED', which stored values can contain"),
    "member of an enum renamed": (
        Colour,
        Colour.RED,
        RenamedSilently,
        r"it lacks 'RED', which stored(?s:.*)NEW_NAME: Annotated\[Any, RenamedFrom\(\"RED\"\)\] = VALUE",
    ),
    "member of an enum replaced": (State, State.PAID, OneReplaced, "it lacks 'PAID'"),
    "keys of a reordered enum": (dict[State, int], {State.PAID: 1}, dict[Reordered, int], "In the keys of the dict"),
    "reordered enum in a union": (State | str, State.PAID, Reordered | str, "members of a union cannot change"),
    "fewer of a literal": (Literal["a", "b"], "a", Literal["b"], "stored values can be 'a'"),
    "fewer members of a union": (int | str, "s", int | bytes, "it lacks string"),
    "list to dict": (list[int], [1], dict[int, int], "'.*list<long>' but declared as '.*map<long, long>'"),
    "row with another type": (
        ROW,
        Row(id=1, name="n"),
        Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.LONG()]),
        "In field 'name' of the Row: it was 'string' and is declared as 'long'",
    ),
    "pickle to a class": (Types.PICKLED_BYTE_ARRAY(), Order(1, 2), Order, "'.*any' but declared as"),
}


class Last:
    """An aggregation that keeps only the last value."""

    def create_accumulator(self):
        return None

    def add(self, value, accumulator):
        return value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, one, other):
        return other


def last(before, value):
    return value


TTL = StateTtlConfig.new_builder(Time.hours(1)).build()

KEYED = ("value", "list", "map", "reducing", "aggregating", "value with TTL", "list with TTL", "map with TTL")
OF_OPERATOR = ("operator list", "union list", "broadcast")
KINDS = KEYED + OF_OPERATOR


class Keeper(KeyedProcessFunction, CheckpointedFunction):
    """Holds one value in states of many types and kinds. ("write", …) stores it, ("read", …) emits it."""

    def __init__(self, types, kinds=KINDS):
        self.types = types
        """By name: a type and a value of it."""
        self.kinds = kinds

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.states = {}
        for name, (held, _) in self.types.items():
            for kind in self.kinds:
                if kind in OF_OPERATOR:
                    self.states[name, kind] = self.of_operator(store, kind, f"{kind} {name}", held)

    def of_operator(self, store, kind, name, held):
        if kind == "broadcast":
            return store.get_broadcast_state(MapStateDescriptor(name, str, held))
        get = store.get_union_list_state if kind == "union list" else store.get_list_state
        return get(ListStateDescriptor(name, held))

    def snapshot_state(self, context):
        pass

    def open(self, runtime_context):
        for name, (kind, _) in self.types.items():
            for each in self.kinds:
                if each in KEYED:
                    self.states[name, each] = self.keyed(runtime_context, each, f"{each} {name}", kind)

    def keyed(self, context, kind, name, held):
        made = {
            "value": lambda: (context.get_state, ValueStateDescriptor(name, held)),
            "list": lambda: (context.get_list_state, ListStateDescriptor(name, held)),
            "map": lambda: (context.get_map_state, MapStateDescriptor(name, str, held)),
            "reducing": lambda: (context.get_reducing_state, ReducingStateDescriptor(name, last, held)),
            "aggregating": lambda: (context.get_aggregating_state, AggregatingStateDescriptor(name, Last(), held)),
        }
        get, descriptor = made[kind.removesuffix(" with TTL")]()
        if kind.endswith("TTL"):
            descriptor.enable_time_to_live(TTL)
        return get(descriptor)

    def process_element(self, record, ctx):
        what, key = record
        for (name, kind), state in self.states.items():
            if what == "write":
                self.write(kind, state, self.types[name][1])
            else:
                yield key, name, kind, self.read(kind, state)

    def write(self, kind, state, value):
        if kind.startswith("value"):
            state.update(value)
        elif kind.startswith("map") or kind == "broadcast":
            state.put("k", value)
        else:
            state.add(value)

    def read(self, kind, state):
        if kind.startswith("value"):
            return state.value()
        if kind.startswith("map") or kind == "broadcast":
            return state.get("k")
        return list(state.get()) if "list" in kind else state.get()


READ: list[object] = []
"""Records that reached the source's chain, in jobs of this process."""


def notes(record):
    READ.append(record)
    return record


def keeping(types, kinds=KINDS):
    env = StreamExecutionEnvironment.get_execution_environment()
    records = env.from_collection([]).uid("records").map(notes)
    return records.key_by(lambda record: record[1]).process(Keeper(types, kinds)).name("keeper").uid("keeper")
