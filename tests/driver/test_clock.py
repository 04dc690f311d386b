"""Jobs keep running when the machine's clock jumps: pauses, timeouts, timers, idle sources and processing time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock.common import Configuration, Duration, Time, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import StateTtlConfig, ValueStateDescriptor
from penstock.datastream.window import TumblingProcessingTimeWindows
from penstock.driver.clock import Jumps, ProcessingClock
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.driver.epoch_parameters import EpochParameters
from penstock.driver.epoch_settings import Settings
from penstock.testing import JobHarness
from penstock.testing.engine import LocalEngine

HOUR = 3_600_000
NOON = 1_700_000_000_000


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


@pytest.fixture
def during_tasks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make a harness's clock jump, or time pass, while the tasks of every epoch run."""

    def arrange(job: JobHarness, jump_ms: int = 0, passed_ms: int = 0) -> None:
        execute = LocalEngine.execute

        def jumping(self: LocalEngine, parameters: EpochParameters) -> list[tuple[int, bytes]]:
            job.clock.wait(passed_ms / 1000)
            job.clock.shown += jump_ms  # type: ignore[operator]
            return execute(self, parameters)

        monkeypatch.setattr(LocalEngine, "execute", jumping)

    return arrange


class Alarm(KeyedProcessFunction):
    """Sets a processing-time timer one second after each record."""

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> None:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 1000)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp - NOON


class TestProcessingClock:
    @pytest.fixture
    def clocks(self) -> dict[str, float]:
        return {"wall": 1000.0, "monotonic": 5.0}

    @pytest.fixture
    def clock(self, clocks: dict[str, float]) -> ProcessingClock:
        return ProcessingClock(lambda: clocks["wall"], lambda: clocks["monotonic"])

    def test_processing_time_is_the_wall_clock(self, clock: ProcessingClock, clocks: dict[str, float]) -> None:
        assert clock.now() == 1_000_000
        clocks["wall"], clocks["monotonic"] = 1002.5, 7.5
        assert clock.now() == 1_002_500

    def test_processing_time_follows_a_forward_jump(self, clock: ProcessingClock, clocks: dict[str, float]) -> None:
        clock.now()
        clocks["wall"] = 5000.0
        assert clock.now() == 5_000_000

    def test_processing_time_runs_at_half_pace_after_a_backward_jump_until_the_wall_clock_catches_up(
        self, clock: ProcessingClock, clocks: dict[str, float]
    ) -> None:
        clock.now()
        clocks["wall"] = 990.0
        shown = []
        for _ in range(6):
            shown.append(clock.now())
            clocks["wall"] += 5
            clocks["monotonic"] += 5
        assert shown == [1_000_000, 1_002_500, 1_005_000, 1_007_500, 1_010_000, 1_015_000]

    def test_processing_time_continues_from_the_last_checkpoint(
        self, clock: ProcessingClock, clocks: dict[str, float]
    ) -> None:
        clock.reach(2_000_000)
        assert clock.now() == 2_000_000
        clocks["monotonic"] += 4
        assert clock.now() == 2_002_000


def test_a_jump_is_the_clock_movement_beyond_elapsed_time() -> None:
    at = [0.0]
    jumps = Jumps(lambda: at[0])
    assert jumps.since_last(10_000) == 0, "a driver's first epoch has nothing to compare with"
    jumps.completed(10_000, at[0])
    at[0] = 2.0
    assert jumps.since_last(12_000) == 0
    assert jumps.since_last(12_900) == 0, "a busy machine is not a jump"
    assert jumps.since_last(15_000) == 3000
    assert jumps.since_last(10_000) == 0


