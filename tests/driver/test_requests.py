"""Savepoints, stops and rescales of a running job, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.common.job import JobStatus
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.driver.instructions import JobTraits, RunEpoch, StopQuery
from penstock.driver.life_cycle import LifeCycle, Phase
from penstock.driver.requests import Requests
from penstock.driver.rescaling import CannotRescale
from penstock.driver.restarts import NoRestart
from penstock.errors import PenstockError
from penstock.testing import JobHarness

TOO_MANY = 1_000_000


class FakeDriver:
    def __init__(self) -> None:
        self.parallelism: Any = None

    @contextmanager
    def pinned_last(self) -> Iterator[tuple[str, str]]:
        yield "manifest", "version"

    @property
    def checkpoints(self) -> Any:
        return self

    @contextmanager
    def saving(self, manifest: Any, ends_job: bool) -> Iterator[Any]:
        yield lambda path: None

    def check_rescale(self, parallelism: Any) -> None:
        if parallelism == TOO_MANY:
            raise CannotRescale("too many")

    def rescale(self, parallelism: Any) -> None:
        self.parallelism = parallelism


class FakeExecutor:
    """Records calls; a request waits until `recovered` is set."""

    def __init__(self, traits: JobTraits | None = None) -> None:
        self.life = LifeCycle(traits or JobTraits(), NoRestart())
        self.driver: Any = FakeDriver()
        self.done: list[Any] = []
        self.recovered = threading.Event()
        self.waits = threading.Event()
        self.saves = True

    @contextmanager
    def between_epochs(self) -> Iterator[None]:
        self.waits.set()
        assert self.recovered.wait(60)
        yield

    def run_epoch(self, epoch: RunEpoch) -> None:
        self.done.append(epoch)
        self.life.epoch_done(ended=epoch.ends_input)

    def save(self, directory: Any, manifest: Any, version: Any) -> str:
        self.done.append("save")
        if not self.saves:
            raise OSError("disk full")
        return f"{directory}/{manifest}"

    def stop(self, stop: StopQuery) -> None:
        self.done.append(stop)
        self.life.query_ended()
        self.life.ended()


def running(traits: JobTraits | None = None, checkpoint: int | None = 3) -> FakeExecutor:
    executor = FakeExecutor(traits)
    executor.life.start()
    executor.life.recovered(checkpoint)
    executor.recovered.set()
    return executor


def requests_to(executor: Any) -> Requests:
    return Requests("counts", executor)


class TestASavepoint:
    def test_a_savepoint_is_made_of_the_last_checkpoint(self) -> None:
        executor = running()
        directory: Any = "/saved"
        assert requests_to(executor).savepoint(directory) == "/saved/manifest"
        assert executor.done == ["save"]
        assert executor.life.phase is Phase.RUNNING

    def test_a_savepoint_without_a_checkpoint_runs_an_epoch_first(self) -> None:
        executor = running(checkpoint=None)
        directory: Any = "/saved"
        requests_to(executor).savepoint(directory)
        assert executor.done == [RunEpoch(), "save"]

    def test_a_savepoint_waits_until_the_job_has_recovered(self) -> None:
        executor = FakeExecutor()
        executor.life.start()
        directory: Any = "/saved"
        made: list[str] = []
        asking = threading.Thread(target=lambda: made.append(requests_to(executor).savepoint(directory)))
        asking.start()
        assert executor.waits.wait(60)
        assert made == []
        executor.life.recovered(4)
        executor.recovered.set()
        asking.join(60)
        assert made == ["/saved/manifest"]


class TestAStop:
    def test_a_stop_follows_the_savepoint(self) -> None:
        executor = running(JobTraits(bounded=False))
        requests = requests_to(executor)
        directory: Any = "/saved"
        assert requests.stop_with_savepoint(directory, drain=False) == requests.savepoint_at_end == "/saved/manifest"
        assert executor.done == ["save", StopQuery()]
        assert executor.life.status is JobStatus.FINISHED

    def test_a_failed_savepoint_leaves_the_job_running(self) -> None:
        executor = running()
        executor.saves = False
        directory: Any = "/saved"
        requests = requests_to(executor)
        with pytest.raises(OSError, match="disk full"):
            requests.stop_with_savepoint(directory, drain=False)
        assert executor.done == ["save"]
        assert executor.life.wants_epochs
        assert requests.savepoint_at_end is None

    def test_a_stop_with_drain_ends_the_job_even_if_the_savepoint_fails(self) -> None:
        executor = running()
        executor.saves = False
        directory: Any = "/saved"
        with pytest.raises(OSError, match="disk full"):
            requests_to(executor).stop_with_savepoint(directory, drain=True)
        assert executor.done == [RunEpoch(ends_input=True), "save", StopQuery()]
        assert executor.life.status is JobStatus.FINISHED

    def test_a_cancel_with_savepoint_cancels_the_job(self) -> None:
        executor = running()
        directory: Any = "/saved"
        requests_to(executor).stop_with_savepoint(directory, drain=False, cancel=True)
        assert executor.life.status is JobStatus.CANCELED


class TestARescale:
    def test_a_rescale_that_is_impossible_is_refused_without_waiting_for_the_epoch(self) -> None:
        executor = running()
        executor.recovered.clear()
        with pytest.raises(CannotRescale):
            requests_to(executor).rescale(TOO_MANY)
        assert not executor.waits.is_set()


class TestAnEndedJob:
    def test_an_ended_job_refuses_requests_without_waiting(self) -> None:
        executor = running()
        executor.life.cancel_requested()
        executor.recovered.clear()
        directory: Any = "/saved"
        with pytest.raises(PenstockError, match="Job 'counts' has ended and cannot make a savepoint"):
            requests_to(executor).savepoint(directory)
        executor.life.query_ended()
        with pytest.raises(PenstockError, match="Job 'counts' has ended and cannot be rescaled"):
            requests_to(executor).rescale(2)
        assert executor.driver.parallelism is None


def program(elements: list[int]) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(elements).uid("n").print().uid("print")
    return env


class TestTheHarness:
    def test_the_harness_refuses_a_savepoint_of_a_batch_like_a_job_on_spark(self, tmp_path: Path) -> None:
        env = program([1, 2])
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        with JobHarness(env) as job:
            job.run()
            with pytest.raises(
                PenstockError, match="Job 'harness' runs as a batch, which has no checkpoints"
            ) as raised:
                job.savepoint(tmp_path)
            assert "STREAMING" in raised.value.fix

    def test_the_harness_ends_a_drained_job_even_if_the_savepoint_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any) -> str:
            raise OSError("disk full")

        with JobHarness(program([])) as job:
            job.push(1).epoch()
            monkeypatch.setattr(job._execution, "save", full)
            with pytest.raises(OSError, match="disk full"):
                job.stop_with_savepoint(tmp_path, drain=True)
            with pytest.raises(PenstockError, match="has ended"):
                job.push(2).epoch()

    def test_the_harness_continues_if_the_savepoint_of_a_stop_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any) -> str:
            raise OSError("disk full")

        stream = StreamExecutionEnvironment.get_execution_environment().from_collection([]).uid("n")
        with JobHarness(stream) as job:
            job.push(1).epoch()
            monkeypatch.setattr(job._execution, "save", full)
            with pytest.raises(OSError, match="disk full"):
                job.stop_with_savepoint(tmp_path)
            job.push(2).epoch()
            assert job.output == [1, 2]
