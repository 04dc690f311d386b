"""The memory of Python workers and the disk of replicas, as tasks report them."""

import os
import tempfile

import msgspec
import pytest

from penstock.common.machine import disk_space, resident_memory
from penstock.driver.job_snapshot import ExecutorSnapshot
from penstock.driver.vertex_log import VertexLog
from penstock.runtime.metrics import WorkerPlace
from penstock.spark.worker_place import worker_place


def log_with(*seen: tuple[int, WorkerPlace]) -> VertexLog:
    """Return a log whose tasks ran in these epochs and places."""
    log = VertexLog(2)
    for epoch, place in seen:
        log._see_worker(epoch, place)
        log._forget_workers(epoch)
    return log


def place(process: int, resident: int, executor: str = "1", free: int = 70) -> WorkerPlace:
    return WorkerPlace(
        host="a",
        executor=executor,
        memory=500,
        process=process,
        resident=resident,
        disk_total=100,
        disk_free=free,
        directory=f"/work/{executor}",
    )


def test_the_workers_of_an_executor_count_once_with_their_newest_memory():
    log = log_with((1, place(7, 10)), (1, place(8, 20)), (2, place(7, 15, free=60)), (2, place(9, 99, executor="2")))
    found = log.with_workers(ExecutorSnapshot(id="1"))
    assert (found.python_memory, found.python_workers) == (35, 2)
    assert (found.disk_total, found.disk_free, found.physical_memory) == (100, 60, 500)
    assert (found.host, found.directory) == ("a", "/work/1")


def test_a_worker_without_tasks_is_forgotten():
    log = log_with((1, place(7, 10)), (30, place(8, 20)))
    assert log.with_workers(ExecutorSnapshot(id="1")).python_workers == 1


def test_an_executor_that_ran_no_task_has_no_workers():
    before = ExecutorSnapshot(id="3", physical_memory=9)
    assert VertexLog(2).with_workers(before) == before


def test_a_worker_reports_its_memory_and_its_disk(tmp_path):
    found = worker_place([str(tmp_path / "does" / "not" / "exist")])
    assert found.process == os.getpid()
    assert found.resident > 10 << 20
    assert 0 < found.disk_free <= found.disk_total
    assert disk_space(str(tmp_path))[0] == found.disk_total
    assert worker_place([]).disk_total == disk_space(tempfile.gettempdir())[0]


def test_memory_that_grows_is_seen():
    before = resident_memory()
    block = bytearray(64 << 20)
    block[::4096] = b"x" * len(block[::4096])
    assert resident_memory() - before > 32 << 20


@pytest.mark.parametrize("directory", ["", "/", "relative/that/does/not/exist"])
def test_a_directory_that_does_not_exist_stands_for_the_one_above(directory):
    assert disk_space(directory) == pytest.approx(disk_space(directory or "."), rel=0.1)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(worker_place([directory])), type=WorkerPlace).disk_total > 0
