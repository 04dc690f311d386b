"""Time to live in complete jobs: by the epoch's clock or by watermarks, across crashes, restarts and rescales."""

import pytest

from penstock.checkpoint import housekeeping
from penstock.common import Duration, Time, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.state.entries import stored_keys
from penstock.state.keys import decode_key
from penstock.state.ttl import timed_name
from penstock.testing import JobHarness
from penstock.testing.snapshots import read_values

BACKENDS = ["memory", "filesystem", "rocksdb"]
TTL = 100


def ttl(milliseconds=TTL):
    return StateTtlConfig.new_builder(Time.milliseconds(milliseconds)).disable_cleanup_in_background()


class Commands(KeyedProcessFunction):
    """A record is (key, command, argument...). Emits the values that it reads."""

    def __init__(self, config):
        self.config = config

    def open(self, runtime_context):
        descriptors = [
            ValueStateDescriptor("value", int),
            ListStateDescriptor("list", int),
            MapStateDescriptor("map", str, int),
            ReducingStateDescriptor("reducing", lambda a, b: a + b, int),
        ]
        for descriptor in descriptors:
            if self.config is not None:
                descriptor.enable_time_to_live(self.config)
        self.value = runtime_context.get_state(descriptors[0])
        self.list = runtime_context.get_list_state(descriptors[1])
        self.map = runtime_context.get_map_state(descriptors[2])
        self.reducing = runtime_context.get_reducing_state(descriptors[3])

    def process_element(self, record, ctx):
        key, command, *arguments = record
        if command == "write":
            number = arguments[0]
            self.value.update(number)
            self.list.add(number)
            self.map.put(f"m{number}", number)
            self.reducing.add(number)
        elif command == "read":
            yield key, *self.held()
        elif command == "timer":
            ctx.timer_service().register_event_time_timer(arguments[0])

    def on_timer(self, timestamp, ctx):
        yield "timer", timestamp, *self.held()

    def held(self):
        return self.value.value(), list(self.list), dict(self.map.items()), self.reducing.get()


EMPTY = None, [], {}, None


class Jobs:
    """A program and its restarts on the same storage."""

    def __init__(self, backend):
        self.backend = backend
        self.job = None

    def start(self, config, key_groups=16, **options):
        storage = None if self.job is None else self.job.storage
        before = self.job
        env = StreamExecutionEnvironment.get_execution_environment()
        stream = env.from_collection([]).key_by(lambda record: record[0]).process(Commands(config)).uid("commands")
        self.job = JobHarness(stream.set_max_parallelism(key_groups), backend=self.backend, storage=storage, **options)
        if before is not None:
            before._engine.close()
        return self.job

    def at(self, clock, *records):
        """Run one epoch at this time and return its results."""
        before = len(self.job.output)
        self.job.set_clock(clock)
        self.job.push(*records)
        self.job.epoch()
        return self.job.output[before:]

    def stored(self, name):
        """Return the keys in storage, including expired ones."""
        with self.job.committed().reading(name, None) as (overlay, replicas):
            readers = ((group, replicas.reader(group)) for group in range(overlay.max_parallelism))
            return {
                decode_key(key)
                for group, reader in readers
                if reader is not None
                for state in (name, timed_name(name))
                for key in stored_keys(reader, group, state)
            }

    def close(self):
        if self.job is not None:
            self.job.close()


@pytest.fixture(params=BACKENDS)
def jobs(request):
    jobs = Jobs(request.param)
    yield jobs
    jobs.close()


def crash_without_replicas(jobs, config):
    jobs.job.lose_replicas()
    jobs.job.crash()


RESTORES = {
    "none": lambda jobs, config: None,
    "empty epoch": lambda jobs, config: jobs.job.epoch(),
    "crash": lambda jobs, config: jobs.job.crash(),
    "crash without replicas": crash_without_replicas,
    "another process": lambda jobs, config: jobs.start(config),
    "rescaled": lambda jobs, config: jobs.start(config, parallelism=1 + jobs.job.checkpoint % 3),
}


