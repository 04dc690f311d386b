"""Two drivers run one lineage, each a harness on the same storage. One of them loses and does no harm."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.fencing import remove_manifests
from penstock.checkpoint.manifest import Fenced, manifest_name
from penstock.common import RestartStrategies
from penstock.datastream import StreamExecutionEnvironment
from penstock.state.driver_storage import DriverStorage
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import Storage
from penstock.testing import JobHarness


@pytest.fixture(params=["memory", "filesystem"])
def storage(request: Any, tmp_path: Path) -> Storage:
    return DriverStorage() if request.param == "memory" else LocalStorage(tmp_path)


@pytest.fixture
def start(storage: Storage) -> Iterator[Callable[[], JobHarness]]:
    """Return a factory for drivers of the same job, which restart after any failure they can."""
    started = []

    def make() -> JobHarness:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 0))
        summed = env.from_collection([]).uid("numbers").key_by(lambda n: n % 2).reduce(lambda a, b: a + b).uid("sum")
        started.append(JobHarness(summed, storage=storage))
        return started[-1]

    yield make
    for harness in started:
        harness.close()


def contents(storage: Storage) -> dict[str, bytes]:
    return {name: storage.read(name) for folder in ("manifests/", "deltas/") for name in storage.list(folder)}


def fenced(driver: JobHarness) -> str:
    with pytest.raises(Fenced) as caught:
        driver.epoch()
    assert driver.restarts == 0
    assert driver.output == []
    return str(caught.value)


def test_the_driver_that_publishes_second_stops_and_is_not_restarted(start: Any, storage: Storage) -> None:
    old, new = start(), start()
    new.push(1, 2).epoch()
    before = contents(storage)
    old.push(5)
    assert "Checkpoint 1 of this job is already published" in fenced(old)
    assert {name: contents(storage)[name] for name in before} == before
    new.push(3).epoch()
    assert new.output == [1, 2, 4]


def test_a_driver_is_fenced_if_its_number_is_free_because_the_lineage_was_removed(start: Any, storage: Storage) -> None:
    first = start()
    first.push(1).epoch()
    old, new = start(), start()
    new.push(2).end()
    remove_manifests(storage)
    old.push(5)
    assert "Checkpoint 2 of this job was published before and has since been removed" in fenced(old)
    assert storage.list("manifests/") == []


def test_a_driver_is_fenced_if_even_the_first_number_is_free_again(start: Any, storage: Storage) -> None:
    old, new = start(), start()
    new.push(2).end()
    remove_manifests(storage)
    old.push(5)
    assert "Checkpoint 1 of this job was published before and has since been removed" in fenced(old)
    assert storage.list("manifests/") == []


def test_a_driver_is_fenced_if_its_number_is_free_because_old_checkpoints_were_removed(
    start: Any, storage: Storage
) -> None:
    first = start()
    first.push(1).epoch()
    old, new = start(), start()
    for number in range(4):
        new.push(number).epoch()
    storage.delete(manifest_name(2))
    old.push(5)
    assert "Checkpoint 2 of this job was published before and has since been removed" in fenced(old)
    assert [name[-1] for name in storage.list("manifests/")] == ["1", "3", "4", "5"]


def test_a_driver_that_recovers_behind_another_is_fenced(start: Any, storage: Storage) -> None:
    old, new = start(), start()
    new.push(1, 2).epoch()
    with pytest.raises(Fenced, match="completed checkpoint 0 of the job but finds checkpoint 1"):
        old._driver.recover()


def test_a_driver_that_finds_less_than_it_published_is_fenced(start: Any, storage: Storage) -> None:
    old = start()
    old.push(1).epoch()
    remove_manifests(storage)
    with pytest.raises(Fenced, match="completed checkpoint 1 of the job but finds checkpoint 0"):
        old._driver.recover()


def test_a_cancelled_driver_does_not_remove_the_lineage_of_another(start: Any, storage: Storage) -> None:
    old, new = start(), start()
    new.push(1, 2).epoch()
    before = contents(storage)
    with pytest.raises(Fenced):
        old._driver.close()
    assert contents(storage) == before


def test_a_driver_stops_after_another_was_cancelled(start: Any, storage: Storage) -> None:
    first = start()
    first.push(1, 2).epoch()
    old, new = start(), start()
    new._driver.close()
    old.push(3)
    assert "Checkpoint 2 of this job is already published" in fenced(old)


def test_a_driver_stops_after_another_was_cancelled_before_the_first_checkpoint(start: Any, storage: Storage) -> None:
    old, new = start(), start()
    new._driver.close()
    old.push(3)
    assert "Checkpoint 1 of this job is already published" in fenced(old)


def test_the_checkpoint_of_a_cancelled_job_holds_all_its_state(start: Any, storage: Storage) -> None:
    driver = start()
    driver.push(1, 2, 3).epoch()
    driver._driver.close()
    after = start()
    assert after.checkpoint == 2
    after.push(10, 11).epoch()
    assert after.output == [12, 15]
