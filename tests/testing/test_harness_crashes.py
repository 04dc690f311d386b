"""A simulated crash leaves no threads or files in the test process."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock.common.options import BadSetting
from penstock.datastream import AsyncDataStream, AsyncFunction, KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.state.driver_storage import DriverStorage
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.engines.memory import MemoryEngine
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

CLOSED: list[str] = []


class Ask(AsyncFunction):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0)
        return [value]

    def close(self) -> None:
        CLOSED.append("closed")


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value: int, ctx: Any) -> Any:
        self.n.update((self.n.value() or 0) + 1)
        yield value, self.n.value()


def asking(**options: Any) -> JobHarness:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection([]).uid("numbers")
    asked = AsyncDataStream.unordered_wait(numbers, Ask(), 1000, 10).uid("ask")
    counted = asked.key_by(lambda value: value % 3).process(Count()).uid("count").rebalance()
    again = AsyncDataStream.ordered_wait(counted.map(lambda pair: pair[0]), Ask(), 1000, 10).uid("again")
    return JobHarness(again, **options)


def threads() -> set[threading.Thread]:
    # The server of the driver's memory ends shortly after it is closed.
    return {thread for thread in threading.enumerate() if thread.name != "penstock-objects"}


@pytest.mark.parametrize("backend", ["memory", "filesystem"])
@pytest.mark.parametrize(
    "point",
    [
        "source.processed",
        "level1.received",
        "level1.processed",
        "level2.snapshot",
        "driver.collected",
        "driver.committed",
    ],
)
def test_a_crash_leaves_no_threads_and_closes_no_function(backend: str, point: str) -> None:
    CLOSED.clear()
    before = threads()
    with asking(backend=backend, parallelism=2) as job:
        job.push(1, 2, 3).epoch()
        usual = len(threads())
        for number in range(5):
            job.push(number)
            job.crash_at(point)
            assert job.epoch() is None
            if number % 2:
                job.crash()
            job.epoch()
            assert len(threads()) <= usual
        assert CLOSED == []
        assert sorted(job.run()) == sorted(job.output)
        assert len(job.output) == 8
    assert threads() <= before
    assert CLOSED


def test_a_crash_without_a_following_epoch_leaves_no_threads() -> None:
    before = threads()
    job = asking(backend="filesystem")
    job.push(1).epoch()
    assert threads() > before
    job.crash()
    # The thread that builds bases belongs to the driver. Tasks have no threads before they run.
    assert not [thread for thread in threads() - before if thread.name.startswith("async")]
    job.close()
    assert threads() <= before


def test_a_rescale_or_restart_leaves_no_threads() -> None:
    before = threads()
    with asking(parallelism=2) as job:
        job.push(1, 2).epoch()
        for parallelism in (3, 1, 2):
            job.rescale(parallelism)
            job.push(3).epoch()
        usual = len(threads())
        for _ in range(3):
            job.crash()
            job.push(4).epoch()
        assert len(threads()) <= usual
    assert threads() <= before


@pytest.mark.parametrize(
    ("name", "engine", "storage"),
    [
        ("memory", MemoryEngine, DriverStorage),
        ("jobmanager", MemoryEngine, DriverStorage),
        ("hashmap", MemoryEngine, LocalStorage),
        ("HashMap", MemoryEngine, LocalStorage),
        ("heap", MemoryEngine, LocalStorage),
        ("filesystem", LmdbEngine, LocalStorage),
        ("fs", LmdbEngine, LocalStorage),
    ],
)
def test_the_backend_accepts_the_names_of_the_configuration(name: str, engine: type, storage: type) -> None:
    with asking(backend=name) as job:
        assert type(job.storage) is storage
        assert type(job._engine._replicas.opener("lineage")("count", range(8))) is engine
        job.push(1, 4).epoch()
        job.crash()
        job.push(7).epoch()
        assert job.state("n", 1, operator="count") == 3


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"state\.backend is 'hashmaps'") as caught:
        asking(backend="hashmaps")
    assert "hashmap" in str(caught.value.fix)
