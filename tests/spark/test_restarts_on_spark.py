"""Restart strategies on Spark: the job continues in the same driver and session, from its last checkpoint."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs import Count, expected_counts, words

from penstock.common import JobStatus, RestartStrategies, SimpleStringSchema, WatermarkStrategy
from penstock.datastream.connectors import DiscardingSink, Source
from penstock.datastream.connectors.kafka import KafkaSource
from penstock.driver import epochs
from penstock.driver.clock import DriverClocks
from penstock.driver.coordinator import CheckpointStatus
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.driver.restarts import WITH_CHECKPOINTS
from penstock.errors import PenstockError
from penstock.testing.snapshots import last_manifest, newest_lineage, read_values
from soak.program import Ticks

pytestmark = pytest.mark.spark

WORDS = [*words(45, 3), "poison", *words(15, 7)]
INTERVAL = {"execution__checkpointing__interval": "100 ms"}


class FailsOnPoison(Count):
    """Fails `times` times. Marker files count failures, because every attempt uses a new object."""

    def __init__(self, times: int, directory: Path) -> None:
        self.times, self.directory = times, directory

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value == "poison":
            before = len(list(self.directory.glob("failed-*")))
            if before < self.times:
                (self.directory / f"failed-{before}").touch()
                raise ValueError(f"failure {before + 1}")
        yield from super().process_element(value, ctx)


def last_counts(results: list[tuple[str, int]]) -> dict[str, int]:
    return dict(sorted(results, key=lambda pair: pair[1]))


@pytest.mark.parametrize("files", [True, False])
def test_a_temporary_user_error_neither_loses_nor_duplicates_records(
    make_env: Any, tmp_path: Path, files: bool
) -> None:
    """With checkpoints in files, and with checkpoints in the memory of the driver, which survives."""
    env = make_env(records=10, checkpoints=files, **INTERVAL)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
    failing = FailsOnPoison(2, tmp_path)
    counted = env.from_collection(WORDS).uid("words").key_by(lambda word: word).process(failing).uid("count")
    with counted.execute_and_collect("restarted") as results:
        assert Counter(results) == Counter(
            (word, n + 1) for word, count in expected_counts(WORDS).items() for n in range(count)
        )
    assert len(list(tmp_path.glob("failed-*"))) == 2
    if files:
        storage = newest_lineage(tmp_path / "checkpoints" / "restarted")
        assert last_manifest(storage).records == {"words": len(WORDS)}
        assert read_values(storage, "count", "n", int) == expected_counts(WORDS)


def test_a_job_without_checkpoints_restarts_from_scratch_and_logs_it(
    make_env: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = make_env(records=20)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 10))
    failing = FailsOnPoison(1, tmp_path)
    counted = env.from_collection(WORDS).uid("words").key_by(lambda word: word).process(failing).uid("count")
    with counted.execute_and_collect("scratch") as results:
        seen = list(results)
    # The epochs before the failure appear twice, but no count is too high.
    assert last_counts(seen) == expected_counts(WORDS)
    assert len(seen) > len(WORDS)
    assert "Job 'scratch' failed. Restart 1 in 0.0 s, from scratch, because it has no checkpoints." in caplog.text
    assert "ValueError: failure 1" in caplog.text


def test_the_last_error_ends_a_job_that_failed_too_often(
    make_env: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = make_env(records=20, checkpoints=True)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 10))
    failing = FailsOnPoison(2, tmp_path)
    counted = env.from_collection(WORDS).uid("words").key_by(lambda word: word).process(failing).uid("count")
    counted.sink_to(DiscardingSink()).uid("sink")
    client = env.execute_async("ends")
    with pytest.raises(UserFunctionFailed, match="failure 2"):
        client.result()
    assert client.status() is JobStatus.FAILED
    assert client.restarts() == client.get_metrics().restarts == 1
    assert isinstance(client.last_failure(), UserFunctionFailed)
    assert "Restart 1 in 0.0 s, from checkpoint 2." in caplog.text
    assert "Job 'ends' does not restart: it restarted once, the limit of the fixed delay strategy." in caplog.text


class FailsToPlan(Source):
    """Ten records in each of three epochs. Planning the second one fails once."""

    def __init__(self, directory: Path) -> None:
        self._marker = directory / "failed"

    def advance(self, positions: dict[str, Any], limit: int | None) -> dict[str, Any]:
        position = positions.get("only", 0)
        if position == 10 and not self._marker.exists():
            self._marker.touch()
            raise ConnectionError("the broker is away")
        return {"only": min(30, position + 10)}

    def read(self, split: str, start: Any, end: Any) -> Any:
        yield from range(start or 0, end)


def test_a_source_that_fails_while_planning_is_retried(make_env: Any, tmp_path: Path) -> None:
    env = make_env(records=10, checkpoints=True)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 10))
    with env.from_source(FailsToPlan(tmp_path)).uid("numbers").execute_and_collect("planned") as results:
        assert sorted(results) == list(range(30))
    assert (tmp_path / "failed").exists()


class Heard(logging.Handler):
    """Notices that the job waits for its restart."""

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.event.set()


def test_a_job_can_be_cancelled_during_its_restart_delay(make_env: Any, tmp_path: Path) -> None:
    env = make_env(checkpoints=True)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 3_600_000))
    env.from_collection([0]).map(lambda n: 1 / n).sink_to(DiscardingSink())
    heard = Heard()
    logging.getLogger("penstock").addHandler(heard)
    try:
        client = env.execute_async("waits")
        assert heard.event.wait(100)
        assert client.status() is JobStatus.RESTARTING
        client.cancel()
        assert client.status() is JobStatus.CANCELED
    finally:
        logging.getLogger("penstock").removeHandler(heard)


def test_a_hanging_task_is_cancelled_after_the_timeout(make_env: Any, tmp_path: Path) -> None:
    marker = tmp_path / "hung"

    def hang_once(word: str) -> str:
        if not marker.exists():
            marker.touch()
            threading.Event().wait()
        return word

    env = make_env(checkpoints=True, execution__checkpointing__timeout="15 s")
    env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(2)
    env.set_restart_strategy(RestartStrategies.no_restart())
    counted = env.from_collection(WORDS).uid("words").map(hang_once).key_by(lambda word: word).process(Count())
    counted.uid("count").sink_to(DiscardingSink()).uid("sink")
    client = env.execute_async("hangs")
    client.result()
    statuses = [checkpoint.status for checkpoint in client._job.driver.coordinator.recent]
    assert statuses[0] is CheckpointStatus.EXPIRED
    assert statuses[-1] is CheckpointStatus.COMPLETED
    storage = newest_lineage(tmp_path / "checkpoints" / "hangs")
    assert read_values(storage, "count", "n", int) == expected_counts(WORDS)


def test_a_backward_clock_jump_does_not_delay_the_trigger(make_env: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Spark waits for the next batch by the machine's clock: here up to an hour after the first one."""
    env = make_env(parallelism=1, checkpoints=True, execution__checkpointing__interval="1 h")
    epochs = [threading.Event() for _ in range(4)]
    env.add_epoch_listener(lambda epoch: epochs[min(epoch.number, 3)].set())
    stream = env.from_source(Ticks(), source_name="ticks").uid("ticks")
    stream.key_by(lambda tick: tick.key % 3).map(lambda tick: tick.key).uid("m").sink_to(DiscardingSink())
    with env.execute_async("clock") as client:
        assert epochs[1].wait(60)
        for number in (2, 3):
            client._job._execution.clock._lead += 3600
            assert epochs[number].wait(60), "a new query runs a batch immediately"
        assert client.restarts() == 0, "the job has not failed"
    assert "went back by 3600 s" in caplog.text


