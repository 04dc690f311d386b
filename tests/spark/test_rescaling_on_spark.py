"""The stages of a running query change their number of partitions between epochs."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.datastream import KeyedProcessFunction, RuntimeContext
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.rescaling import RescaleFailed
from penstock.errors import PenstockError

pytestmark = pytest.mark.spark

KEYS, EPOCHS, PER_EPOCH = 30, 12, 60
TIMES = EPOCHS * PER_EPOCH // KEYS
SCALES: dict[int, Any] = {2: 4, 4: {"count": 1}, 6: 3, 8: 2, 10: {"relay": 5}}
"""The requested parallelism, by the number of epochs with records after which it is requested."""


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))
        self.subtasks = runtime_context.get_number_of_parallel_subtasks()

    def process_element(self, value: int, ctx: Any) -> Any:
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield value % KEYS, n, self.subtasks


class Relay(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtasks = runtime_context.get_number_of_parallel_subtasks()

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield *value, self.subtasks


def test_a_live_rescale_loses_nothing_and_keeps_the_query(make_env: Any) -> None:
    env = make_env(parallelism=2, records=PER_EPOCH, checkpoints=True)
    numbers = env.from_collection(list(range(EPOCHS * PER_EPOCH)))
    counted = numbers.key_by(lambda n: n % KEYS).process(Count()).uid("count")
    relayed = counted.key_by(lambda value: value[1]).process(Relay()).uid("relay")

    read = 0

    def on_epoch(epoch: Any) -> None:
        nonlocal read
        # A rescale runs an epoch without records.
        if epoch.records:
            read += 1
            if read in SCALES:
                client.rescale(SCALES[read])
                assert client._job.driver.next_number == epoch.number + 2

    env.add_epoch_listener(on_epoch)
    results = relayed.execute_and_collect("rescaled")
    client = results._client
    with results:
        output = list(results)
    assert Counter(row[:2] for row in output) == {(key, n): 1 for key in range(KEYS) for n in range(1, TIMES + 1)}
    # Two epochs at each scale, and four at the program's.
    epochs_at = {(2, 2): 4, (4, 4): 2, (1, 4): 2, (3, 3): 2, (2, 5): 2}
    assert Counter(row[2:] for row in output) == {scale: n * PER_EPOCH for scale, n in epochs_at.items()}
    assert client.restarts() == 0


class Fragile(Count):
    """Raises once when it is opened, if a file exists."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def open(self, runtime_context: RuntimeContext) -> None:
        with suppress(FileNotFoundError):
            self.file.unlink()
            raise ValueError("it failed")
        super().open(runtime_context)


RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 ms"}


class TestAnIdleJob:
    """It watches an empty directory, so that only requests run epochs."""

    @pytest.fixture
    def start(self, make_env: Any, session: Any, tmp_path: Path) -> Iterator[Any]:
        """Start the job in any number of drivers, one after the other."""
        clients: list[Any] = []
        folder = tmp_path / "numbers"
        folder.mkdir()

        def started(checkpoints: bool = True) -> Any:
            env = make_env(parallelism=2, checkpoints=checkpoints, **RESTARTS)
            numbers = env.from_spark(session.readStream.schema("n long").parquet(str(folder))).map(lambda row: row["n"])
            counted = numbers.key_by(lambda n: n % KEYS).process(Fragile(tmp_path / "fails")).uid("count")
            counted.sink_to(DiscardingSink()).uid("sink")
            clients.append(env.execute_async("idle"))
            return clients[-1]

        yield started
        for client in clients:
            if not client.ended:
                client.cancel()

    def test_a_rescale_before_the_first_checkpoint_survives_the_driver(self, start: Any) -> None:
        client = start()
        client.rescale(4)
        assert client._job.driver.next_number == 2
        client._job.suspend()
        again = start()
        again.trigger_checkpoint().result()
        assert parallelism(again) == 4

    def test_a_failed_rescale_restarts_the_job_at_the_former_parallelism(self, start: Any, tmp_path: Path) -> None:
        client = start()
        client.rescale(3)
        (tmp_path / "fails").touch()
        with pytest.raises(RescaleFailed, match=r"'idle' was not rescaled.* ValueError: it failed"):
            client.rescale(4)
        # It waits until the job has restarted.
        client.trigger_checkpoint().result()
        assert (client.restarts(), parallelism(client)) == (1, 3)
        client.rescale(4)
        assert (client.restarts(), parallelism(client)) == (1, 4)

    def test_a_job_without_checkpoints_keeps_its_parallelism_when_it_starts_from_scratch(
        self, start: Any, tmp_path: Path
    ) -> None:
        client = start(checkpoints=False)
        client.rescale(3)
        (tmp_path / "fails").touch()
        with pytest.raises(RescaleFailed):
            client.rescale(4)
        client.trigger_checkpoint().result()
        assert (client.restarts(), client._job.driver.next_number, parallelism(client)) == (1, 2, 3)


def test_a_listener_that_catches_a_failed_rescale_does_not_end_the_job(make_env: Any, tmp_path: Path) -> None:
    env = make_env(parallelism=2, records=20, checkpoints=True, **RESTARTS)
    counted = env.from_collection(list(range(60))).key_by(lambda n: n % KEYS).process(Fragile(tmp_path / "fails"))
    failures: list[PenstockError] = []

    def on_epoch(epoch: Any) -> None:
        if epoch.number != 1 or failures:
            return
        (tmp_path / "fails").touch()
        for request in (lambda: client.rescale(4), lambda: client.rescale(3)):
            try:
                request()
            except PenstockError as error:
                failures.append(error)

    env.add_epoch_listener(on_epoch)
    results = counted.uid("count").execute_and_collect("caught")
    client = results._client
    with results:
        assert Counter(row[:2] for row in results) == {(key, n): 1 for key in range(KEYS) for n in (1, 2)}
    assert [type(each) for each in failures] == [RescaleFailed, PenstockError]
    assert "has just failed" in str(failures[1])
    assert (client.restarts(), parallelism(client)) == (1, 2)


def parallelism(client: Any) -> int:
    graph = client._job.driver.graph
    return next(each.parallelism for each in graph.chains if each.level > 0 and each.operators[0].uid == "count")
