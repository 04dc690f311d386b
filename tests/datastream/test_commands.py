"""Commands act on a job through its client, and a broken control point never affects the job."""

import logging
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.common.job import JobStatus
from penstock.control.client import ask, running_jobs
from penstock.datastream import StreamExecutionEnvironment, control_point
from penstock.datastream.control_point import open_to_commands
from penstock.datastream.job_client import LocalJobClient
from penstock.driver.commands import Commands
from penstock.driver.control_messages import (
    Cancel,
    Describe,
    Description,
    Done,
    MakeSavepoint,
    Poll,
    Rescale,
    Stop,
    TakeCheckpoint,
    Trigger,
)
from penstock.driver.job_snapshot import JobSnapshot, Operation
from penstock.driver.operations import BeingStopped
from penstock.errors import PenstockError
from penstock.graph.builder import build

ID = "5f" * 16


class FakeJob:
    """A job that only records the calls it receives."""

    id = ID
    started_at = 1.5
    restarts = 2
    name = "counts"
    checkpoints = "/kept"

    def __init__(self) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        stream = env.from_collection([]).uid("words").key_by(lambda word: word).reduce(min).uid("least")
        stream.print().uid("print")
        self.driver = SimpleNamespace(graph=build(env._graph, 3), next_number=8)
        self.done: list[Any] = []

    def status(self) -> JobStatus:
        return JobStatus.RESTARTING

    def savepoint(self, directory: str) -> str:
        self.done.append(("savepoint", directory))
        return f"{directory}/live"

    def stop_with_savepoint(self, directory: str, drain: bool, cancel: bool = False) -> str:
        self.done.append(("stop", directory, drain, cancel))
        return f"{directory}/last"

    def cancel(self) -> None:
        self.done.append("cancel")

    def rescale(self, parallelism: Any) -> None:
        self.done.append(("rescale", parallelism))


def client_of(job: Any) -> LocalJobClient:
    return LocalJobClient(job, lambda given: given or "/set")  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("request_", "done", "answer"),
    [
        (MakeSavepoint(directory="/given"), ("savepoint", "/given"), Done(savepoint="/given/live")),
        (MakeSavepoint(), ("savepoint", "/set"), Done(savepoint="/set/live")),
        (Stop(directory="/given", drain=True), ("stop", "/given", True, False), Done(savepoint="/given/last")),
        (Stop(), ("stop", "/set", False, False), Done(savepoint="/set/last")),
        (Cancel(savepoint=True), ("stop", "/set", False, True), Done(savepoint="/set/last")),
        (Cancel(savepoint=True, directory="/given"), ("stop", "/given", False, True), Done(savepoint="/given/last")),
        (Cancel(), "cancel", Done()),
        (Rescale(parallelism={"least": 2}), ("rescale", {"least": 2}), Done()),
        (Rescale(parallelism=4), ("rescale", 4), Done()),
    ],
)
def test_a_command_has_the_same_effect_as_the_clients_call(request_: Any, done: Any, answer: Done) -> None:
    job: Any = FakeJob()
    assert Commands(job, client_of(job), 300)(request_) == answer
    assert job.done == [done]