def test_a_forward_clock_jump_does_not_expire_an_epoch(
    make_env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock jumps by an hour, sixty times the epoch's timeout, while the task of the second epoch runs."""
    running, jumped = tmp_path / "running", tmp_path / "jumped"

    def wait_for_the_jump(number: int) -> int:
        if number == 10:
            running.touch()
            while not jumped.exists():
                time.sleep(0.01)
        return number

    wall, lead = time.time, [0]
    monkeypatch.setattr(time, "time", lambda: wall() + lead[0])
    # The default of the dataclass field is the clock at class creation, so patching `time` alone is not enough.
    monkeypatch.setattr(epochs, "DriverClocks", lambda _, monotonic: DriverClocks(lambda: time.time(), monotonic))
    env = make_env(parallelism=1, records=10, checkpoints=True, execution__checkpointing__timeout="60 s")
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.from_collection(range(30)).uid("numbers").map(wait_for_the_jump).sink_to(DiscardingSink()).uid("sink")
    client = env.execute_async("forward")
    deadline = time.monotonic() + 60
    while not running.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    lead[0] = 3600
    jumped.touch()
    client.result()
    checkpoints = client._job.driver.checkpoints.recent
    assert {checkpoint.status for checkpoint in checkpoints} == {CheckpointStatus.COMPLETED.value}
    times = [checkpoint.triggered_at for checkpoint in checkpoints]
    assert max(times) - min(times) > 3_500_000, "the clock has jumped"
    assert max(checkpoint.duration_ms for checkpoint in checkpoints) < 60_000


class Unreachable(Source):
    """Finds no server; each attempt reports a different duration."""

    bounded = False

    def start(self, parallelism: int) -> Any:
        raise OSError(f"broker:9092 refused (after {time.monotonic_ns()} ms)")

    def advance(self, positions: dict[str, Any], limit: int | None) -> dict[str, Any]:
        return positions

    def read(self, split: str, start: Any, end: Any) -> Any:
        return ()


def unreachable(env: Any, _: Path) -> Any:
    return env.from_source(Unreachable(), WatermarkStrategy.no_watermarks(), "orders")


def absent_broker(env: Any, _: Path) -> Any:
    builder = KafkaSource.builder().set_bootstrap_servers("127.0.0.1:1").set_topics("orders")
    builder.set_value_only_deserializer(SimpleStringSchema()).set_property("socket.timeout.ms", "200")
    return env.from_source(builder.build(), WatermarkStrategy.no_watermarks(), "orders")


def parquet_of_an_unreadable_type(env: Any, folder: Path) -> Any:
    """Use a type that Spark does not have: a time of day."""
    pq.write_table(pa.table({"at": pa.array([1, 2], pa.time64("us"))}), folder / "orders.parquet")
    return env.from_spark(env.spark.readStream.schema("at timestamp").parquet(str(folder)))


@pytest.mark.parametrize(
    ("start", "says"),
    [
        pytest.param(
            unreachable, r"Source 'orders' failed .*\n(.*\n)*.*broker:9092 refused", id="a source that finds no server"
        ),
        pytest.param(
            absent_broker,
            r"Source 'orders' failed .*\n(.*\n)*.*127\.0\.0\.1:1 cannot list the topics.*brokers are running",
            id="a Kafka broker that is absent",
            marks=pytest.mark.long,
        ),
        pytest.param(
            parquet_of_an_unreadable_type,
            r"declined: org\.apache\.spark\.\S+ .*orders\.parquet.*Expected Spark type timestamp",
            id="a Parquet type that Spark cannot read",
        ),
    ],
)
def test_the_fifth_identical_error_from_the_start_ends_the_job_by_default(
    make_env: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    start: Callable[[Any, Path], Any],
    says: str,
) -> None:
    quickly = replace(WITH_CHECKPOINTS, initial_ms=1, max_ms=1)
    monkeypatch.setattr("penstock.driver.checkpoint_settings.WITH_CHECKPOINTS", quickly)
    env = make_env(checkpoints=True)
    (tmp_path / "in").mkdir()
    start(env, tmp_path / "in").sink_to(DiscardingSink())
    client = env.execute_async("unreachable")
    with pytest.raises(PenstockError, match=says):
        client.result()
    assert client.restarts() == 4
    assert "the same error occurred 5 times before the first checkpoint" in caplog.text
