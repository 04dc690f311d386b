"""Group a click stream into sessions: clicks of a user with less than half an hour between them."""

from collections.abc import Iterable, Iterator

from penstock.common import Duration, Time, WatermarkStrategy
from penstock.datastream import DataStream, ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.window import EventTimeSessionWindows

# (user, minute, page)
SAMPLE = [
    ("ann", 0, "/"),
    ("bob", 5, "/buy"),
    ("ann", 20, "/buy"),
    ("ann", 12, "/search"),
    ("bob", 50, "/"),
    ("ann", 90, "/"),
    ("bob", 62, "/help"),
]


class Session(ProcessWindowFunction):
    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[tuple[str, int, str]]
    ) -> Iterator[tuple[str, int, list[str]]]:
        clicks = sorted(elements, key=lambda click: click[1])
        yield key, clicks[0][1], [page for _, _, page in clicks]


def build(clicks: DataStream) -> DataStream:
    """Return a stream of (user, minute of the first click, pages in order)."""
    times = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(30))
    timed = clicks.assign_timestamps_and_watermarks(
        times.with_timestamp_assigner(lambda click, timestamp: click[1] * 60_000)
    )
    windows = timed.key_by(lambda click: click[0]).window(EventTimeSessionWindows.with_gap(Time.minutes(30)))
    return windows.process(Session()).uid("sessions")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).print()
    env.execute("sessions")