class TestABackwardJump:
    def test_a_backward_jump_does_not_lengthen_the_pause_between_checkpoints(
        self, env: StreamExecutionEnvironment
    ) -> None:
        with JobHarness(env.from_collection([]).map(str), settings=Settings(min_pause_ms=500)) as job:
            job.set_clock(NOON)
            job.push(1).epoch()
            job.jump_clock(NOON - HOUR)
            assert job._driver.pause_left() == 0.5

    def test_a_backward_jump_does_not_make_an_epoch_duration_negative(
        self, env: StreamExecutionEnvironment, during_tasks: Callable[..., None]
    ) -> None:
        with JobHarness(env.from_collection([]).map(str)) as job:
            during_tasks(job, jump_ms=-HOUR, passed_ms=2000)
            statistics = job.set_clock(NOON).push(1).epoch()
            assert statistics is not None
            assert statistics.duration_ms == 2000
            (checkpoint,) = job.checkpoints.recent
            assert (checkpoint.triggered_at, checkpoint.duration_ms) == (NOON, 2000)
            assert all(
                0 <= (subtask.acknowledged_ms or 0) <= 2000
                for operator in checkpoint.operators
                for subtask in operator.subtasks
            )

    def test_a_backward_jump_does_not_delay_timers(self, env: StreamExecutionEnvironment) -> None:
        with JobHarness(env.from_collection([]).key_by(lambda v: v).process(Alarm())) as job:
            job.set_clock(NOON).push("a").epoch()
            job.jump_clock(NOON - HOUR)
            job.push("b").epoch()
            assert job.next_wakeup == NOON + 1000
            job.set_clock(NOON - HOUR + 1999)
            assert job.output == []
            job.set_clock(NOON - HOUR + 2000)
            assert sorted(job.output) == [("a", 1000), ("b", 1000)], "within twice the time, not an hour later"

    def test_a_backward_jump_does_not_delay_timers_of_a_driver_that_starts_later(
        self, env: StreamExecutionEnvironment
    ) -> None:
        with JobHarness(env.from_collection([]).key_by(lambda v: v).process(Alarm())) as job:
            job.set_clock(NOON).push("a").epoch()
            job.clock.shown = NOON - HOUR
            job.crash()
            job.set_clock(NOON - HOUR + 1999)
            assert job.output == []
            job.set_clock(NOON - HOUR + 2000)
            assert job.output == [("a", 1000)]

    def test_processing_time_never_goes_back_across_epochs_crashes_and_savepoints(
        self, env: StreamExecutionEnvironment, tmp_path: Any
    ) -> None:
        def stream(env: StreamExecutionEnvironment) -> Any:
            return env.from_collection([]).uid("s").key_by(lambda v: v % 2).process(Shows()).uid("p")

        with JobHarness(stream(env), parallelism=2) as job:
            job.set_clock(NOON)
            for step, jump in enumerate([0, -HOUR, 5000, HOUR, -2 * HOUR, -1]):
                job.jump_clock(job.clock.shown + jump)  # type: ignore[operator]
                job.set_clock(job.clock.shown + 100)  # type: ignore[operator]
                job.push(1, 2).epoch()
                if step == 2:
                    job.crash()
                if step == 3:
                    job.rescale(3)
            path = job.savepoint(tmp_path)
            shown = job.output
        assert len(shown) == 12
        assert shown == sorted(shown)
        env = StreamExecutionEnvironment.get_execution_environment()
        with JobHarness(stream(env), from_savepoint=path) as later:
            later.set_clock(NOON - HOUR)
            later.push(1).epoch()
            assert later.output[0] >= shown[-1]

    def test_a_backward_jump_does_not_delay_source_idleness(self, env: StreamExecutionEnvironment) -> None:
        with idle_job(env) as job:
            job.set_clock(NOON)
            job.push(("a", 100), source="left").push(("b", 100), source="right").epoch()
            job.jump_clock(NOON - HOUR)
            job.push(("a", 5000), source="left").epoch()
            assert job.watermark() == 99, "the right source holds event time back"
            job.set_clock(NOON - HOUR + 20_000)
            job.push(("a", 6000), source="left").epoch()
            assert job.watermark() == 5999

    def test_a_backward_jump_does_not_revive_expired_state(self, env: StreamExecutionEnvironment) -> None:
        with JobHarness(env.from_collection([]).key_by(lambda v: v).process(Remembers())) as job:
            job.set_clock(NOON).push("a").epoch()
            job.set_clock(NOON + 11_000).push("a").epoch()
            job.jump_clock(NOON).push("a").epoch()
            job.set_clock(NOON + 22_000).push("a").epoch()
            assert job.output == [0, 0, 1, 0]


