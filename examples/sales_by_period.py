"""Sum sales by minute, hour and day. State holds the pending total of each period until event time passes it."""

from collections.abc import Iterable, Iterator

from penstock.common import Duration, Time, WatermarkStrategy
from penstock.datastream import DataStream, ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows

PERIODS = [("minute", Time.minutes(1)), ("hour", Time.hours(1)), ("day", Time.days(1))]

# (shop, amount, seconds since midnight of the first day)
SAMPLE = [
    ("north", 10, 5),
    ("north", 20, 50),
    ("south", 7, 55),
    ("north", 5, 130),
    ("north", 1, 125),
    ("south", 3, 4_000),
    ("north", 40, 7_300),
    ("south", 9, 90_000),
]


class Total(ProcessWindowFunction):
    def __init__(self, period: str) -> None:
        self.period = period

    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[tuple[str, int]]
    ) -> Iterator[tuple[str, str, int, int]]:
        for shop, amount in elements:
            yield shop, self.period, context.window().start // 1000, amount


def build(sales: DataStream) -> DataStream:
    """Return a stream of (shop, period, start in seconds, amount). Hours are summed from minutes, days from hours."""
    times = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(30))
    timed = sales.assign_timestamps_and_watermarks(
        times.with_timestamp_assigner(lambda sale, timestamp: sale[2] * 1000)
    )
    amounts = timed.map(lambda sale: (sale[0], sale[1]))
    results = []
    for period, length in PERIODS:
        totals = (
            amounts.key_by(lambda sale: sale[0])
            .window(TumblingEventTimeWindows.of(length))
            .reduce(lambda total, sale: (total[0], total[1] + sale[1]), Total(period))
            .uid(f"by {period}")
        )
        results.append(totals)
        amounts = totals.map(lambda total: (total[0], total[3]))
    return results[0].union(*results[1:])


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).print()
    env.execute("sales by period")
