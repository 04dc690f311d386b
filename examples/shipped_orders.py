"""Join each order with the shipment that left within an hour of it: an interval join."""

from collections.abc import Iterator

from penstock.common import Duration, WatermarkStrategy
from penstock.datastream import DataStream, ProcessJoinFunction, StreamExecutionEnvironment

MINUTE = 60_000
SAMPLE = [
    ("order", "o-1", 0 * MINUTE, "lamp"),
    ("order", "o-2", 5 * MINUTE, "desk"),
    ("shipment", "o-1", 40 * MINUTE, "truck 7"),
    ("order", "o-3", 30 * MINUTE, "chair"),
    ("shipment", "o-3", 29 * MINUTE, "truck 7"),
    ("shipment", "o-3", 90 * MINUTE, "truck 2"),
    ("shipment", "o-2", 66 * MINUTE, "truck 7"),
]
"""(kind, order, event time in ms, detail), at most 30 minutes out of order."""

Event = tuple[str, str, int, str]


class Shipped(ProcessJoinFunction):
    def process_element(
        self, left: Event, right: Event, ctx: ProcessJoinFunction.Context
    ) -> Iterator[tuple[str, str, str, int]]:
        minutes = (ctx.get_right_timestamp() - ctx.get_left_timestamp()) // MINUTE
        yield left[1], left[3], right[3], minutes


def build(events: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(30))
    timed = events.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda event, _: event[2]))
    orders = timed.filter(lambda event: event[0] == "order").key_by(lambda event: event[1])
    shipments = timed.filter(lambda event: event[0] == "shipment").key_by(lambda event: event[1])
    within_an_hour = orders.interval_join(shipments).between(0, Duration.of_hours(1))
    return within_an_hour.process(Shipped()).uid("shipped")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).print()
    env.execute("shipped orders")
