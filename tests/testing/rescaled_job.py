"""A job with state, timers and windows whose results are those of plain Python at any parallelism."""

from collections import Counter, defaultdict
from typing import Any

from penstock.common import Time, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.state.storage import Storage
from penstock.testing import JobHarness

GROUPS = 128
KEYS = 42


class Sums(KeyedProcessFunction):
    """Emits the running sum of a key, all its values with their counts, and the sum when the key's timer fires."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all", int))
        self.times = runtime_context.get_map_state(MapStateDescriptor("times", int, int))
        context = runtime_context
        self.subtask, self.subtasks = context.get_index_of_this_subtask(), context.get_number_of_parallel_subtasks()

    def process_element(self, value: tuple[int, int, int], ctx: Any) -> Any:
        key, amount, time = value
        total = (self.total.value() or 0) + amount
        self.total.update(total)
        self.all.add(amount)
        self.times.put(amount, (self.times.get(amount) or 0) + 1)
        ctx.timer_service().register_event_time_timer(time - time % 100 + 99)
        yield "sum", key, total

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", ctx.get_current_key(), timestamp


def job(
    storage: Storage | None = None, parallelism: int = 2, max_parallelism: int = GROUPS, **options: Any
) -> JobHarness:
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[2])
    records = env.from_collection([]).uid("records").assign_timestamps_and_watermarks(strategy)
    keyed = records.key_by(lambda value: value[0])
    sums = keyed.process(Sums()).uid("sums")
    windows = (
        keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
        .reduce(lambda one, two: (one[0], one[1] + two[1], max(one[2], two[2])))
        .uid("windows")
        .map(lambda value: ("window", value[0], value[1], value[2] // 100))
        .uid("named")
    )
    return JobHarness(
        sums.union(windows), parallelism=parallelism, max_parallelism=max_parallelism, storage=storage, **options
    )


def oracle(values: list[tuple[int, int, int]]) -> Counter[Any]:
    """Return the results of the job after its input has ended. Timestamps ascend."""
    given: Counter[Any] = Counter()
    totals: dict[int, int] = defaultdict(int)
    windows: dict[tuple[int, int], int] = defaultdict(int)
    for key, amount, time in values:
        totals[key] += amount
        windows[key, time // 100] += amount
        given["sum", key, totals[key]] += 1
    for (key, window), total in windows.items():
        given["timer", key, window * 100 + 99] += 1
        given["window", key, total, window] += 1
    return given
