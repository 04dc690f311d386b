"""Count page views per minute, and late views separately."""

from collections.abc import Iterable, Iterator

from penstock.common import Duration, Time, WatermarkStrategy
from penstock.datastream import DataStream, OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows

TOO_LATE = OutputTag("too late")

# (page, seconds since the start)
SAMPLE = [("/", 3), ("/buy", 20), ("/", 41), ("/", 65), ("/buy", 62), ("/", 58), ("/", 130), ("/", 10), ("/buy", 185)]


class Count(ProcessWindowFunction):
    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[tuple[str, int]]
    ) -> Iterator[tuple[str, int, int]]:
        yield key, context.window().start // 60_000, sum(1 for _ in elements)


def build(views: DataStream) -> DataStream:
    """Return a stream of (page, minute, number of views), and ("late", minute, 1) for each view that is too late."""
    times = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(10))
    timed = views.assign_timestamps_and_watermarks(
        times.with_timestamp_assigner(lambda view, timestamp: view[1] * 1000)
    )
    counted = (
        timed.key_by(lambda view: view[0])
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
        .side_output_late_data(TOO_LATE)
        .process(Count())
        .uid("per minute")
    )
    late = counted.get_side_output(TOO_LATE).map(lambda view: ("late", view[1] // 60, 1))
    return counted.union(late)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).print()
    env.execute("views per minute")
