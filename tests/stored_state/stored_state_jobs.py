"""Jobs whose checkpoints and savepoints are kept in `tests/data/stored_state`, and the input that produced them.

Stored state refers to the classes of this module by name, so neither the module nor the classes can be renamed. A later
version of Penstock adds data with `record_stored_state.py`; it does not replace the data of an earlier version.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from penstock.common import RenamedFrom, Time, Types, WatermarkStrategy
from penstock.datastream import (
    AggregateFunction,
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TwoPhaseCommitSinkFunction,
)
from penstock.datastream.connectors import CheckpointCommitter, GenericWriteAheadSink, Sink, SinkWriter, Source
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows

HOUR = 3_600_000
START = 1_700_000_000_000
"""The clock of the first epoch, in milliseconds."""


# -- a type in three versions ------------------------------------------------------------------------------------------


def called(name: str) -> Callable[[type], type]:
    """Give a class the name of its earlier version in the program."""

    def rename(cls: type) -> type:
        cls.__qualname__ = cls.__name__ = name
        return cls

    return rename


@called("Status")
class Status(enum.Enum):
    OPEN = 1
    PAID = 2


@called("Status")
class ReorderedStatus(enum.Enum):
    PAID = 1
    OPEN = 2


@called("Order")
@dataclass
class OrderV1:
    number: int
    price: int
    status: Status


@called("Order")
@dataclass
class OrderV2:
    number: int
    price: int
    status: ReorderedStatus
    tags: list[str] = field(default_factory=lambda: ["second version"])


@called("Order")
@dataclass
class OrderV3:
    amount: Annotated[float, RenamedFrom("price")]
    number: int
    status: ReorderedStatus
    tags: list[str] = field(default_factory=list)


def first_order(number: int) -> Any:
    return OrderV1(number, 10 * number, Status.PAID)


def second_order(number: int) -> Any:
    return OrderV2(number, 10 * number, ReorderedStatus.OPEN, [f"t{number}"])


def third_order(number: int) -> Any:
    return OrderV3(10.5 * number, number, ReorderedStatus.PAID, [])


VERSIONS: dict[type, Callable[[int], Any]] = {OrderV1: first_order, OrderV2: second_order, OrderV3: third_order}
"""Functions that create an order, by version of the type."""


# -- every kind of state -----------------------------------------------------------------------------------------------


class Average(AggregateFunction):
    """The accumulator is (sum, count)."""

    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def larger(one: int, other: int) -> int:
    return max(one, other)


TTL = StateTtlConfig.new_builder(Time.hours(1)).build()


def with_ttl(descriptor: Any) -> Any:
    descriptor.enable_time_to_live(TTL)
    return descriptor


class Keep(KeyedProcessFunction):
    """Stores each number of a key in keyed state of every kind, and sets two timers for it."""

    def __init__(self, order: type) -> None:
        self.order_type = order

    def open(self, runtime_context):
        context = runtime_context
        order = self.order_type
        self.value = context.get_state(ValueStateDescriptor("value", int))
        self.list = context.get_list_state(ListStateDescriptor("list", int))
        self.map = context.get_map_state(MapStateDescriptor("map", str, int))
        self.untyped_keys = context.get_map_state(MapStateDescriptor("untyped keys", Types.PICKLED_BYTE_ARRAY(), int))
        self.untyped = context.get_state(ValueStateDescriptor("untyped", Types.PICKLED_BYTE_ARRAY()))
        self.reducing = context.get_reducing_state(ReducingStateDescriptor("reducing", larger, int))
        self.aggregating = context.get_aggregating_state(
            AggregatingStateDescriptor("aggregating", Average(), tuple[int, int])
        )
        self.ttl_value = context.get_state(with_ttl(ValueStateDescriptor("value with TTL", int)))
        self.ttl_list = context.get_list_state(with_ttl(ListStateDescriptor("list with TTL", int)))
        self.ttl_map = context.get_map_state(with_ttl(MapStateDescriptor("map with TTL", str, int)))
        self.order = context.get_state(ValueStateDescriptor("order", order))
        self.orders = context.get_list_state(ListStateDescriptor("orders", order))

    def process_element(self, record, ctx):
        number = record[1]
        self.value.update((self.value.value() or 0) + number)
        self.list.add(number)
        self.map.put(f"modulo {number % 2}", number)
        self.untyped_keys.put((number % 3, frozenset({"k"})), number)
        self.untyped.update({"number": number, "as set": {number}, "pair": (number, None)})
        self.reducing.add(number)
        self.aggregating.add(number)
        self.ttl_value.update(number)
        self.ttl_list.add(number)
        self.ttl_map.put(f"modulo {number % 2}", number)
        self.order.update(VERSIONS[self.order_type](number))
        self.orders.add(VERSIONS[self.order_type](number))
        timers = ctx.timer_service()
        timers.register_event_time_timer(ctx.timestamp() + 60_000)
        timers.register_processing_time_timer(timers.current_processing_time() + HOUR // 2)
        yield "kept", record[0], number, self.value.value()

    def on_timer(self, timestamp, ctx):
        yield "timer", ctx.get_current_key(), ctx.time_domain().name, timestamp, self.value.value()


class Members(ProcessWindowFunction):
    """Emits a window with the numbers in it, in order of arrival."""

    def process(self, key, context, elements):
        yield "session", key, context.window().start, [record[1] for record in elements]


class Number(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value[1]

    def get_result(self, accumulator):
        return "tumbling", accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Counted(ProcessWindowFunction):
    """Emits the numbers of a count window."""

    def process(self, key, context, elements):
        yield "counted", key, [record[1] for record in elements]


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield "joined", left[0], left[1], right[1]


class OfSubtask(MapFunction, CheckpointedFunction):
    """Stores numbers in operator state of every kind."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.list = store.get_list_state(ListStateDescriptor("operator list", int))
        self.union = store.get_union_list_state(ListStateDescriptor("union list", int))
        self.broadcast = store.get_broadcast_state(MapStateDescriptor("broadcast", str, int))
        runtime = context.get_runtime_context()
        subtask, parallelism = runtime.get_index_of_this_subtask(), runtime.get_number_of_parallel_subtasks()
        self.own = [number for number in self.union.get() if number % parallelism == subtask]

    def map(self, value):
        self.list.add(value[1])
        self.own.append(value[1])
        return "of subtask", value[1]

    def snapshot_state(self, context):
        self.union.update(self.own)
        self.broadcast.put("format", 1)


LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.INT())


class Limited(KeyedBroadcastProcessFunction):
    """Emits numbers within the limit of their key."""

    def open(self, runtime_context):
        self.passed = runtime_context.get_state(ValueStateDescriptor("passed", int))

    def process_element(self, record, ctx):
        if record[1] <= (ctx.get_broadcast_state(LIMITS).get(record[0]) or 0):
            self.passed.update((self.passed.value() or 0) + 1)
            yield "within limit", record[0], record[1], self.passed.value()

    def process_broadcast_element(self, rule, ctx):
        ctx.get_broadcast_state(LIMITS).put(*rule)


def key_of(record: Any) -> Any:
    return record[0]


def time_of(record: Any, timestamp: int) -> int:
    return record[2]


def timed(stream: Any) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(time_of)
    return stream.assign_timestamps_and_watermarks(strategy)


def states(order: type) -> Any:
    """Return a job with every kind of state, whose results are tagged tuples.

    The sources `events` and `others` take (key, number, time), and `rules` takes (key, limit).
    """
    env = StreamExecutionEnvironment.get_execution_environment()
    events = timed(env.from_collection([]).uid("events")).uid("times of events")
    others = timed(env.from_collection([]).uid("others")).uid("times of others")
    limits = env.from_collection([]).uid("rules").broadcast(LIMITS)
    keyed = events.key_by(key_of)
    results = [
        keyed.process(Keep(order)).uid("keep"),
        keyed.window(TumblingEventTimeWindows.of(Time.seconds(60))).aggregate(Number()).uid("tumbling"),
        keyed.window(EventTimeSessionWindows.with_gap(Time.seconds(30))).process(Members()).uid("session"),
        keyed.count_window(4).process(Counted()).uid("counted"),
        keyed.interval_join(others.key_by(key_of))
        .between(Time.seconds(-30), Time.seconds(30))
        .process(Pairs())
        .uid("joined"),
        events.rebalance().map(OfSubtask()).uid("of subtask"),
        keyed.connect(limits).process(Limited()).uid("limited"),
    ]
    return results[0].union(*results[1:])


# -- sinks that have not committed yet ---------------------------------------------------------------------------------


class PowerCut(BaseException):
    """Stops the job in the middle of a commit, after the manifest is published."""


