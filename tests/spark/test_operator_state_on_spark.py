"""Operator state while Spark assigns subtasks to arbitrary workers and loses some of them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    KeyedBroadcastProcessFunction,
    ListCheckpointed,
    MapFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import MapStateDescriptor

pytestmark = pytest.mark.spark

MakeEnv = Callable[..., StreamExecutionEnvironment]


class Counts(MapFunction, ListCheckpointed):
    """Emits each record's position within its subtask. At one record its worker dies, once."""

    state_type = int
    seen = 0

    def __init__(self, dies_at: int, marker: Path) -> None:
        self.dies_at, self.marker = dies_at, marker

    def map(self, value: int) -> int:
        self.seen += 1
        if value == self.dies_at and not self.marker.exists():
            self.marker.touch()
            os._exit(1)
        return self.seen

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[int]:
        return [self.seen]

    def restore_state(self, state: list[int]) -> None:
        self.seen += sum(state)


def test_a_function_keeps_counting_in_any_worker_and_after_one_is_lost(make_env: MakeEnv, tmp_path: Path) -> None:
    env = make_env(parallelism=3, records=8)
    marker = tmp_path / "died"
    stream = env.from_collection(list(range(60))).rebalance().map(Counts(30, marker)).uid("counts")
    with stream.execute_and_collect() as results:
        counted = sorted(results)
    assert marker.exists()
    assert len(counted) == 60
    # Each subtask emits 1, 2, 3, …; count how many subtasks reached each number.
    reached = [counted.count(number) for number in range(1, max(counted) + 1)]
    assert reached[0] == 3
    assert reached == sorted(reached, reverse=True)


RULES = MapStateDescriptor("rules", Types.LONG(), Types.STRING())


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Valid(KeyedBroadcastProcessFunction[str, Any, Any, Any]):
    """Emits each record with the rule of its time, once all rules up to then are known."""

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> None:
        ctx.timer_service().register_event_time_timer(value[1])

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        rule, since = value
        ctx.get_broadcast_state(RULES).put(since, rule)

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        yield ctx.get_current_key(), timestamp, rules[max(since for since in rules if since <= timestamp)]


def test_every_subtask_has_the_broadcast_rules(make_env: MakeEnv) -> None:
    env = make_env(parallelism=3, records=5)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    rules = env.from_collection([("old", 0), ("new", 100)]).assign_timestamps_and_watermarks(strategy)
    records = [(f"k{n % 7}", n * 10) for n in range(20)]
    stream = env.from_collection(records).assign_timestamps_and_watermarks(strategy).key_by(lambda record: record[0])
    valid = stream.connect(rules.broadcast(RULES)).process(Valid()).uid("valid")
    with valid.execute_and_collect() as results:
        assert sorted(results) == sorted((key, time, "old" if time < 100 else "new") for key, time in records)
