"""Each checkpoint setting, changed alone, changes the driver's behaviour."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from penstock.datastream import RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors import Sink, SinkWriter
from penstock.driver.coordinator import CheckpointStatus
from penstock.driver.epoch_errors import EngineLost, EpochFailed, TookTooLong
from penstock.driver.epoch_parameters import EpochParameters
from penstock.driver.epoch_settings import Settings
from penstock.testing import JobHarness


def job(**settings: Any) -> JobHarness:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).uid("numbers").key_by(lambda n: n).map(lambda n: n).uid("map")
    return JobHarness(stream, settings=Settings(**settings)).set_clock(1_000_000)


def fail(harness: JobHarness, times: int, error: Callable[[], Exception]) -> list[int]:
    """Make the engine fail `times` times, and return the list that collects its attempts."""
    execute, attempts = harness._engine.execute, list[int]()

    def failing(parameters: EpochParameters) -> Iterable[tuple[int, bytes]]:
        attempts.append(parameters.number)
        if len(attempts) <= times:
            raise error()
        return execute(parameters)

    harness._engine.execute = failing  # type: ignore[method-assign,assignment]
    return attempts


def lost() -> Exception:
    return EngineLost("executor 2 is gone")


def too_long() -> Exception:
    return TookTooLong("cancelled")


def barriers(harness: JobHarness) -> list[int]:
    return [checkpoint.triggered_at - 1_000_000 for checkpoint in harness._driver.coordinator.recent]


class TestMinPause:
    def test_min_pause_delays_the_next_barrier_after_the_last_checkpoint(self) -> None:
        with job(min_pause_ms=500) as harness:
            harness.push(1).epoch()
            harness.push(2).epoch()
            harness.set_clock(1_000_900)
            harness.push(3).epoch()
            harness.set_clock(1_005_000)
            harness.push(4).epoch()
            assert barriers(harness) == [0, 500, 1000, 5000]

    def test_the_default_min_pause_is_zero(self) -> None:
        with job() as harness:
            harness.push(1).epoch()
            harness.push(2).epoch()
            assert barriers(harness) == [0, 0]

    def test_min_pause_does_not_delay_another_attempt_at_the_same_epoch(self) -> None:
        with job(min_pause_ms=500) as harness:
            fail(harness, 1, lost)
            harness.push(1).epoch()
            assert barriers(harness) == [0, 0]


class TestTimeout:
    @pytest.mark.parametrize(("timeout_ms", "status"), [(5000, "EXPIRED"), (6000, "COMPLETED")])
    def test_the_timeout_ends_a_checkpoint_that_takes_longer(self, timeout_ms: int, status: str) -> None:
        with job(timeout_ms=timeout_ms) as harness:
            execute = harness._engine.execute

            def slow(parameters: EpochParameters) -> Iterable[tuple[int, bytes]]:
                harness.clock.wait(5.5)
                return execute(parameters)

            harness._engine.execute = slow  # type: ignore[method-assign,assignment]
            if status == "EXPIRED":
                with pytest.raises(EpochFailed, match="it took 5500 ms, more than the checkpoint timeout of 5000 ms"):
                    harness.push(1).epoch()
            else:
                harness.push(1).epoch()
            assert [each.status.name for each in harness._driver.coordinator.recent] == [status]

    def test_a_timeout_does_not_count_as_a_failure_of_the_engine(self) -> None:
        with job(tolerable_failures=1) as harness:
            fail(harness, 1, too_long)
            harness.push(1).epoch()
            history = harness._driver.coordinator.recent
            assert [each.status for each in history] == [CheckpointStatus.EXPIRED, CheckpointStatus.COMPLETED]
            assert harness.output == [1]


class TestTolerableFailures:
    @pytest.mark.parametrize(("tolerable", "attempts"), [(0, 1), (1, 2), (5, 6)])
    def test_an_expired_epoch_is_retried_up_to_the_tolerable_failures(self, tolerable: int, attempts: int) -> None:
        with job(tolerable_failures=tolerable) as harness:
            made = fail(harness, 100, too_long)
            harness.push(1)
            with pytest.raises(EpochFailed, match="Epoch 1 was expired"):
                harness.epoch()
            assert len(made) == attempts

    @pytest.mark.parametrize(("tolerable", "attempts"), [(0, 4), (1, 4), (5, 6)])
    def test_an_epoch_lost_by_the_engine_is_retried_at_least_three_times(self, tolerable: int, attempts: int) -> None:
        with job(tolerable_failures=tolerable) as harness:
            made = fail(harness, 100, lost)
            harness.push(1)
            with pytest.raises(EpochFailed, match="Epoch 1 was declined: executor 2 is gone"):
                harness.epoch()
            assert len(made) == attempts


class Board(Sink):
    """Shows every payload it commits, except a repeated commit of an epoch that it has already committed."""

    def __init__(self, commit_before_checkpoint: bool) -> None:
        self.commit_before_checkpoint = commit_before_checkpoint
        self.shown: list[int] = []
        self.epochs: set[int] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {"commit_before_checkpoint": self.commit_before_checkpoint}

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return Numbers()

    def commit(self, commits: list[Any], context: Any) -> None:
        for commit in commits:
            if not (commit.again and commit.epoch in self.epochs):
                self.shown += commit.payload
            self.epochs.add(commit.epoch)


class Numbers(SinkWriter):
    def begin_epoch(self, epoch: Any) -> None:
        self.numbers = b""

    def write(self, value: Any) -> None:
        self.numbers += bytes([value])

    def prepare_commit(self) -> bytes | None:
        return self.numbers or None


def board(at_least_once: bool, commit_before_checkpoint: bool = True) -> tuple[JobHarness, Board]:
    env = StreamExecutionEnvironment.get_execution_environment()
    sink = Board(commit_before_checkpoint)
    sums = env.from_collection([]).uid("numbers").key_by(lambda n: 0).reduce(lambda a, b: a + b).uid("sum")
    sums.sink_to(sink).uid("board")
    return JobHarness(env, settings=Settings(at_least_once=at_least_once)), sink


class TestMode:
    def test_mode_at_least_once_commits_before_the_checkpoint_completes_and_can_repeat_output(self) -> None:
        harness, sink = board(at_least_once=True)
        with harness:
            harness.push(1).epoch()
            harness.push(2, 3).crash_at("driver.collected")
            assert harness.epoch() is None
            assert (harness.checkpoint, sink.shown) == (1, [1, 3, 6])
            harness.epoch()
            # The output appears twice, but the state counts each record once.
            assert (harness.checkpoint, sink.shown) == (2, [1, 3, 6, 3, 6])
            harness.push(4).epoch()
            assert sink.shown[-1] == 10

    def test_output_committed_before_the_checkpoint_is_not_repeated_by_a_new_driver(self) -> None:
        harness, sink = board(at_least_once=True)
        with harness:
            harness.push(1).epoch()
            harness.crash()
            assert sink.shown == [1]

    def test_mode_exactly_once_commits_output_with_the_checkpoint(self) -> None:
        harness, sink = board(at_least_once=False)
        with harness:
            harness.push(1).epoch()
            harness.push(2, 3).crash_at("driver.collected")
            harness.epoch()
            assert sink.shown == [1]
            harness.epoch()
            assert sink.shown == [1, 3, 6]

    def test_a_sink_that_cannot_repeat_commits_waits_for_the_checkpoint_in_both_modes(self) -> None:
        harness, sink = board(at_least_once=True, commit_before_checkpoint=False)
        with harness:
            harness.push(1, 2).crash_at("driver.collected")
            harness.epoch()
            assert sink.shown == []
            harness.epoch()
            assert sink.shown == [1, 3]

    def test_output_collected_by_the_driver_appears_before_the_checkpoint_too(self) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        stream = env.from_collection([]).uid("numbers").map(lambda n: n).uid("map")
        with JobHarness(stream, settings=Settings(at_least_once=True)) as harness:
            harness.push(1).crash_at("driver.collected")
            harness.epoch()
            assert (harness.checkpoint, harness.output) == (0, [1])