class TestAForwardJump:
    def test_a_forward_jump_does_not_expire_an_epoch(
        self, env: StreamExecutionEnvironment, during_tasks: Callable[..., None]
    ) -> None:
        with JobHarness(env.from_collection([]).map(str)) as job:
            during_tasks(job, jump_ms=HOUR)
            job.set_clock(NOON).push(1).epoch()
            assert job.output == ["1"]
            assert job.checkpoints.recent[-1].duration_ms == 0

    def test_a_forward_jump_does_not_make_a_source_idle(self, env: StreamExecutionEnvironment) -> None:
        with idle_job(env) as job:
            job.set_clock(NOON)
            job.push(("a", 100), source="left").push(("b", 100), source="right").epoch()
            job.jump_clock(NOON + HOUR)
            job.push(("a", 5000), source="left").epoch()
            assert job.watermark() == 99, "the right source was not silent"
            job.set_clock(NOON + HOUR + 9_999)
            job.push(("a", 6000), source="left").epoch()
            assert job.watermark() == 99
            job.set_clock(NOON + HOUR + 10_000)
            assert job.watermark() == 5999, "the right source is idle ten seconds after its last record"

    def test_a_forward_jump_fires_the_timers_that_became_due(self, env: StreamExecutionEnvironment) -> None:
        with JobHarness(env.from_collection([]).key_by(lambda v: v).process(Alarm())) as job:
            job.set_clock(NOON).push("a").epoch()
            job.jump_clock(NOON + HOUR)
            assert job.output == [("a", 1000)]

    def test_windows_stay_in_order_after_a_forward_and_a_backward_jump(self, env: StreamExecutionEnvironment) -> None:
        windows = env.from_collection([]).key_by(lambda v: 0).window(TumblingProcessingTimeWindows.of(Time.seconds(10)))
        with JobHarness(windows.reduce(lambda a, b: a + b)) as job:
            job.set_clock(NOON).push("a").epoch()
            job.jump_clock(NOON + HOUR).push("b").epoch()
            job.jump_clock(NOON + 1000).push("c").epoch()
            job.set_clock(NOON + 25_000)
            assert job.output == ["a", "bc"]

    def test_a_forward_jump_does_not_reset_the_restart_backoff(self, during_tasks: Callable[..., None]) -> None:
        strategy = {
            "restart-strategy.type": "exponential-delay",
            "restart-strategy.exponential-delay.initial-backoff": "1 s",
            "restart-strategy.exponential-delay.attempts-before-reset-backoff": "2",
            "restart-strategy.exponential-delay.reset-backoff-threshold": "1 h",
        }
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(strategy))
        with JobHarness(env.from_collection([]).map(int)) as job:
            job.set_clock(NOON)
            during_tasks(job, jump_ms=2 * HOUR)
            with pytest.raises(UserFunctionFailed, match="invalid literal"):
                job.push("x").epoch()
            assert job.restarts == 2


class Shows(KeyedProcessFunction):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        yield ctx.timer_service().current_processing_time()


class Remembers(KeyedProcessFunction):
    """Emits how many records of the key came within ten seconds of each other."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("n", int)
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(timedelta(seconds=10)).build())
        self.n = runtime_context.get_state(descriptor)

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        seen = self.n.value() or 0
        yield seen
        self.n.update(seen + 1)


class IdleJob(JobHarness):
    def watermark(self) -> int:
        assert self._driver.last is not None
        return min(self._driver.last.times["union"].subtasks)


def idle_job(env: StreamExecutionEnvironment) -> IdleJob:
    """A job with two sources that become idle after ten seconds."""
    times = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_idleness(Duration.of_seconds(10))
        .with_timestamp_assigner(lambda value, _: value[1])
    )
    left = env.from_collection([]).uid("left").assign_timestamps_and_watermarks(times)
    right = env.from_collection([]).uid("right").assign_timestamps_and_watermarks(times)
    return IdleJob(left.union(right).key_by(lambda value: value[0]).process(_Keep()).uid("union"))


class _Keep(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        pass
