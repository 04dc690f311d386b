"""A job with queryable state of event-time windows, sessions, timers and TTL, and its state in plain Python."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from query_jobs import environment

from penstock.checkpoint.lineages import Lineages
from penstock.common.time import Time
from penstock.common.typeinfo import Types
from penstock.datastream.functions import KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.window import (
    EventTimeSessionWindows,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
)
from penstock.driver.epoch_settings import Settings
from penstock.runtime.windows.window import TimeWindow
from penstock.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.local_storage import LocalStorage
from penstock.state.ttl_config import StateTtlConfig
from penstock.testing import JobHarness

SIZE, GAP, DELAY = 40, 15, 60
"""All in milliseconds of event time: of the tumbling windows, the sessions, and the timers."""
TTL_MS = 5_000
EVERY = 2
"""The tumbling windows fire after every second record."""


def add(left: int, right: int) -> int:
    return left + right


def queryable(descriptor: Any, name: str) -> Any:
    descriptor.set_queryable(name)
    return descriptor


class Counting(Trigger[Any, TimeWindow]):
    """Counts the records of a window, and keeps their numbers, in states that merge."""

    def __init__(self, prefix: str, every: int = 0) -> None:
        self.every = every
        self.count = queryable(ReducingStateDescriptor("count", add, Types.LONG()), f"{prefix} count")
        self.numbers = queryable(ListStateDescriptor("numbers", Types.LONG()), f"{prefix} numbers")

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> Any:
        count = ctx.get_partitioned_state(self.count)
        count.add(1)
        ctx.get_partitioned_state(self.numbers).add(element[1])
        ctx.register_event_time_timer(window.max_timestamp())
        fires = self.every and count.get() % self.every == 0
        return TriggerResult.FIRE if fires else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> Any:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> Any:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.count)
        ctx.merge_partitioned_state(self.numbers)
        ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self.count).clear()
        ctx.get_partitioned_state(self.numbers).clear()
        ctx.delete_event_time_timer(window.max_timestamp())


class PerWindow(ProcessWindowFunction):
    """Keeps a map per window, from its early firings on, and the number of finished windows of a key."""

    def open(self, runtime_context: Any) -> None:
        self.sizes = queryable(MapStateDescriptor("sizes", Types.STRING(), Types.LONG()), "window sizes")

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        size = len(list(elements))
        context.window_state().get_map_state(self.sizes).put(f"n{size}", size)
        return []

    def clear(self, context: Any) -> None:
        context.window_state().get_map_state(self.sizes).clear()


class PerSession(ProcessWindowFunction):
    """Keeps the sizes of the finished sessions of a key."""

    def open(self, runtime_context: Any) -> None:
        self.sizes = queryable(ListStateDescriptor("sizes", Types.LONG()), "finished sessions")

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        context.global_state().get_list_state(self.sizes).add(len(list(elements)))
        return []


class Waiting(KeyedProcessFunction):
    """Keeps each number until a timer removes it, and the last number for some time."""

    def open(self, runtime_context: Any) -> None:
        waiting = MapStateDescriptor("waiting", Types.LONG(), Types.LONG())
        fired = ValueStateDescriptor("fired", Types.LONG())
        fading = ValueStateDescriptor("fading", Types.LONG())
        fading.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(TTL_MS)).build())
        self.waiting = runtime_context.get_map_state(queryable(waiting, "waiting"))
        self.fired = runtime_context.get_state(queryable(fired, "fired"))
        self.fading = runtime_context.get_state(queryable(fading, "fading"))

    def process_element(self, record: Any, ctx: Any) -> Any:
        _, number, time = record
        self.waiting.put(time + DELAY, number)
        self.fading.update(number)
        ctx.timer_service().register_event_time_timer(time + DELAY)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        self.waiting.remove(timestamp)
        self.fired.update((self.fired.value() or 0) + 1)


WINDOWED = ("window count", "window numbers", "window sizes", "session count", "session numbers")
PER_KEY = ("finished sessions", "waiting", "fired", "fading")


def windowed_job(storage: Any, key_type: Any = None, parallelism: int = 2) -> JobHarness:
    """Return a harness of the job, over records (key, number, time)."""
    env = environment()
    keyed = env.from_collection([]).key_by(lambda record: record[0], key_type)
    tumbling = keyed.window(TumblingEventTimeWindows.of(SIZE)).trigger(Counting("window", EVERY)).process(PerWindow())
    sessions = keyed.window(EventTimeSessionWindows.with_gap(GAP)).trigger(Counting("session")).process(PerSession())
    waiting = keyed.process(Waiting()).uid("waiting")
    stream = tumbling.uid("tumbling").union(sessions.uid("sessions"), waiting)
    settings = Settings(base_bytes=1, asynchronous=False)
    return JobHarness(
        stream, backend="filesystem", parallelism=parallelism, max_parallelism=32, storage=storage, settings=settings
    )


class WindowedJob:
    """The job with its directory, as state servers find it."""

    def __init__(self, root: Any, key_type: Any = None) -> None:
        self.root = LocalStorage(root)
        lineages = Lineages(self.root)
        self.harness = windowed_job(lineages.storage_of(lineages.current()), key_type)
        self.harness.set_clock(0)


class Expected:
    """What the states of the job hold, by name, key and window."""

    def __init__(self) -> None:
        self.watermark = -1
        self.clock = 0
        self.windows: dict[Any, list[int]] = {}
        self.sessions: dict[Any, list[tuple[int, int, list[int]]]] = defaultdict(list)
        self.finished: dict[Any, list[int]] = defaultdict(list)
        self.waiting: dict[Any, dict[int, int]] = defaultdict(dict)
        self.fired: dict[Any, int] = defaultdict(int)
        self.fading: dict[Any, tuple[int, int | None]] = {}

    def record(self, key: Any, number: int, time: int) -> None:
        start = time - time % SIZE
        self.windows.setdefault((key, start, start + SIZE), []).append(number)
        merged, apart = (time, time + GAP, [number]), []
        for each in self.sessions[key]:
            if each[0] <= merged[1] and merged[0] <= each[1]:
                merged = min(each[0], merged[0]), max(each[1], merged[1]), each[2] + merged[2]
            else:
                apart.append(each)
        self.sessions[key] = [*apart, merged]
        self.waiting[key][time + DELAY] = number
        self.fading[key] = number, None

    def advance(self, clock: int) -> None:
        """End an epoch at a processing time: the watermark is that of its records."""
        watermark, self.clock = self.watermark, clock
        self.fading = {
            key: (number, clock if written is None else written) for key, (number, written) in self.fading.items()
        }
        self.windows = {window: numbers for window, numbers in self.windows.items() if window[2] - 1 > watermark}
        for key, sessions in self.sessions.items():
            self.finished[key] += [len(each[2]) for each in sorted(sessions) if each[1] - 1 <= watermark]
            self.sessions[key] = [each for each in sessions if each[1] - 1 > watermark]
        for key, waiting in self.waiting.items():
            due = [time for time in waiting if time <= watermark]
            self.fired[key] += len(due)
            for time in due:
                del waiting[time]

    def states(self) -> dict[str, dict[Any, Any]]:
        """Return each state by its queryable name: by (key, window) or by key. The numbers of a window are sorted."""
        open_sessions = {
            (key, (start, end)): numbers for key, each in self.sessions.items() for start, end, numbers in each
        }
        open_windows = {(key, (start, end)): numbers for (key, start, end), numbers in self.windows.items()}
        sizes = {
            place: {f"n{size}": size for size in range(EVERY, len(numbers) + 1, EVERY)}
            for place, numbers in open_windows.items()
        }
        return {
            "window count": {place: len(numbers) for place, numbers in open_windows.items()},
            "window numbers": {place: sorted(numbers) for place, numbers in open_windows.items()},
            "window sizes": {place: each for place, each in sizes.items() if each},
            "session count": {place: len(numbers) for place, numbers in open_sessions.items()},
            "session numbers": {place: sorted(numbers) for place, numbers in open_sessions.items()},
            "finished sessions": {key: sorted(each) for key, each in self.finished.items() if each},
            "waiting": {key: dict(each) for key, each in self.waiting.items() if each},
            "fired": {key: each for key, each in self.fired.items() if each},
            "fading": {key: each for key, (each, written) in self.fading.items() if self.clock < written + TTL_MS},
        }