@pytest.mark.parametrize("restore", RESTORES.values(), ids=RESTORES)
class TestBetweenAnyTwoSteps:
    def test_values_expire_after_their_ttl(self, jobs, restore):
        config = ttl().build()
        jobs.start(config)
        emitted = []
        for clock, record in [
            (0, ("k", "write", 1)),
            (50, ("k", "write", 2)),
            (120, ("k", "read")),
            (150, ("k", "read")),
            (170, ("k", "write", 3)),
            (270, ("other", "read")),
            (270, ("k", "read")),
        ]:
            emitted += jobs.at(clock, record)
            restore(jobs, config)
        assert emitted == [
            ("k", 2, [2], {"m2": 2}, 3),
            ("k", *EMPTY),
            ("other", *EMPTY),
            ("k", *EMPTY),
        ]
        assert jobs.stored("value") == set()
        assert jobs.job.states("value") == {}

    def test_reads_extend_the_ttl_if_configured(self, jobs, restore):
        config = ttl().update_ttl_on_read_and_write().build()
        jobs.start(config)
        emitted = jobs.at(0, ("k", "write", 1))
        for clock in (50, 120, 250):
            restore(jobs, config)
            emitted += jobs.at(clock, ("k", "read"))
        assert emitted == [("k", 1, [1], {"m1": 1}, 1)] * 2 + [("k", *EMPTY)]

    def test_ttl_timers_wake_the_job_and_stay_hidden_from_functions(self, jobs, restore):
        config = ttl().cleanup_by_timers().build()
        jobs.start(config)
        jobs.at(0, ("a", "write", 1), ("b", "write", 1))
        restore(jobs, config)
        jobs.at(60, ("b", "write", 2))
        restore(jobs, config)
        assert jobs.job.next_wakeup == 100
        assert jobs.job.timers() == []
        jobs.job.set_clock(100)
        assert jobs.stored("value") == {"b"}
        restore(jobs, config)
        assert jobs.job.next_wakeup == 160
        jobs.job.set_clock(160)
        assert [jobs.stored(name) for name in ("value", "list", "map", "reducing")] == [set()] * 4
        assert jobs.job.next_wakeup is None
        assert jobs.job.output == []

    def test_ttl_can_be_enabled_and_disabled_between_restarts(self, jobs, restore):
        jobs.start(None)
        jobs.at(0, ("k", "write", 1))
        jobs.start(ttl().build())
        restored = ttl().build()
        emitted = jobs.at(1000, ("k", "read"))
        restore(jobs, restored)
        emitted += jobs.at(1050, ("k", "write", 2))
        restore(jobs, restored)
        emitted += jobs.at(1120, ("k", "read"))
        jobs.start(None)
        emitted += jobs.at(5000, ("k", "read"))
        restore(jobs, None)
        jobs.at(5000, ("k", "write", 3))
        restore(jobs, None)
        emitted += jobs.at(9000, ("k", "read"))
        assert emitted == [
            ("k", 1, [1], {"m1": 1}, 1),
            ("k", 2, [2], {"m2": 2}, 3),
            ("k", 2, [2], {"m2": 2}, 3),
            ("k", 3, [2, 3], {"m2": 2, "m3": 3}, 6),
        ]


def test_the_final_epoch_uses_the_time_of_the_last_record(jobs):
    """However late the final epoch runs, a timer that fires in it sees the same state as in Flink."""
    job = jobs.start(ttl().build())
    jobs.at(0, ("k", "write", 1), ("k", "timer", 10**6))
    job.set_clock(10**9)
    assert job.end().output == [("timer", 10**6, 1, [1], {"m1": 1}, 1)]


