"""Raise an alert when a machine has been silent for a minute, by the timestamps of its reports."""

from collections.abc import Iterator

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

MINUTE = 60_000

# (machine, seconds since the start)
SAMPLE = [("press", 0), ("lathe", 10), ("press", 50), ("lathe", 65), ("press", 180), ("lathe", 120), ("press", 230)]


class Silence(KeyedProcessFunction):
    """Sets one timer a minute after the last report. Each report moves it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.due = runtime_context.get_state(ValueStateDescriptor("due", Types.LONG()))

    def process_element(self, report: tuple[str, int], ctx: KeyedProcessFunction.Context) -> None:
        timers = ctx.timer_service()
        reported, known = ctx.timestamp() or 0, self.due.value()
        if known is not None and reported <= known:
            timers.delete_event_time_timer(known)
        # After a longer silence the timer stays and fires as soon as event time reaches it.
        due = max(known or 0, reported + MINUTE)
        timers.register_event_time_timer(due)
        self.due.update(due)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[str, int]]:
        if timestamp == self.due.value():
            self.due.clear()
        yield ctx.get_current_key(), timestamp // 1000


def build(reports: DataStream) -> DataStream:
    """Return a stream of (machine, second at which it had been silent for a minute)."""
    times = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(1))
    timed = reports.assign_timestamps_and_watermarks(
        times.with_timestamp_assigner(lambda report, timestamp: report[1] * 1000)
    )
    return timed.key_by(lambda report: report[0]).process(Silence()).uid("silence")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).print()
    env.execute("silent machines")
