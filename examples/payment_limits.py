"""Detect payments over the limit of their time. Limits are broadcast and change while the job runs."""

from collections.abc import Iterator
from typing import Any

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import DataStream, KeyedBroadcastProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import MapStateDescriptor

LIMITS = MapStateDescriptor("limits", Types.LONG(), Types.INT())
"""The limits by the time from which each applies."""

# (card or "limit", amount, time)
SAMPLE = [
    ("limit", 100, 0),
    ("card-1", 80, 10),
    ("card-2", 120, 20),
    ("limit", 50, 30),
    ("card-1", 80, 40),
    ("card-2", 40, 50),
    ("limit", 200, 60),
    ("card-2", 120, 70),
]


class OverTheLimit(KeyedBroadcastProcessFunction[str, Any, Any, Any]):
    """Checks a payment when event time reaches it, because all limits up to that time are then known."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.payments = runtime_context.get_map_state(MapStateDescriptor("payments", int, int))

    def process_element(
        self, payment: tuple[str, int, int], ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        _, amount, time = payment
        self.payments.put(time, amount)
        ctx.timer_service().register_event_time_timer(time)

    def process_broadcast_element(
        self, limit: tuple[str, int, int], ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        _, amount, since = limit
        ctx.get_broadcast_state(LIMITS).put(since, amount)

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterator[tuple[str, int, int]]:
        amount = self.payments[timestamp] or 0
        self.payments.remove(timestamp)
        limits = ctx.get_broadcast_state(LIMITS)
        limit = limits[max(since for since in limits if since <= timestamp)] or 0
        if amount > limit:
            yield ctx.get_current_key(), amount, limit


def build(events: DataStream) -> DataStream:
    """Return a stream of (card, amount, the exceeded limit)."""
    times = WatermarkStrategy.for_monotonous_timestamps()
    timed = events.assign_timestamps_and_watermarks(times.with_timestamp_assigner(lambda event, timestamp: event[2]))
    limits = timed.filter(lambda event: event[0] == "limit").broadcast(LIMITS)
    payments = timed.filter(lambda event: event[0] != "limit").key_by(lambda payment: payment[0])
    return payments.connect(limits).process(OverTheLimit()).uid("over the limit")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).print()
    env.execute("payment limits")
