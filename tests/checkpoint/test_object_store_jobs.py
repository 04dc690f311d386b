"""Jobs with checkpoints on an S3 server: crashes, recoveries, and drivers presumed dead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.checkpoint.manifest import Fenced
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.epoch_settings import Settings
from penstock.state.object_storage import ObjectStorage
from penstock.testing import JobHarness

MakeStorage = Callable[..., ObjectStorage]


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.n.update((self.n.value() or 0) + 1)
        yield value, self.n.value()


def start(storage: ObjectStorage, parallelism: int = 1) -> JobHarness:
    env = StreamExecutionEnvironment.get_execution_environment()
    counts = env.from_collection([]).uid("words").key_by(lambda word: word).process(Count()).uid("count")
    settings = Settings(backend="filesystem", inline_bytes=0)
    return JobHarness(counts, storage=storage, settings=settings, parallelism=parallelism, max_parallelism=16)


@pytest.mark.parametrize("bucket", ["bucket", "echo"])
def test_a_job_that_crashes_at_each_step_counts_every_record_once(s3: MakeStorage, bucket: str) -> None:
    with start(s3(bucket)) as job:
        for round_, point in enumerate(
            ["source.processed", "level1.snapshot", "driver.collected", "driver.published", "driver.committed"], 1
        ):
            job.crash_at(point)
            job.push("a", "b")
            job.epoch()
            job.lose_replicas()
            job.epoch()
            assert job.states("n") == {"a": round_, "b": round_}
        assert len(set(job.output)) == len(job.output)


def test_another_host_resumes_at_another_parallelism(s3: MakeStorage) -> None:
    storage = s3()
    with start(storage) as job:
        job.push(*"aabbbc").epoch()
    with start(storage, parallelism=3) as job:
        job.push(*"abc").epoch()
        assert sorted(job.output) == [("a", 3), ("b", 4), ("c", 2)]


def test_a_driver_presumed_dead_is_fenced_and_its_sink_receives_nothing(s3: MakeStorage) -> None:
    storage = s3()
    with start(storage) as old:
        old.push("a").epoch()
        with start(storage) as new:
            new.push("b").epoch()
            old.push("c")
            with pytest.raises(Fenced, match=f"Checkpoint 2 of this job is already published.*{storage.where}"):
                old.epoch()
            assert (old.output, new.output) == ([("a", 1)], [("b", 1)])
            assert new.push("b").epoch()
            assert new.states("n") == {"a": 1, "b": 2}


def test_one_of_several_drivers_that_publish_simultaneously_continues(s3: MakeStorage) -> None:
    storage = s3()
    jobs = [start(storage) for _ in range(3)]
    barrier, fenced = threading.Barrier(3), []

    def run(job: JobHarness) -> None:
        job.push("a")
        barrier.wait()
        try:
            job.epoch()
        except Fenced:
            fenced.append(job)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [job for job in jobs if job not in fenced]
    assert winner.output == [("a", 1)]
    assert [job.output for job in fenced] == [[], []]
    assert len(storage.list("manifests/")) == 1
    for job in jobs:
        job.close()