class StoppingJob(FakeJob):
    """Its savepoint completes when the test says so, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.fails = False

    def stop_with_savepoint(self, directory: str, drain: bool, cancel: bool = False) -> str:
        self.go_on.wait(30)
        if self.fails:
            raise PenstockError("The disk is full.")
        return super().stop_with_savepoint(directory, drain, cancel)


def completed(commands: Commands, trigger_id: str) -> Operation:
    deadline = time.monotonic() + 30
    while not (operation := commands(Poll(id=trigger_id))).done:  # type: ignore[union-attr]
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert isinstance(operation, Operation)
    return operation


STOPS = [Stop(), Stop(drain=True), Cancel(savepoint=True)]
CONFLICTING = [*STOPS, MakeSavepoint(), Rescale(parallelism=2), TakeCheckpoint()]


@pytest.mark.parametrize("first", STOPS)
@pytest.mark.parametrize("second", CONFLICTING)
def test_a_job_that_is_being_stopped_refuses_other_operations_and_repeats_its_answer(first: Any, second: Any) -> None:
    job: Any = StoppingJob()
    commands = Commands(job, client_of(job), 300)
    pending = commands(Trigger(id="a", request=first))
    with pytest.raises(BeingStopped, match=r"^The job is being stopped\."):
        commands(Trigger(id="b", request=second))
    assert commands(Trigger(id="a", request=first)) == pending
    job.go_on.set()
    assert completed(commands, "a").savepoint == "/set/last"
    # It ends, but has not ended yet.
    with pytest.raises(BeingStopped):
        commands(Trigger(id="b", request=second))
    assert len(job.done) == 1


def test_a_job_that_is_being_stopped_can_be_cancelled() -> None:
    job: Any = StoppingJob()
    commands = Commands(job, client_of(job), 300)
    commands(Trigger(id="a", request=Stop()))
    commands(Trigger(id="b", request=Cancel()))
    assert completed(commands, "b") == Operation(trigger_id="b", kind="cancel", done=True)
    assert job.done == ["cancel"]
    job.go_on.set()


def test_a_job_whose_stop_failed_accepts_other_operations() -> None:
    job: Any = StoppingJob()
    job.fails = True
    job.go_on.set()
    commands = Commands(job, client_of(job), 300)
    commands(Trigger(id="a", request=Stop()))
    assert completed(commands, "a").failure == "The disk is full."
    commands(Trigger(id="b", request=MakeSavepoint()))
    assert completed(commands, "b").savepoint == "/set/live"
    job.fails = False
    commands(Trigger(id="c", request=Stop()))
    assert completed(commands, "c").savepoint == "/set/last"


def test_a_job_makes_several_savepoints_at_the_same_time() -> None:
    job: Any = FakeJob()
    commands = Commands(job, client_of(job), 300)
    for name in ("a", "b"):
        commands(Trigger(id=name, request=MakeSavepoint()))
    assert completed(commands, "a").savepoint == completed(commands, "b").savepoint == "/set/live"


def test_a_snapshot_that_shows_an_operation_as_done_shows_its_effect_and_is_announced() -> None:
    announced = threading.Event()
    job: Any = FakeJob()

    def snapshot() -> JobSnapshot:
        now = JobSnapshot(id=ID, name="counts", state="RUNNING", parallelism=4 if job.done else 1)
        if not job.done:
            # The operation is carried out while the snapshot is taken.
            commands(Trigger(id="a", request=Rescale(parallelism=4)))
            assert announced.wait(10)
        return now

    job.snapshot = snapshot
    commands = Commands(job, client_of(job), 300, announced.set)
    during, after = commands.snapshot(), commands.snapshot()
    assert (during.parallelism, during.operations) == (1, [])
    assert (after.parallelism, [each.done for each in after.operations]) == (4, [True])


def test_the_description_of_a_job_has_its_current_parallelism() -> None:
    job: Any = FakeJob()
    describe = Commands(job, client_of(job), 300)
    assert describe(Describe()) == Description(
        id=ID,
        name="counts",
        status="RESTARTING",
        pid=os.getpid(),
        started=1500,
        epochs=7,
        restarts=2,
        parallelism={"least": 3},
        checkpoints="/kept",
    )
    job.driver.graph = job.driver.graph.rescaled({1: 5})
    known = describe(Describe())
    assert isinstance(known, Description)
    assert known.parallelism == {"least": 5}


def configured(directory: Path, **settings: str) -> Configuration:
    return Configuration.from_dict({"penstock.control.dir": str(directory), **settings})


class TestAJob:
    def test_commands_reach_a_job_until_it_ends(self, tmp_path: Path) -> None:
        job: Any = FakeJob()
        close = open_to_commands(job, client_of(job), configured(tmp_path / "control"))
        directory = str(tmp_path / "control")
        (running,) = running_jobs(directory)
        assert ask(directory, running, Stop()) == Done(savepoint="/set/last")
        close()
        assert running_jobs(directory) == []

    def test_commands_do_not_reach_a_job_whose_control_point_is_disabled(self, tmp_path: Path) -> None:
        job: Any = FakeJob()
        off = configured(tmp_path / "control", **{"penstock.control.enabled": "false"})
        open_to_commands(job, client_of(job), off)()
        assert not (tmp_path / "control").exists()

    def test_a_job_without_a_control_point_runs_and_warns_once(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").touch()
        job: Any = FakeJob()
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                open_to_commands(job, client_of(job), configured(tmp_path / "file" / "control"))()
        assert len(caplog.records) == 1
        assert "cannot reach job 'counts'" in caplog.text
        assert control_point._warned
