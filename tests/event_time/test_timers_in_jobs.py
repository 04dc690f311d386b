"""Timers of both kinds in process functions, driven in the harness."""

import pytest

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.datastream import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.time_domain import TimeDomain
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.testing import JobHarness


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


class Alarm(KeyedProcessFunction):
    """Sets a timer n ms after the time of a record (key, n); a fired timer yields its context."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + value[1])

    def on_timer(self, timestamp, ctx):
        yield (
            ctx.get_current_key(),
            timestamp,
            ctx.timestamp(),
            self.seen.value(),
            ctx.time_domain().name,
            ctx.timer_service().current_watermark(),
        )


def alarm(env, **options):
    return JobHarness(env.from_collection([]).key_by(lambda value: value[0]).process(Alarm()).uid("alarm"), **options)


class TestEventTimeTimers:
    def test_an_event_time_timer_fires_when_the_watermark_reaches_it_with_the_state_of_its_key(self, env):
        with alarm(env) as job:
            job.push(("a", 10), timestamp=0).push(("b", 5), timestamp=3).push_watermark(7).epoch()
            assert job.output == []
            job.push_watermark(9).epoch()
            assert job.output == [("b", 8, 8, 1, "EVENT_TIME", 9)]
            job.push_watermark(10).epoch()
            assert job.output[1:] == [("a", 10, 10, 1, "EVENT_TIME", 10)]

    def test_one_event_time_timer_fires_for_each_key_and_time(self, env):
        with alarm(env) as job:
            job.push(("a", 10), ("a", 10), timestamp=0).push(("a", 5), timestamp=5).push_watermark(100).epoch()
            assert job.output == [("a", 10, 10, 3, "EVENT_TIME", 100)]

    @pytest.mark.parametrize("backend", ["memory", "filesystem", "rocksdb"])
    @pytest.mark.parametrize("parallelism", [1, 3])
    def test_event_time_timers_survive_epochs_crashes_and_lost_replicas_in_order(self, env, backend, parallelism):
        with alarm(env, backend=backend, parallelism=parallelism) as job:
            for number in range(20):
                job.push((f"k{number}", 100 + number), timestamp=0).epoch()
            job.crash()
            job.lose_replicas()
            job.push_watermark(110).epoch()
            assert sorted(row[1] for row in job.output) == list(range(100, 111))
            job.crash_at("driver.collected")
            job.push_watermark(1000)
            job.epoch()
            job.epoch()
            assert sorted(row[1] for row in job.output) == list(range(100, 120))

    def test_event_time_timers_can_be_restored_at_another_parallelism(self, env):
        first = alarm(env, parallelism=2)
        for number in range(20):
            first.push((f"k{number}", number), timestamp=100)
        first.epoch()
        env = StreamExecutionEnvironment.get_execution_environment()
        with alarm(env, parallelism=5, storage=first.storage) as job:
            job.push_watermark(200).epoch()
            assert sorted(row[1] for row in job.output) == list(range(100, 120))

    def test_pending_timers_can_be_inspected(self, env):
        with alarm(env, parallelism=2) as job:
            job.push(("a", 10), ("b", 5), timestamp=0).epoch()
            assert job.timers() == [(5, "b", "EVENT_TIME"), (10, "a", "EVENT_TIME")]

    def test_event_time_timers_fire_at_the_end_of_the_input(self, env):
        with alarm(env) as job:
            job.push(("a", 10), timestamp=0).end()
            assert job.output == [("a", 10, 10, 1, "EVENT_TIME", 2**63 - 1)]


class Chain(KeyedProcessFunction):
    """Sets or deletes the requested timer; a fired timer sets the next one, 10 ms later, until 40."""

    def process_element(self, value, ctx):
        if value < 0:
            ctx.timer_service().delete_event_time_timer(-value)
        else:
            ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp, ctx):
        yield timestamp
        if timestamp < 40:
            ctx.timer_service().register_event_time_timer(timestamp + 10)


def test_a_timer_can_set_the_next_one_and_the_watermark_waits_for_both(env):
    with JobHarness(env.from_collection([]).key_by(lambda value: 1).process(Chain())) as job:
        job.push(10).push_watermark(35).epoch()
        assert job.output == [10, 20, 30]
        job.push_watermark(45).epoch()
        assert job.output == [10, 20, 30, 40]


class Periodic(KeyedProcessFunction):
    """Sets a timer for each record, and another one `step` later for each fired timer, up to `until`."""

    def __init__(self, step, until=2**63 - 1, domain="event"):
        self.step = step
        self.until = until
        self.domain = domain

    def process_element(self, value, ctx):
        self.set(ctx, ctx.timestamp() if self.domain == "event" else ctx.timer_service().current_processing_time())

    def on_timer(self, timestamp, ctx):
        if timestamp < self.until:
            self.set(ctx, timestamp + self.step)
        yield ctx.get_current_key()

    def set(self, ctx, time):
        getattr(ctx.timer_service(), f"register_{self.domain}_time_timer")(time)


class TestChainedTimers:
    def run(self, env, function, keys=1):
        job = JobHarness(env.from_collection([]).key_by(lambda value: value).process(function).uid("periodic"))
        with job:
            job.set_clock(0)
            for key in range(keys):
                job.push(key, timestamp=1)
            job.run()
            return job.output

    def test_chained_timers_all_fire_at_the_end_of_the_input(self, env):
        assert len(self.run(env, Periodic(1, until=86_400))) == 86_400

    @pytest.mark.long
    def test_chained_timers_of_many_keys_fire_at_the_end_of_the_input(self, env):
        assert len(self.run(env, Periodic(1, until=2), keys=300_000)) == 600_000

    @pytest.mark.parametrize("keys", [1, 5_000])
    def test_endless_timers_are_an_error_at_the_end_of_the_input(self, env, keys):
        with pytest.raises(UserFunctionFailed, match=r"uid 'periodic'[\s\S]*at the end of the input") as raised:
            self.run(env, Periodic(1000), keys)
        assert not raised.value.retryable
        assert raised.value.fix == "Set no timer once the current watermark is 2**63 - 1: no record follows then."

    @pytest.mark.parametrize(("domain", "step"), [("event", 0), ("event", -1), ("processing", 0)])
    def test_a_chained_timer_for_the_same_or_an_earlier_time_is_an_error(self, env, domain, step):
        stream = env.from_collection([]).key_by(lambda value: value).process(Periodic(step, domain=f"{domain}"))
        with JobHarness(stream) as job:
            job.set_clock(5).push("a", timestamp=1).push_watermark(10)
            with pytest.raises(UserFunctionFailed, match="not later than the one that fires"):
                job.epoch()


def test_a_deleted_timer_does_not_fire_in_the_same_epoch_or_another(env):
    with JobHarness(env.from_collection([]).key_by(lambda value: 1).process(Chain())) as job:
        job.push(50, 60, 70, -50).epoch()
        job.push(-60).epoch()
        job.push_watermark(1000).epoch()
        assert job.output == [70]
        assert job.timers() == []


class Tick(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_processing_time_timer(value)
        yield "now", ctx.timer_service().current_processing_time()

    def on_timer(self, timestamp, ctx):
        assert ctx.time_domain() is TimeDomain.PROCESSING_TIME
        yield "fired", timestamp, ctx.timer_service().current_processing_time()


class TestProcessingTimeTimers:
    def tick(self, env):
        return JobHarness(env.from_collection([]).key_by(lambda value: value % 3).process(Tick()).uid("tick"))

    def test_a_processing_time_timer_fires_in_the_first_epoch_at_or_after_its_time(self, env):
        with self.tick(env) as job:
            job.set_clock(1000).push(1500).epoch()
            job.set_clock(1400)
            assert job.output == [("now", 1000)]
            job.set_clock(1600)
            assert job.output[1:] == [("fired", 1500, 1600)]

    def test_a_processing_time_timer_starts_a_single_epoch_without_records(self, env):
        with self.tick(env) as job:
            job.set_clock(1000).push(1500, 2500).epoch()
            assert job.next_wakeup == 1500
            run = job.epochs_run
            job.set_clock(1499)
            assert job.epochs_run == run
            job.set_clock(2000)
            job.set_clock(2400)
            assert job.epochs_run == run + 1
            assert job.next_wakeup == 2500
            job.set_clock(3000)
            assert job.epochs_run == run + 2
            assert job.next_wakeup is None

    def test_a_processing_time_timer_set_for_a_past_time_fires_in_the_same_epoch(self, env):
        with self.tick(env) as job:
            job.set_clock(1000).push(900).epoch()
            assert job.output == [("now", 1000), ("fired", 900, 1000)]

    def test_a_processing_time_timer_survives_a_crash(self, env):
        with self.tick(env) as job:
            job.set_clock(1000).push(1500).epoch()
            job.crash()
            job.set_clock(1500)
            assert job.output[1:] == [("fired", 1500, 1500)]

    def test_processing_time_timers_do_not_fire_at_the_end_of_the_input(self, env):
        with self.tick(env) as job:
            job.set_clock(1000).push(1500).end()
            assert job.output == [("now", 1000)]

    def test_the_processing_time_of_epochs_never_moves_backwards(self, env):
        with self.tick(env) as job:
            job.set_clock(1000).push(5000).epoch()
            job.set_clock(500).push(5001).epoch()
            assert job.output == [("now", 1000), ("now", 1000)]


class Both(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_processing_time_timer(value)

    def on_timer(self, timestamp, ctx):
        yield timestamp, ctx.timer_service().current_watermark()


@pytest.mark.parametrize("crash", [False, True])
def test_a_processing_time_timer_sees_the_watermark_of_the_last_checkpoint(env, crash):
    with JobHarness(env.from_collection([]).key_by(lambda value: 0).process(Both())) as job:
        job.set_clock(1000).push(1500, timestamp=70).push_watermark(60).epoch()
        if crash:
            # A new process has none of the operators' in-memory watermarks.
            job.crash()
        job.set_clock(2000)
        assert job.output == [(1500, 60)]


class Join(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])

    def process_element2(self, value, ctx):
        ctx.timer_service().delete_event_time_timer(value[1])

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp


def test_two_inputs_share_the_timers_of_a_key_and_the_slower_watermark(env):
    first, second = env.from_collection([]).uid("first"), env.from_collection([]).uid("second")
    stream = first.connect(second).key_by(lambda v: v[0], lambda v: v[0]).process(Join())
    with JobHarness(stream, parallelism=2) as job:
        job.push(("a", 5), ("b", 5), source="first").push(("a", 5), source="second").epoch()
        job.push_watermark(10, source="first").epoch()
        assert job.output == []
        job.push_watermark(5, source="second").epoch()
        assert job.output == [("b", 5)]


class NoKey(ProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(1)


def test_a_timer_on_a_stream_without_a_key_is_refused(env):
    with (
        JobHarness(env.from_collection([1]).process(NoKey()).name("loose").uid("loose-1")) as job,
        pytest.raises(UserFunctionFailed, match=r"'loose' \(uid 'loose-1'\) sets a timer, but its stream is not keyed"),
    ):
        job.epoch()


def test_a_timer_of_a_function_without_on_timer_is_refused(env):
    stream = env.from_collection([1]).key_by(lambda n: n)
    stream = stream.process(lambda value, ctx: ctx.timer_service().register_event_time_timer(1))
    with JobHarness(stream) as job, pytest.raises(UserFunctionFailed, match=r"on_timer\(self, timestamp, ctx\)"):
        job.epoch()


def test_timestamps_pass_through_operators_and_exchanges(env):
    seen = []

    class Look(ProcessFunction):
        def process_element(self, value, ctx):
            yield value, ctx.timestamp()

    stamped = env.from_collection([(1, 10), (2, 20)]).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5)).with_timestamp_assigner(lambda v, t: v[1])
    )
    looked = stamped.map(lambda v: v[0]).rebalance().map(lambda v: v * 10).set_parallelism(2).process(Look())
    with JobHarness(looked.key_by(lambda pair: pair[0]).map(lambda pair: pair), parallelism=2) as job:
        job.run()
        assert sorted(job.output) == [(10, 10), (20, 20)]
    assert seen == []
