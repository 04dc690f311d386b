"""Flow control on Spark: credits reach the planners of sources, and epochs take their target time.

The tests check credits, and times measured by the job as ratios to each other or to the target.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from penstock.connectors.generated import DataGeneratorSource
from penstock.datastream import MapFunction, RuntimeContext
from penstock.datastream.connectors import DiscardingSink, Positions, Source
from penstock.driver.epoch_statistics import EpochStatistics

pytestmark = pytest.mark.spark

TARGET_MS = 700
PAGE = os.sysconf("SC_PAGE_SIZE")
FLAT = 48 * 2**20


def resident(process: int | str = "self") -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE


class Delayed(MapFunction):
    """Delays every record: ten times as long while the file exists."""

    def __init__(self, slow: Path, seconds: float) -> None:
        self._slow, self._seconds = slow, seconds

    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_metrics_group().gauge("resident", resident)

    def map(self, value: Any) -> Any:
        time.sleep(self._seconds * (10 if self._slow.exists() else 1))
        return value


class Running:
    """A running job with flow control, seen from outside."""

    def __init__(self, client: Any, epochs: "Queue[EpochStatistics]") -> None:
        self._client, self._epochs = client, epochs
        self.seen: list[EpochStatistics] = []

    def epoch(self) -> EpochStatistics:
        """Return the next epoch with records."""
        while True:
            epoch = self._epochs.get(timeout=120)
            if epoch.records:
                self.seen.append(epoch)
                return epoch

    def await_settled(self, most: int) -> None:
        """Wait until three epochs in a row took at most 1.5 times the target, and not far less."""
        for _ in range(most):
            self.epoch()
            times = [each.duration_ms / TARGET_MS for each in self.seen[-3:]]
            if len(times) == 3 and max(times) <= 1.5 and min(times) >= 0.5:
                return
        raise AssertionError([(each.records, round(each.duration_ms)) for each in self.seen])

    def metric(self, name: str) -> Any:
        return self._client.get_metrics()[name]

    def memory(self) -> int:
        """Return the memory of the largest worker."""
        return int(max(self.metric("work.resident").values()))


@contextmanager
def running(env: Any, source: Source, slow: Path, seconds: float) -> Iterator[Running]:
    epochs: Queue[EpochStatistics] = Queue()
    env.add_epoch_listener(epochs.put)
    numbers = env.from_source(source).uid("in").key_by(lambda record: int(record) % 64)
    numbers.map(Delayed(slow, seconds)).uid("work").sink_to(DiscardingSink()).uid("out")
    client = env.execute_async("flow")
    try:
        yield Running(client, epochs)
    finally:
        client.cancel().result()


def test_a_stage_slowed_tenfold_gets_fewer_credits_and_epochs_return_to_the_target(
    make_env: Any, tmp_path: Path
) -> None:
    env = make_env(**{"penstock__flow__target-epoch-time": f"{TARGET_MS} ms"})
    slow = tmp_path / "slow"
    with running(env, DataGeneratorSource(lambda n: n, 10**9), slow, 0.0005) as job:
        job.await_settled(40)
        credits, memory, driver = job.metric("in.credits"), job.memory(), resident()
        assert job.metric("in.backPressure") > 0.9
        assert job.metric("in.backlog") > 10**8
        assert job.metric("work.capacity") < job.metric("in.capacity")
        slow.touch()
        # An epoch might be half over by now, so the fourth from here is the third that is entirely slow.
        fallen = [job.metric("in.credits") for _ in range(4) if job.epoch()]
        assert min(fallen) < credits / 4
        job.await_settled(40)
        assert job.memory() < memory + FLAT
        assert resident() < driver + FLAT


class Letters(Source):
    """Emits as many letters as a file says have arrived."""

    bounded = False

    def __init__(self, arrived: Path) -> None:
        self._arrived = arrived

    def _count(self) -> int:
        return int(self._arrived.read_text())

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        position = positions.get("box", 0)
        return {"box": max(position, min(self._count(), position + (limit or 10**9)))}

    def backlog(self, positions: Positions) -> int | None:
        return self._count() - int(positions["box"])

    def read(self, split: str, start: Any, end: Any) -> Iterator[str]:
        return (f"{number:2000d}" for number in range(start or 0, end))


def arrive(arrived: Path, count: int) -> None:
    arrived.with_suffix(".new").write_text(str(count))
    os.replace(arrived.with_suffix(".new"), arrived)


def test_a_hundredfold_burst_is_processed_without_more_memory(make_env: Any, tmp_path: Path) -> None:
    env = make_env(**{"penstock__flow__target-epoch-time": f"{TARGET_MS} ms"})
    box = tmp_path / "box"
    arrive(box, 300)
    with running(env, Letters(box), tmp_path / "slow", 0.0002) as job:
        for count in range(600, 3001, 300):
            job.epoch()
            arrive(box, count)
        job.epoch()
        memory, driver, quiet = job.memory(), resident(), len(job.seen)
        # A new epoch might have begun with the first letters, but the burst arrives at once.
        arrive(box, 33_000)
        while sum(each.records for each in job.seen) < 33_000:
            job.epoch()
            assert job.memory() < memory + FLAT
        burst = job.seen[quiet:]
        assert len(burst) >= 4
        assert max(each.records for each in burst) < 15_000
        assert (job.metric("in.backlog"), job.metric("in.backPressure")) == (0, 0)
        assert resident() < driver + FLAT
