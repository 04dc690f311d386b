"""A program whose records, keys, states, formats, rules and side outputs use classes from its own file.

With the variable OWN_CLASSES set to a folder, it runs on Spark as `__main__`; otherwise `build` is for tests.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Optional

import msgspec

from penstock.common import Configuration, Encoder, JsonSchema, Types, WatermarkStrategy
from penstock.datastream import (
    BroadcastProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor


class Kind(Enum):
    NEW = "new"
    USED = "used"


@dataclass(frozen=True, slots=True)
class Line:
    amount: Decimal
    kind: Kind = Kind.NEW


@dataclass
class Order:
    customer: str
    lines: list[Line] = field(default_factory=list)
    before: Optional[Order] = None  # noqa: UP045 - a name that occurs only in annotations

    @dataclass
    class Note:
        text: str


class Limit(msgspec.Struct, frozen=True):
    """A rule: the highest allowed price of an order."""

    most: int
    notes: tuple[str, ...] = ()

    def allows(self, order: Order) -> bool:
        return total(order) <= self.most


class Visit(NamedTuple):
    customer: str
    price: Decimal


def total(order: Order) -> Decimal:
    return sum((line.amount for line in order.lines), Decimal(0))


# A user program can do this: from now on msgspec's cached data is stored on the class.
PARSED = msgspec.json.decode(b'{"customer": "driver"}', type=Order)
RULES = MapStateDescriptor("limits", Types.STRING(), Limit)
REFUSED = OutputTag("refused", Order)


class Judge(BroadcastProcessFunction):
    def process_element(self, value: Order, ctx: Any) -> Any:
        assert type(value) is Order, type(value)
        assert all(type(line) is Line for line in value.lines)
        assert all(line.kind is Kind.NEW for line in value.lines)
        limit = ctx.get_broadcast_state(RULES).get("all")
        assert limit is None or type(limit) is Limit
        if limit is None or limit.allows(value):
            yield value
        else:
            yield REFUSED, value

    def process_broadcast_element(self, value: Limit, ctx: Any) -> None:
        assert isinstance(value, Limit)
        ctx.get_broadcast_state(RULES).put("all", value)


class Remember(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Order))
        self.visits = runtime_context.get_list_state(ListStateDescriptor("visits", Visit))
        self.anything = runtime_context.get_state(ValueStateDescriptor("anything", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Order, ctx: Any) -> Any:
        before, anything = self.last.value(), self.anything.value()
        assert before is None or type(before) is Order, type(before)
        assert anything is None or (type(anything["order"]) is Order and type(anything["note"]) is Order.Note)
        assert all(type(visit) is Visit for visit in self.visits.get())
        self.anything.update({"order": value, "kind": Kind.USED, "note": Order.Note("seen")})
        self.visits.add(Visit(value.customer, total(value)))
        self.last.update(Order(value.customer, value.lines, None if before is None else Order(before.customer)))
        yield Order(value.customer, [Line(sum((visit.price for visit in self.visits.get()), Decimal(0)))], before)


def orders(count: int) -> list[Order]:
    return [Order("abc"[number % 3], [Line(Decimal(number))]) for number in range(count)]


def build(env: StreamExecutionEnvironment, folder: str, count: int = 30) -> Any:
    """Read orders from a collection and files, and emit (customer, sum so far) for each order that no rule refuses."""
    files = Path(folder, "in")
    files.mkdir(parents=True, exist_ok=True)
    (files / "a.jsonl").write_bytes(b"".join(msgspec.json.encode(order) + b"\n" for order in orders(count)))
    source = FileSource.for_record_stream_format(StreamFormat.json_lines(Order), str(files)).build()
    read = env.from_source(source, WatermarkStrategy.no_watermarks(), "files").uid("files")
    given = env.from_collection(orders(count)).uid("given")
    rules = env.from_collection([Limit(1000)]).uid("rules").broadcast(RULES)
    judged = given.union(read).rebalance().connect(rules).process(Judge()).uid("judge")
    judged.get_side_output(REFUSED).map(lambda order: order.customer).uid("refused").print()
    summed = judged.key_by(lambda order: order.customer).process(Remember(), Types.PICKLED_BYTE_ARRAY()).uid("remember")
    schema = JsonSchema(Order)
    return summed.map(lambda order: schema.deserialize(schema.serialize(order)), Order).uid("json")


def lines_of(stream: Any) -> Any:
    return stream.map(lambda order: f"{order.customer} {total(order)} {type(order).__qualname__}").uid("lines")


def largest(lines: list[str]) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for line in lines:
        customer, price, _ = line.split()
        found[customer] = max(found.get(customer, Decimal(0)), Decimal(price))
    return found


def expected(count: int = 30) -> dict[str, Decimal]:
    sums: dict[str, Decimal] = {}
    for order in orders(count) * 2:
        sums[order.customer] = sums.get(order.customer, Decimal(0)) + total(order)
    return sums


def main(folder: str) -> None:
    settings = {
        "spark.master": "local[2]",
        "state.checkpoints.dir": f"{folder}/checkpoints",
        "state.backend.local-dir": f"{folder}/replicas",
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "penstock.epoch.max-records": 6,
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(2)
    sink = FileSink.for_row_format(f"{folder}/out", Encoder.simple_string_encoder()).build()
    lines_of(build(env, folder)).sink_to(sink).uid("sink")
    env.execute("own classes")
    out = [line for part in Path(folder, "out").rglob("*") if part.is_file() for line in part.read_text().splitlines()]
    assert (len(out), largest(out)) == (60, expected()), out[:10]
    print(json.dumps({"as expected": len(out)}))


if __name__ == "__main__" and "OWN_CLASSES" in os.environ:
    main(os.environ["OWN_CLASSES"])