class SinkCalls:
    """The calls to the sinks of a job in this process, and whether the power fails at a commit."""

    def __init__(self) -> None:
        self.power_fails = False
        self.refuses = False
        self.calls: list[Any] = []

    def add(self, *call: Any) -> None:
        if self.power_fails:
            raise PowerCut
        self.calls.append(call)

    def __reduce__(self) -> Any:
        return SinkCalls, ()


class Pages(Sink):
    """Shows records in pages of three; an incomplete page waits in the writers' state."""

    stateful = True

    def __init__(self, calls: SinkCalls) -> None:
        self.calls = calls

    def create_writer(self, context):
        return PageWriter()

    def commit(self, commits, context):
        for commit in commits:
            self.calls.add("page", commit.epoch, commit.subtask, json.loads(commit.payload), commit.again)


class PageWriter(SinkWriter):
    def restore(self, states):
        self.open = [record for state in states for record in json.loads(state)]
        self.full: list[Any] = []

    def write(self, value):
        self.open.append(value)
        if len(self.open) == 3:
            self.full.append(self.open)
            self.open = []

    def prepare_commit(self):
        return json.dumps(self.full).encode() if self.full else None

    def snapshot_state(self):
        return [json.dumps([record]).encode() for record in self.open]


class NoCommitter(CheckpointCommitter):
    """Records nothing, so that every outstanding epoch is sent."""

    def commit_checkpoint(self, subtask_idx, checkpoint_id):
        pass

    def is_checkpoint_committed(self, subtask_idx, checkpoint_id):
        return False


class Letters(GenericWriteAheadSink):
    """Takes records from the write-ahead log, unless it rejects them."""

    def __init__(self, calls: SinkCalls) -> None:
        super().__init__(NoCommitter(), int)
        self.calls = calls

    def send_values(self, values, checkpoint_id, timestamp):
        if self.calls.refuses:
            return False
        self.calls.add("letters", checkpoint_id, list(values))
        return True


class Transactions(TwoPhaseCommitSinkFunction):
    """A handle contains the subtask's index and how many transactions the subtask has begun."""

    def __init__(self, calls: SinkCalls) -> None:
        self.calls = calls

    def open(self, runtime_context):
        self.subtask, self.begun = runtime_context.get_index_of_this_subtask(), 0

    def begin_transaction(self) -> Any:
        self.begun += 1
        return f"{self.subtask}-{self.begun}"

    def invoke(self, transaction, value, context):
        pass

    def pre_commit(self, transaction):
        pass

    def commit(self, transaction):
        self.calls.add("committed", transaction)

    def recover_and_commit(self, transaction):
        self.calls.add("recovered", transaction)

    def abort(self, transaction):
        self.calls.add("aborted", transaction)


def deliveries(calls: SinkCalls) -> StreamExecutionEnvironment:
    """Return a job whose records go to sinks of three kinds. Its source is `numbers`."""
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection([]).uid("numbers").rebalance()
    numbers.sink_to(Pages(calls)).uid("pages")
    numbers.sink_to(Letters(calls)).uid("letters")
    numbers.add_sink(Transactions(calls)).uid("transactions")
    return env


# -- positions of sources ----------------------------------------------------------------------------------------------


class Counter(Source):
    """Two splits of numbers, even and odd, that advance by `step` numbers per epoch up to `end`."""

    def __init__(self, end: int, step: int) -> None:
        self.end, self.step = end, step

    def start(self, parallelism):
        return {"even": 0, "odd": 0}

    def advance(self, positions, limit):
        return {split: min(position + self.step, self.end) for split, position in positions.items()}

    def read(self, split, start, end):
        return [2 * number + (split == "odd") for number in range(start, end)]


class Total(KeyedProcessFunction):
    """Keeps the running sum and all numbers of a key."""

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int))
        self.numbers = runtime_context.get_list_state(ListStateDescriptor("numbers", int))

    def process_element(self, number, ctx):
        self.total.update((self.total.value() or 0) + number)
        self.numbers.add(number)
        yield ctx.get_current_key(), number, self.total.value()


def totals(env: StreamExecutionEnvironment, end: int = 30) -> Any:
    """Return a job that sums the numbers of a source with positions by their remainder modulo 3."""
    numbers = env.from_source(Counter(end, 3), source_name="counter").uid("counter")
    return numbers.key_by(lambda number: number % 3).process(Total()).uid("totals")
