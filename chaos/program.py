"""The victim: a program with every kind of keyed state, whose results are independent of epochs, tasks and attempts.

numbers → records → first (value, list, map, timers) ─→ second (value, reducing, map) ─┬→ files, exactly once
                  └→ windows (event time, per key) ────────────────────────────────────┘

`chaos.ends.programs` uses the same stages with other sources and sinks. The records of a key come from one split, or
from one writer to it, so they arrive in order. Every record gets a random tag: if results of different attempts were
ever mixed, the tags in the output and in the two stages would differ.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from chaos.storage_faults import install
from penstock.common import Encoder, Time, WatermarkStrategy
from penstock.connectors.source import Positions, Source
from penstock.datastream import (
    AggregateFunction,
    DataStream,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window import TumblingEventTimeWindows

# Workers import this module to unpickle the functions below, which installs the storage faults in every process.
install()

SPLITS = 2
KEYS = 40
LETTERS = 7
WINDOW_MS = 400
LIST_LENGTH = 16
SOURCE = "numbers"
"""The uid of the source, whichever it is."""
THE_END = 2**53
"""A timer that only fires at the end of the input, when each key emits its state."""


class Record(NamedTuple):
    id: int
    key: int
    timestamp: int


def record(number: int) -> Record:
    """Return record `number` of the input, for both the source and the oracle."""
    # Even and odd numbers are the two splits; a multiplier that is coprime to KEYS spreads them.
    key = number % SPLITS + SPLITS * ((number * 7919 // 13) % (KEYS // SPLITS))
    return Record(number, key, number * 10)


class Numbers(Source):
    """Emits as many records as the file `total` says, or without end if it is missing: the rig decides when to stop."""

    bounded = True

    def __init__(self, total: str, per_epoch: int, pace_ms: int) -> None:
        self._total = total
        self._per_epoch = per_epoch
        self._pace = pace_ms / 1000

    def start(self, parallelism: int) -> Positions:
        return {str(split): split for split in range(SPLITS)}

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        step = self._per_epoch // SPLITS * SPLITS
        end = 2**62
        try:
            end = int(Path(self._total).read_text())
        except FileNotFoundError:
            pass
        return {split: max(position, min(position + step, end + int(split))) for split, position in positions.items()}

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        # Gives faults time to hit.
        time.sleep(self._pace)
        return map(record, range(start, end, SPLITS))

    def ends(self, split: str, position: Any) -> bool:
        try:
            return bool(position >= int(Path(self._total).read_text()) + int(split))
        except FileNotFoundError:
            return False


class First(KeyedProcessFunction):
    """Counts records, keeps lists and sums per window of time, and tags every record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))
        self.ids = runtime_context.get_list_state(ListStateDescriptor("ids", int))
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums", int, int))
        self.tags = runtime_context.get_map_state(MapStateDescriptor("tags", int, str))
        self.note = runtime_context.get_state(ValueStateDescriptor("note", str))

    def process_element(self, value: Record, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        key = value.key
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        self.note.update(note(key, n))
        if n == 1:
            ctx.timer_service().register_event_time_timer(THE_END)
        end = value.timestamp - value.timestamp % WINDOW_MS + WINDOW_MS
        ctx.timer_service().register_event_time_timer(end)
        self.sums.put(end, (self.sums.get(end) or 0) + value.id)
        tag = uuid.uuid4().hex
        self.tags.put(value.id, tag)
        yield "record", key, value.id, n, tag
        self.ids.add(value.id)
        if n % LIST_LENGTH == 0:
            yield "list", key, n, list(self.ids.get()), ""
            self.ids.clear()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[Any, ...]]:
        key = ctx.get_current_key()
        if timestamp < THE_END:
            yield "timer", key, timestamp, self.sums.get(timestamp), ""
            self.sums.remove(timestamp)
        else:
            yield "first", key, self.n.value(), [*self.ids.get(), -1, *self.sums.keys()], ""


class Second(KeyedProcessFunction):
    """Sums records of many keys, in any order, and emits them as text."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))
        self.total = runtime_context.get_reducing_state(ReducingStateDescriptor("total", add, int))
        self.tags = runtime_context.get_map_state(MapStateDescriptor("tags", int, str))

    def process_element(self, value: tuple[Any, ...], ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        what, key, second, third, tag = value
        if what == "record":
            if not self.n.value():
                ctx.timer_service().register_event_time_timer(THE_END)
            self.n.update((self.n.value() or 0) + 1)
            self.total.add(second)
            self.tags.put(second, tag)
        yield line(what, key, second, third, tag)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[str]:
        yield line("second", ctx.get_current_key(), self.n.value(), self.total.get(), "")


class SumOfIds(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: Record, accumulator: list[int]) -> list[int]:
        return [accumulator[0] + 1, accumulator[1] + value.id]

    def get_result(self, accumulator: list[int]) -> list[int]:
        return accumulator

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return [acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]


class PerWindow(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: int, context: Any, elements: Iterable[list[int]]) -> Iterator[str]:
        for count, total in elements:
            yield line("window", key, context.window().start, [count, total], "")


def note(key: int, n: int) -> str:
    """Return text long enough that an epoch's delta gets its own file instead of being stored in the manifest."""
    return f"{key}:{n} " * 120


def add(left: int, right: int) -> int:
    return left + right


def line(what: str, key: int, second: Any, third: Any, tag: str) -> str:
    return json.dumps([what, key, second, third, tag], separators=(",", ":"))


def letter(value: tuple[Any, ...]) -> int:
    return int(value[1]) % LETTERS


def build(env: StreamExecutionEnvironment, total: str, out: str, per_epoch: int, pace_ms: int) -> None:
    """Declare the program in an environment, with generated numbers and a file sink."""
    times = WatermarkStrategy.for_monotonous_timestamps()
    records = env.from_source(Numbers(total, per_epoch, pace_ms), source_name="numbers").uid(SOURCE)
    _, lines = declare(records, times)
    write_files(lines, out)


def declare(records: DataStream, times: WatermarkStrategy) -> tuple[DataStream, DataStream]:
    """Declare the stages over a stream of records, with uids by which any process finds the state.

    Returns the output of the first stage, and the lines of all stages.
    """
    times = times.with_timestamp_assigner(lambda value, _: value.timestamp)
    records = records.assign_timestamps_and_watermarks(times).uid("times")
    keyed = records.key_by(lambda value: value.key)
    first = keyed.process(First()).uid("first")
    second = first.key_by(letter).process(Second()).uid("second")
    windows = (
        keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
        .aggregate(SumOfIds(), PerWindow())
        .uid("windows")
    )
    return first, second.union(windows)


def write_files(lines: DataStream, out: str) -> None:
    sink = (
        FileSink.for_row_format(out, Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        # Some parts span several epochs, and some roll within one.
        .with_rolling_policy(RollingPolicy.default_rolling_policy(16 * 1024, 2000, 2000))
        .build()
    )
    lines.sink_to(sink).uid("files")
