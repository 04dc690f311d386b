"""Programs with static types from source to sink. `make lint` type-checks them; they are never run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, assert_type

from penstock.common import Time, Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.generated import DataGeneratorSource, NumberSequenceSource
from penstock.connectors.source import Positions, Source
from penstock.datastream import (
    AggregateFunction,
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    BroadcastStream,
    CoMapFunction,
    ConnectedStreams,
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStream,
    KeySelector,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeWindow,
    WindowedStream,
)
from penstock.datastream.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from penstock.datastream.window import TumblingEventTimeWindows


class Order(NamedTuple):
    customer: str
    cents: int


class Numbers(Source[int]):
    def advance(self, positions: Positions, limit: int | None) -> Positions:
        return {"only": 3}

    def read(self, split: str, start: Any, end: Any) -> Iterable[int]:
        return range(3)


# -- functions ---------------------------------------------------------------------------------------------------------


class Cents(MapFunction[Order, int]):
    def map(self, value: Order) -> int:
        return value.cents


class Words(FlatMapFunction[str, str]):
    def flat_map(self, value: str) -> Iterator[str]:
        yield from value.split()


class Large(FilterFunction[Order]):
    def filter(self, value: Order) -> bool:
        return value.cents > 100


class Customer(KeySelector[Order, str]):
    def get_key(self, value: Order) -> str:
        return value.customer


class Larger(ReduceFunction[Order]):
    def reduce(self, value1: Order, value2: Order) -> Order:
        return max(value1, value2, key=lambda order: order.cents)


class Mean(AggregateFunction[Order, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Order, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value.cents, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


LATE = OutputTag("late", Types.STRING())
assert_type(LATE, OutputTag[str])


class Split(ProcessFunction[Order, int]):
    def process_element(self, value: Order, ctx: ProcessFunction.Context) -> Iterator[int | tuple[OutputTag[str], str]]:
        yield value.cents
        yield LATE, value.customer


class Total(KeyedProcessFunction[str, Order, tuple[str, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        assert_type(self.total, ValueState[int])
        self.orders = runtime_context.get_list_state(ListStateDescriptor("orders", Order))
        assert_type(self.orders, ListState[Order])
        self.by_day = runtime_context.get_map_state(MapStateDescriptor("by day", Types.STRING(), int))
        assert_type(self.by_day, MapState[str, int])
        self.largest = runtime_context.get_reducing_state(ReducingStateDescriptor("largest", Larger(), Order))
        assert_type(self.largest, ReducingState[Order])
        self.mean = runtime_context.get_aggregating_state(AggregatingStateDescriptor("mean", Mean(), tuple[int, int]))
        assert_type(self.mean, AggregatingState[Order, float])
        # A type checker cannot infer a type from a union as a value, so the state is Any unless the program says more.
        unknown = runtime_context.get_state(ValueStateDescriptor("unknown", int | str))
        assert_type(unknown, ValueState[Any])
        known = runtime_context.get_state(ValueStateDescriptor[int | str]("known", int | str))
        assert_type(known, ValueState[int | str])

    def process_element(self, value: Order, ctx: KeyedProcessFunction.Context[str]) -> Iterator[tuple[str, int]]:
        assert_type(self.total.value(), int | None)
        assert_type(ctx.get_current_key(), str)
        total = (self.total.value() or 0) + value.cents
        self.total.update(total)
        yield value.customer, total

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext[str]) -> Iterator[tuple[str, int]]:
        yield ctx.get_current_key(), timestamp


class Unparameterised(MapFunction):
    """Like programs written for PyFlink, without type parameters."""

    def map(self, value: Any) -> Any:
        return value


# -- one stream --------------------------------------------------------------------------------------------------------


def sources(env: StreamExecutionEnvironment) -> None:
    assert_type(env.from_collection([1, 2]), DataStream[int])
    assert_type(env.from_collection(Order(name, 1) for name in "ab"), DataStream[Order])
    assert_type(env.from_elements("a", "b"), DataStream[str])
    assert_type(env.from_sequence(1, 10), DataStream[int])
    assert_type(env.from_source(Numbers(), WatermarkStrategy.no_watermarks(), "numbers"), DataStream[int])
    assert_type(env.from_source(NumberSequenceSource(1, 3)), DataStream[int])
    assert_type(env.from_source(DataGeneratorSource(str, 3)), DataStream[str])
    assert_type(env.socket_text_stream("localhost", 9999), DataStream[str])


def with_function_objects(orders: DataStream[Order]) -> None:
    assert_type(orders.map(Cents()), DataStream[int])
    assert_type(orders.map(Unparameterised()), DataStream[Any])
    assert_type(orders.filter(Large()), DataStream[Order])
    assert_type(orders.map(lambda order: order.customer).flat_map(Words()), DataStream[str])
    assert_type(orders.process(Split()), DataStream[int])
    assert_type(orders.process(Split()).get_side_output(LATE), DataStream[str])
    assert_type(orders.key_by(Customer()), KeyedStream[Order, str])
    assert_type(orders.key_by(Customer()).process(Total()), DataStream[tuple[str, int]])
    assert_type(orders.key_by(Customer()).reduce(Larger()), DataStream[Order])


def cents(order: Order) -> int:
    return order.cents


def letters(word: str) -> Iterator[str]:
    yield from word


def with_plain_functions(orders: DataStream[Order]) -> None:
    assert_type(orders.map(cents), DataStream[int])
    assert_type(orders.map(lambda order: (order.customer, 1)), DataStream[tuple[str, int]])
    assert_type(orders.map(lambda order: order.customer).flat_map(letters), DataStream[str])
    assert_type(orders.flat_map(lambda order: [order.cents, 1]), DataStream[int])
    assert_type(orders.filter(lambda order: order.cents > 1), DataStream[Order])
    assert_type(orders.key_by(lambda order: order.customer), KeyedStream[Order, str])
    assert_type(orders.key_by(lambda order: order.customer).map(cents), DataStream[int])
    assert_type(orders.key_by(lambda order: order.customer).process(lambda order, ctx: [order.cents]), DataStream[int])
    assert_type(orders.key_by(lambda order: order.cents).reduce(lambda a, b: max(a, b)), DataStream[Order])
    assert_type(orders.map(cents).key_by(lambda n: n).sum(), DataStream[int])


def count(order: Order, state: int | None) -> tuple[str, int]:
    return order.customer, (state or 0) + 1


def keeps_its_type(orders: DataStream[Order]) -> None:
    assert_type(orders.name("orders").uid("orders").set_parallelism(2).disable_chaining(), DataStream[Order])
    assert_type(orders.rebalance().rescale().shuffle().forward().global_(), DataStream[Order])
    assert_type(orders.assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks()), DataStream[Order])
    assert_type(orders.union(orders), DataStream[Order])
    assert_type(orders.union(orders.map(cents)), DataStream[Order | int])
    assert_type(orders.key_by(cents).map_with_state(count, int), DataStream[str])
    assert_type(orders.execute_and_collect("job", 3), list[Order])
    with orders.execute_and_collect() as results:
        assert_type(next(results), Order)


# -- windows -----------------------------------------------------------------------------------------------------------


class Report(ProcessWindowFunction[float, str, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[float]
    ) -> Iterator[str]:
        yield f"{key} {context.window().start} {sum(elements)}"


def windows(orders: DataStream[Order]) -> None:
    windowed = orders.key_by(Customer()).window(TumblingEventTimeWindows.of(Time.seconds(5)))
    assert_type(windowed, WindowedStream[Order, str, TimeWindow])
    assert_type(windowed.reduce(Larger()), DataStream[Order])
    assert_type(windowed.reduce(lambda a, b: a), DataStream[Order])
    assert_type(windowed.aggregate(Mean()), DataStream[float])
    assert_type(windowed.aggregate(Mean(), Report()), DataStream[str])
    assert_type(windowed.apply(lambda key, window, records: [window.start]), DataStream[int])
    assert_type(windowed.process(lambda key, context, records: [key]), DataStream[str])
    everything = orders.window_all(TumblingEventTimeWindows.of(Time.seconds(5)))
    assert_type(everything.aggregate(Mean()), DataStream[float])
    assert_type(everything.apply(lambda window, records: [window.end]), DataStream[int])


# -- two streams -------------------------------------------------------------------------------------------------------


class Either(CoMapFunction[Order, int, str]):
    def map1(self, value: Order) -> str:
        return value.customer

    def map2(self, value: int) -> str | None:
        return str(value) if value else None


class Meet(KeyedCoProcessFunction[str, Order, int, float]):
    def process_element1(self, value: Order, ctx: KeyedCoProcessFunction.Context[str]) -> Iterator[float]:
        yield value.cents / 2

    def process_element2(self, value: int, ctx: KeyedCoProcessFunction.Context[str]) -> None:
        ctx.timer_service().register_event_time_timer(value)


class Pair(ProcessJoinFunction[Order, int, tuple[Order, int]]):
    def process_element(self, left: Order, right: int, ctx: ProcessJoinFunction.Context) -> Iterator[tuple[Order, int]]:
        yield left, right


RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Apply(BroadcastProcessFunction[Order, tuple[str, int], str]):
    def process_element(self, value: Order, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[str]:
        assert_type(ctx.get_broadcast_state(RULES).get("limit"), int | None)
        yield value.customer

    def process_broadcast_element(self, value: tuple[str, int], ctx: BroadcastProcessFunction.Context) -> None:
        rules = ctx.get_broadcast_state(RULES)
        assert_type(rules, BroadcastState[str, int])
        rules.put(*value)


class KeyedApply(KeyedBroadcastProcessFunction[str, Order, tuple[str, int], str]):
    def process_element(self, value: Order, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext[str]) -> Iterator[str]:
        yield ctx.get_current_key()

    def process_broadcast_element(
        self, value: tuple[str, int], ctx: KeyedBroadcastProcessFunction.Context[str]
    ) -> None:
        ctx.apply_to_keyed_state(ValueStateDescriptor("total", Types.LONG()), lambda key, total: total.update(len(key)))


class Fetch(AsyncFunction[Order, bytes]):
    async def async_invoke(self, value: Order) -> list[bytes]:
        return [value.customer.encode()]


async def fetch(order: Order) -> list[bytes]:
    return [order.customer.encode()]


def two_streams(orders: DataStream[Order], numbers: DataStream[int]) -> None:
    connected = orders.connect(numbers)
    assert_type(connected, ConnectedStreams[Order, int])
    assert_type(connected.map(Either()), DataStream[str])
    assert_type(connected.key_by(lambda order: order.customer, lambda n: str(n)).process(Meet()), DataStream[float])
    rules = numbers.map(lambda n: (str(n), n)).broadcast(RULES)
    assert_type(rules, BroadcastStream[tuple[str, int]])
    assert_type(orders.connect(rules).process(Apply()), DataStream[str])
    assert_type(orders.key_by(Customer()).connect(rules).process(KeyedApply()), DataStream[str])
    by_customer, by_number = orders.key_by(Customer()), numbers.key_by(lambda n: str(n))
    joined = by_customer.interval_join(by_number).between(Time.seconds(-1), Time.seconds(1))
    assert_type(joined.process(Pair()), DataStream[tuple[Order, int]])
    windowed = orders.join(numbers).where(Customer()).equal_to(lambda n: str(n))
    pairs = windowed.window(TumblingEventTimeWindows.of(Time.seconds(5)))
    assert_type(pairs.apply(lambda order, n: order.cents + n), DataStream[int])
    assert_type(AsyncDataStream.unordered_wait(orders, Fetch(), Time.seconds(1)), DataStream[bytes])
    assert_type(AsyncDataStream.ordered_wait(orders, fetch, Time.seconds(1)), DataStream[bytes])


# -- mistakes ----------------------------------------------------------------------------------------------------------


def mistakes(orders: DataStream[Order]) -> None:
    """A type checker reports each of these. If it did not, it would report the comment as unused."""
    orders.map(lambda order: order.amount)  # type: ignore[attr-defined]
    orders.map(Words())  # type: ignore[arg-type]
    orders.filter(Cents())  # type: ignore[arg-type]
    orders.map(cents).key_by(Customer())  # type: ignore[arg-type]
    orders.key_by(cents).process(Total())  # type: ignore[arg-type]
    orders.key_by(Customer()).reduce(lambda a, b: a.cents)  # type: ignore[arg-type, return-value]
    total: ValueState[str] = ValueStateDescriptor("total", Types.LONG())  # type: ignore[assignment]
    assert_type(total, ValueState[str])
