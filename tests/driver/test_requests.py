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
from penstock.driver.instructions import JobFailure, JobTraits, RunEpoch, StopQuery
from penstock.driver.life_cycle import LifeCycle, Phase
from penstock.driver.requests import Requests
from penstock.driver.rescaling import CannotRescale, RescaleFailed
from penstock.driver.restarts import NoRestart
from penstock.driver.slots import TooFewSlotsToRescale
from penstock.errors import PenstockError
from penstock.testing import JobHarness

TOO_MANY = 1_000_000


class FakeDriver:
    def __init__(self) -> None:
        self.scale: Any = {}
        self.next_number = 4
        self.slots = 100
        self.stores: bool | None = False
        """Whether storage has the checkpoint of an epoch that failed; None if it does not tell."""

    @contextmanager
    def pinned_last(self) -> Iterator[tuple[str, str]]:
        yield "manifest", "version"

    @property
    def checkpoints(self) -> Any:
        return self

    @contextmanager
    def saving(self, manifest: Any, ends_job: bool) -> Iterator[Any]:
        yield lambda path: None

    def check_rescale(self, parallelism: Any) -> Any:
        if parallelism == TOO_MANY:
            raise CannotRescale("too many")
        if parallelism > self.slots:
            raise TooFewSlotsToRescale("too few slots")
        return {1: parallelism}

    def set_scale(self, scale: Any) -> None:
        self.scale = scale

    def has_published(self, number: int) -> bool | None:
        return number < self.next_number or self.stores


class FakeExecutor:
    """Records calls; a request waits until `recovered` is set."""

    def __init__(self, traits: JobTraits | None = None) -> None:
        self.life = LifeCycle(traits or JobTraits(), NoRestart())
        self.driver: Any = FakeDriver()
        self.done: list[Any] = []
        self.recovered = threading.Event()
        self.waits = threading.Event()
        self.saves = True
        self.fails: BaseException | None = None
        """The failure of the next epoch."""
        self.last_failure: BaseException | None = None

    @contextmanager
    def between_epochs(self) -> Iterator[None]:
        self.waits.set()
        assert self.recovered.wait(60)
        yield

    def run_epoch(self, epoch: RunEpoch) -> None:
        if self.fails is not None:
            self.life.failed(JobFailure(0))
            raise self.fails
        self.done.append((epoch, self.driver.scale) if self.driver.scale else epoch)
        self.driver.next_number += 1
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

    def test_a_rescale_is_done_when_an_epoch_has_run_with_it(self) -> None:
        executor = running()
        requests_to(executor).rescale(2)
        assert executor.done == [(RunEpoch(), {1: 2})]

    def test_a_rescale_to_the_present_parallelism_runs_no_epoch(self) -> None:
        executor = running()
        for parallelism in (2, 2, 3, 3):
            requests_to(executor).rescale(parallelism)
        assert executor.done == [(RunEpoch(), {1: 2}), (RunEpoch(), {1: 3})]

    def test_a_failed_epoch_leaves_the_former_parallelism(self) -> None:
        executor = running()
        requests_to(executor).rescale(2)
        executor.fails = ValueError("b is bad")
        with pytest.raises(RescaleFailed) as raised:
            requests_to(executor).rescale(3)
        assert raised.value.problem == (
            "Job 'counts' was not rescaled, because its first epoch with the new parallelism failed: ValueError: b is "
            "bad. It continues with its former parallelism if its restart strategy allows it."
        )
        assert raised.value.__cause__ is executor.fails
        assert executor.driver.scale == {1: 2}

    def test_a_rescale_is_done_if_its_epoch_fails_after_the_checkpoint(self) -> None:
        executor = running()
        executor.fails, executor.driver.stores = OSError("the sink cannot commit"), True
        requests_to(executor).rescale(3)
        assert executor.driver.scale == {1: 3}

    def test_an_unknown_result_is_reported_as_unknown(self) -> None:
        executor = running()
        executor.fails, executor.driver.stores = OSError("connection lost"), None
        with pytest.raises(RescaleFailed, match="might not have been rescaled: OSError: connection lost"):
            requests_to(executor).rescale(3)

    def test_a_rescale_waits_until_the_job_has_recovered(self) -> None:
        executor = FakeExecutor()
        executor.life.start()
        asking = threading.Thread(target=lambda: requests_to(executor).rescale(2))
        asking.start()
        assert executor.waits.wait(60)
        assert executor.done == []
        executor.life.recovered(4)
        executor.recovered.set()
        asking.join(60)
        assert executor.done == [(RunEpoch(), {1: 2})]

    def test_a_rescale_that_lacks_slots_is_refused_also_if_they_are_lost_while_it_waits(self) -> None:
        executor = FakeExecutor()
        executor.life.start()
        refused: list[str] = []

        def ask() -> None:
            try:
                requests_to(executor).rescale(4)
            except TooFewSlotsToRescale as error:
                refused.append(str(error))

        asking = threading.Thread(target=ask)
        asking.start()
        assert executor.waits.wait(60)
        executor.driver.slots = 3
        executor.life.recovered(4)
        executor.recovered.set()
        asking.join(60)
        assert refused == ["too few slots"]
        assert (executor.done, executor.driver.scale) == ([], {})

    def test_a_job_that_is_being_stopped_refuses_a_rescale(self) -> None:
        executor = running()
        executor.life.stopped()
        with pytest.raises(PenstockError, match="Job 'counts' has ended and cannot be rescaled"):
            requests_to(executor).rescale(2)


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
        assert executor.driver.scale == {}


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