def test_inspected_state_hides_values_expired_by_now(jobs):
    job = jobs.start(ttl().build())
    jobs.at(0, ("k", "write", 1))
    assert (job.state("value", "k"), job.states("list")) == (1, {"k": [1]})
    job.set_clock(100)
    assert (job.state("value", "k"), job.states("list")) == (None, {})
    assert jobs.stored("value") == {"k"}
    assert read_values(job.storage, "commands", "value", int) == {"k": 1}


def test_the_driver_omits_expired_values_from_bases(monkeypatch):
    monkeypatch.setattr(housekeeping, "LONGEST_WALK", 0)
    jobs = Jobs("memory")
    # All keys are in one block, because a base is built only from changed blocks.
    jobs.start(ttl().cleanup_full_snapshot().build(), key_groups=1)
    jobs.at(50, ("id1", "write", 1))
    jobs.at(170, ("id2", "write", 2))
    jobs.at(230, ("id3", "write", 3))
    jobs.at(231)
    # A longer TTL works like setting the clock back: only values already removed from storage stay expired.
    jobs.start(ttl(10_000).build(), key_groups=1)
    assert jobs.at(231, ("id1", "read"), ("id2", "read")) == [
        ("id1", *EMPTY),
        ("id2", 2, [2], {"m2": 2}, 2),
    ]
    jobs.close()


def test_background_cleanup_visits_all_subtasks(jobs):
    jobs.start(StateTtlConfig.new_builder(Time.milliseconds(TTL)).build(), parallelism=3)
    jobs.at(0, *[(f"old {n}", "write", n) for n in range(40)])
    assert len(jobs.stored("value")) == 40
    for clock in range(200, 210):
        jobs.at(clock, *[(f"new {n}", "read") for n in range(6)])
        jobs.job.crash()
    assert [jobs.stored(name) for name in ("value", "list", "map", "reducing")] == [set()] * 4


class ByFirst(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class OfEvents(Commands):
    """Like its base class, for records of (key, time, command, argument...)."""

    def process_element(self, record, ctx):
        yield from super().process_element((record[0], *record[2:]), ctx)


@pytest.mark.parametrize("per_epoch", [None, 1, 2])
@pytest.mark.parametrize("backend", BACKENDS)
class TestEventTime:
    def run(self, backend, per_epoch, config, *records):
        env = StreamExecutionEnvironment.get_execution_environment()
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0))
        stream = env.from_collection(list(records)).assign_timestamps_and_watermarks(
            strategy.with_timestamp_assigner(ByFirst())
        )
        with JobHarness(stream.key_by(lambda record: record[0]).process(OfEvents(config)), backend=backend) as job:
            # By the clock, everything would expire between two epochs.
            clock = 0
            while per_epoch is not None and job._feed.anything_waits(per_epoch):
                clock += 10**6
                job.set_clock(clock)
                job.epoch(per_epoch)
                job.crash()
            return job.end().output

    def test_values_expire_by_the_watermark(self, backend, per_epoch):
        # The watermark is one millisecond behind the highest timestamp and follows the record that advanced it.
        output = self.run(
            backend,
            per_epoch,
            ttl().use_event_time().build(),
            ("k", 1000, "write", 1),
            ("k", 1050, "read"),
            ("other", 1099, "read"),
            ("k", 1099, "read"),
            ("other", 1100, "read"),
            ("other", 1101, "read"),
            ("k", 1101, "read"),
        )
        assert [held for held in output if held[0] == "k"] == [
            ("k", 1, [1], {"m1": 1}, 1),
            ("k", 1, [1], {"m1": 1}, 1),
            ("k", *EMPTY),
        ]

    def test_a_timer_at_the_end_of_the_input_sees_values_alive_at_its_time(self, backend, per_epoch):
        output = self.run(
            backend,
            per_epoch,
            ttl().use_event_time().cleanup_by_timers().build(),
            ("k", 1000, "write", 1),
            ("k", 1000, "timer", 1099),
            ("k", 1000, "timer", 1100),
        )
        assert output == [("timer", 1099, 1, [1], {"m1": 1}, 1), ("timer", 1100, *EMPTY)]
