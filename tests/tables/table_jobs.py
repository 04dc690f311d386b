"""A program with every kind of state, and helpers for the tests of tables."""

import datetime
import decimal
import enum
import uuid
from dataclasses import dataclass
from typing import NamedTuple

from penstock.common import Types
from penstock.common.time import Duration
from penstock.datastream import (
    AggregateFunction,
    CheckpointedFunction,
    KeyedProcessFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.tables import Savepoint
from penstock.testing import JobHarness


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


@dataclass(frozen=True)
class Item:
    name: str
    price: decimal.Decimal
    seen: datetime.datetime
    colour: Colour
    mark: uuid.UUID | None


class Place(NamedTuple):
    x: int
    y: float


def item(number):
    return Item(
        f"item {number}",
        decimal.Decimal(number) / 4,
        datetime.datetime(2024, 1, 1) + datetime.timedelta(minutes=number),
        Colour.RED if number % 2 else Colour.BLUE,
        uuid.UUID(int=abs(number)) if number % 3 else None,
    )


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, one, other):
        return one[0] + other[0], one[1] + other[1]


DESCRIPTORS = {
    "count": lambda: ValueStateDescriptor("count", int),
    "item": lambda: ValueStateDescriptor("item", Item),
    "row": lambda: ValueStateDescriptor("row", Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])),
    "anything": lambda: ValueStateDescriptor("anything", Types.PICKLED_BYTE_ARRAY()),
    "values": lambda: ListStateDescriptor("values", int),
    "places": lambda: MapStateDescriptor("places", str, Place),
    "colours": lambda: MapStateDescriptor("colours", Colour, int),
    "largest": lambda: ReducingStateDescriptor("largest", max, int),
    "mean": lambda: AggregatingStateDescriptor("mean", Mean(), tuple[int, int]),
}


class Everything(KeyedProcessFunction):
    """Writes the number of a (key, number) record to a state of every kind, and sets two timers."""

    def open(self, runtime_context):
        get = {
            "list": runtime_context.get_list_state,
            "map": runtime_context.get_map_state,
            "reducing": runtime_context.get_reducing_state,
            "aggregating": runtime_context.get_aggregating_state,
        }
        for name, make in DESCRIPTORS.items():
            descriptor = make()
            setattr(self, name, get.get(descriptor.kind, runtime_context.get_state)(descriptor))
        fading = ValueStateDescriptor("fading", str)
        fading.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_millis(60_000)).build())
        self.fading = runtime_context.get_state(fading)

    def process_element(self, value, ctx):
        key, number = value
        self.count.update((self.count.value() or 0) + 1)
        self.item.update(item(number))
        self.row.update((number, str(number)))
        self.anything.update({"number": number})
        self.values.add(number)
        self.places.put(f"p{number % 3}", Place(number, number / 2))
        self.colours.put(Colour.RED, number)
        self.largest.add(number)
        self.mean.add(number)
        self.fading.update(f"f{number}")
        ctx.timer_service().register_event_time_timer(10**12 + number)
        ctx.timer_service().register_processing_time_timer(10**14 + number)
        yield key, self.count.value()

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp


class Remembering(ProcessFunction, CheckpointedFunction):
    """Uses every kind of operator state."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.split = store.get_list_state(ListStateDescriptor("split", int))
        self.union = store.get_union_list_state(ListStateDescriptor("union", str))
        self.rules = store.get_broadcast_state(MapStateDescriptor("rules", str, Place))

    def snapshot_state(self, context):
        context.get_raw_operator_state_output().write(b"raw bytes")

    def process_element(self, value, ctx):
        self.split.add(value[1])
        self.union.add(f"u{value[1]}")
        self.rules.put(f"r{value[1]}", Place(value[1], 0.5))
        yield value


def environment():
    return StreamExecutionEnvironment.get_execution_environment()


def everything(uid="all"):
    stream = environment().from_collection([]).uid("numbers").process(Remembering()).uid("remember")
    return stream.key_by(lambda pair: pair[0]).process(Everything()).uid(uid)


def saved(stream, directory, *epochs, **options):
    """Return a savepoint of the stream after these epochs of records."""
    with JobHarness(stream, **options) as job:
        for records in epochs:
            job.push(*records).epoch()
        return Savepoint.load(job.savepoint(directory))


def rows(table, *columns):
    """Return the rows of a state, sorted, restricted to these columns."""
    found = [tuple(row[name] for name in columns or row) for row in table.rows()]
    return sorted(found, key=repr)
