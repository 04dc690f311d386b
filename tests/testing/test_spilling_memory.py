"""The peak memory of one epoch over a large backlog, in a separate process."""

import subprocess
import sys

import pytest

# The source's rows go straight to the next task, because the harness would keep all of them.
PROGRAM = """
import sys
from penstock.driver.epoch_settings import Settings
from penstock.common import Duration, Types, WatermarkStrategy
from penstock.datastream import AggregateFunction, KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.runtime.chain import ChainRun
from penstock.runtime.rows import BARRIER, DATA
from penstock.runtime.task import Task
from penstock.testing import JobHarness

kind, limit, keys = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

class Wide(KeyedProcessFunction):
    def open(self, context):
        self.value = context.get_state(ValueStateDescriptor("value", str))

    def process_element(self, value, ctx):
        self.value.update((self.value.value() or "") + f"{value:01000d}")

class Listed(KeyedProcessFunction):
    def open(self, context):
        self.list = context.get_list_state(ListStateDescriptor("list", str))

    def process_element(self, value, ctx):
        self.list.add(f"{value:01000d}")

class Set(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value * 1000)

    def on_timer(self, timestamp, ctx):
        return ()

class Joined(AggregateFunction):
    def create_accumulator(self):
        return ""

    def add(self, value, accumulator):
        return accumulator + f"{value:01000d}"

    def get_result(self, accumulator):
        return len(accumulator)

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b

env = StreamExecutionEnvironment.get_execution_environment()
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
stream = env.from_collection([])
keyed = stream.key_by(lambda value: value)
timed = stream.assign_timestamps_and_watermarks(strategy).key_by(lambda value: value)
stream = {
    "values": lambda: keyed.process(Wide()),
    "lists": lambda: keyed.process(Listed()),
    "timers": lambda: timed.process(Set()),
    "windows": lambda: timed.window(TumblingEventTimeWindows.of(10**9)).aggregate(
        Joined(), accumulator_type=Types.STRING()
    ),
}[kind]()
job = JobHarness(stream, settings=Settings(backend="filesystem", overlay_bytes=limit), backend="filesystem")
engine = job._engine

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))

def execute(parameters):
    graph = engine._graph
    (source,) = graph.sources()
    chain, subtask = graph.at_target(1, 0)
    batches = (list(range(start, start + 1000)) for start in range(0, keys, 1000))
    sent = Task(ChainRun(graph, source, None), 0).over_records(engine._epoch(parameters, "source"), batches)
    task = Task(ChainRun(graph, chain, subtask), 0)
    rows = list(task.over_rows(engine._epoch(parameters, "level1"), sent))
    return [(row.kind, row.payload) for row in rows if row.kind not in (DATA, BARRIER)]

job._driver.execute = execute
before = peak()
statistics = job._driver.run_epoch(None, {})
print(statistics.records, statistics.delta_entries, peak() - before)
job.close()
"""
LIMIT = 8 * 1024 * 1024


def measured(kind, limit, keys):
    """Return the records, the entries of the delta, and the peak memory growth of the process in MiB."""
    command = [sys.executable, "-c", PROGRAM, kind, str(limit), str(keys)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return tuple(map(int, done.stdout.split()))


@pytest.mark.parametrize(
    ("kind", "keys", "without"),
    [("values", 60_000, 150), ("windows", 60_000, 120), ("timers", 200_000, 50)],
)
def test_an_epoch_with_more_state_than_memory_stays_within_bounds(kind, keys, without):
    everything = measured(kind, 2**40, keys)
    spilled = measured(kind, LIMIT, keys)
    assert spilled[:2] == everything[:2]
    # Without spilling it takes this much; otherwise the test would prove nothing.
    assert everything[2] > without
    # Twice the limit, plus SQLite's cache and the input.
    assert spilled[2] < 75
