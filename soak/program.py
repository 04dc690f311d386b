"""The program of the soak test: every kind of keyed state, timers, windows and a file sink, over an endless source.

Its state is bounded, so anything that grows from epoch to epoch is a leak.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from penstock.common import Encoder, Time, WatermarkStrategy
from penstock.connectors.source import Positions, Source
from penstock.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeDomain,
)
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.datastream.window import TumblingEventTimeWindows

SPLITS = 2
KEYS = 40
PER_EPOCH = 20
"""Records per split; few, because the soak test is about epochs, not records."""
WINDOW_MS = 2000


class Tick(NamedTuple):
    key: int
    timestamp: int


class Ticks(Source):
    """Counts endlessly in every split."""

    bounded = False
    replayable = True
    why = "every number can be computed again"

    def start(self, parallelism: int) -> Positions:
        return {str(split): 0 for split in range(SPLITS)}

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        return {split: position + PER_EPOCH for split, position in positions.items()}

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        return (Tick(number * SPLITS % KEYS + int(split), number * 10) for number in range(start, end))

    def close(self) -> None:
        pass


class Visits(KeyedProcessFunction):
    """Keeps a count, a list of at most ten elements, a map of seven, a value with a TTL, and a timer of each kind."""

    def __init__(self, counts: str) -> None:
        self._counts = counts

    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))
        self.recent = runtime_context.get_list_state(ListStateDescriptor("recent", int))
        self.days = runtime_context.get_map_state(MapStateDescriptor("days", int, int))
        seen = ValueStateDescriptor("seen", int)
        seen.enable_time_to_live(StateTtlConfig.new_builder(timedelta(seconds=5)).build())
        self.seen = runtime_context.get_state(seen)

    def process_element(self, value: Tick, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int]]:
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        self.days.put(n % 7, n)
        self.seen.update(n)
        self.recent.add(n)
        if n % 10 == 0:
            self.recent.clear()
            report_objects(self._counts)
        timers = ctx.timer_service()
        timers.register_event_time_timer(value.timestamp + 500)
        timers.register_processing_time_timer(timers.current_processing_time() + 500)
        yield value.key, n

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[int, int]]:
        # Records from processing-time timers have no timestamp, but the windows need one.
        if ctx.time_domain() is TimeDomain.EVENT_TIME:
            yield ctx.get_current_key(), 0


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: tuple[int, int], accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


def report_objects(directory: str) -> None:
    """Write the number of objects that this worker's garbage collector tracks, if the rig has requested it."""
    if os.path.exists(f"{directory}/wanted"):
        Path(directory, str(os.getpid())).write_text(str(len(gc.get_objects())))


def build(env: StreamExecutionEnvironment, out: str, counts: str) -> None:
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value.timestamp)
    visits = (
        env.from_source(Ticks(), source_name="ticks")
        .uid("ticks")
        .assign_timestamps_and_watermarks(times)
        .uid("times")
        .key_by(lambda value: value.key)
        .process(Visits(counts))
        .uid("visits")
    )
    counted = (
        visits.key_by(lambda value: value[0] % 5)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
        .aggregate(Count())
        .uid("windows")
    )
    sink = (
        FileSink.for_row_format(out, Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.default_rolling_policy(1024 * 1024, 600_000, 600_000))
        .build()
    )
    counted.map(str).uid("lines").sink_to(sink).uid("files")
