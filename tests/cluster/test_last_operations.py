"""Polls of operations on a job that has ended, perhaps because of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from followed_job import JOB, SNAPSHOT, FollowedJob, following, shorten_waits, until

from penstock.cluster import jobmanager
from penstock.cluster.application import ApplicationGateway
from penstock.cluster.dispatcher import Dispatcher
from penstock.cluster.gateway import UnknownOperation
from penstock.cluster.order import Order
from penstock.cluster.records import Ended
from penstock.driver.assignment import Verdict
from penstock.driver.control_messages import Answer, Poll, Request, Stop, Trigger
from penstock.driver.job_snapshot import JobSnapshot, Operation

PATH = "/savepoints/savepoint-counts-1"


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_waits(monkeypatch)


class JobManager(FollowedJob):
    """The job has one operation."""

    def __init__(self, folder: Path, operation: Operation) -> None:
        self.operation = operation
        self.snapshot = msgspec.structs.replace(SNAPSHOT, operations=[operation])
        super().__init__(folder)

    def answer(self, request: Request) -> Answer:
        return self.operation if isinstance(request, Poll) else self.snapshot

    def decide(self, verdict: Verdict, savepoint: str = "") -> None:
        self.records.end(JOB, 1, Ended(verdict=verdict, by="t", at_ms=2, savepoint=savepoint))

    def store(self, **result: object) -> None:
        """Store the history, with the result of the operation."""
        operation = msgspec.structs.replace(self.operation, **result)
        snapshot = msgspec.structs.replace(self.snapshot, state="FINISHED", operations=[operation])
        self.records.store_history(JOB, msgspec.json.encode(snapshot))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[Operation], JobManager]]:
    made: list[JobManager] = []

    def start(operation: Operation) -> JobManager:
        made.append(JobManager(tmp_path, operation))
        return made[-1]

    yield start
    for each in made:
        each.exit()


async def completed(running: Dispatcher, trigger_id: str) -> Operation:
    async with asyncio.timeout(30):
        while not (operation := await running.operation(JOB, trigger_id)).done:
            await asyncio.sleep(0.01)
    return operation


@pytest.mark.parametrize("verdict", [Verdict.FINISHED, Verdict.FAILED, Verdict.CANCELED, Verdict.STOPPED])
@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("savepoint", "the savepoint was complete"),
        ("checkpoint", "the checkpoint was complete"),
        ("rescale", "it was rescaled"),
    ],
)
def test_an_operation_that_the_end_of_its_job_interrupts_fails(
    tmp_path: Path, started: Callable[[Operation], JobManager], kind: str, what: str, verdict: Verdict
) -> None:
    process = started(Operation(trigger_id="a", kind=kind))

    async def scenario() -> Operation:
        async with following(tmp_path) as running:
            process.decide(verdict, savepoint=PATH if verdict is Verdict.STOPPED else "")
            process.store()
            process.exit()
            return await completed(running, "a")

    operation = asyncio.run(scenario())
    assert (operation.failure_kind, operation.savepoint) == ("NotCompleted", "")
    state = "FINISHED" if verdict is Verdict.STOPPED else verdict.name
    assert operation.failure.startswith(f"The job ended before {what}: it is {state}. ")


@pytest.mark.parametrize("verdict", [Verdict.FINISHED, Verdict.FAILED, Verdict.CANCELED])
@pytest.mark.parametrize("kind", ["stop", ""])
def test_a_stop_that_did_not_end_its_job_fails(
    tmp_path: Path, started: Callable[[Operation], JobManager], kind: str, verdict: Verdict
) -> None:
    process = started(Operation(trigger_id="a", kind=kind))

    async def scenario() -> Operation:
        async with following(tmp_path) as running:
            process.decide(verdict)
            process.exit()
            return await completed(running, "a")

    assert asyncio.run(scenario()).failure_kind == "NotCompleted"


@pytest.mark.parametrize(("kind", "verdict"), [("stop", Verdict.STOPPED), ("stop", Verdict.CANCELED)])
def test_a_stop_that_ended_its_job_has_the_savepoint_of_the_verdict_if_the_process_died(
    tmp_path: Path, started: Callable[[Operation], JobManager], kind: str, verdict: Verdict
) -> None:
    process = started(Operation(trigger_id="a", kind=kind))

    async def scenario() -> Operation:
        async with following(tmp_path) as running:
            process.decide(verdict, savepoint=PATH)
            process.exit()
            return await completed(running, "a")

    assert asyncio.run(scenario()) == Operation(trigger_id="a", kind=kind, done=True, savepoint=PATH)


def test_an_operation_is_in_progress_until_the_ending_process_has_stored_its_result(
    tmp_path: Path, started: Callable[[Operation], JobManager]
) -> None:
    process = started(Operation(trigger_id="a", kind="savepoint"))

    async def scenario() -> Operation:
        async with following(tmp_path) as running:
            process.decide(Verdict.FINISHED)
            await until(lambda: running.job(JOB).state == "FINISHED")
            assert not (await running.operation(JOB, "a")).done
            # Triggered after the last snapshot that the Dispatcher received.
            assert not (await running.operation(JOB, "b")).done
            process.store(done=True, savepoint=PATH)
            operation = await completed(running, "a")
            with pytest.raises(UnknownOperation):
                await running.operation(JOB, "b")
            process.exit()
            return operation

    assert asyncio.run(scenario()).savepoint == PATH


def test_a_stop_is_complete_when_its_job_has_ended_although_the_process_still_removes_checkpoints(
    tmp_path: Path, started: Callable[[Operation], JobManager]
) -> None:
    process = started(Operation(trigger_id="a", kind="stop"))

    async def scenario() -> None:
        async with following(tmp_path) as running:
            process.decide(Verdict.STOPPED, savepoint=PATH)
            await until(lambda: running.job(JOB).state == "FINISHED")
            assert (await running.operation(JOB, "a")).savepoint == PATH
            process.exit()

    asyncio.run(scenario())


def test_a_stop_that_ends_its_job_at_once_has_its_savepoint_before_the_supervisor_looks(
    tmp_path: Path, started: Callable[[Operation], JobManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = started(Operation(trigger_id="a", kind="stop"))
    last_snapshot, process.snapshot = process.snapshot, SNAPSHOT

    async def scenario() -> Operation:
        async with following(tmp_path) as running:
            monkeypatch.setattr(running._jobs, "changed", lambda view: None)
            monkeypatch.setattr("penstock.cluster.dispatcher._RESULT_SHOWN_S", 0.05)
            process.decide(Verdict.STOPPED, savepoint=PATH)
            process.snapshot = last_snapshot
            process.store(done=True, savepoint=PATH)
            process.point.close()
            assert running.job(JOB).state == "RUNNING"
            return await running.operation(JOB, "a")

    assert asyncio.run(scenario()) == Operation(trigger_id="a", kind="stop", done=True, savepoint=PATH)


def test_a_cancellation_is_complete_when_its_job_has_ended(
    tmp_path: Path, started: Callable[[Operation], JobManager]
) -> None:
    process = started(Operation(trigger_id="a", kind="cancel"))

    async def scenario() -> Operation:
        async with following(tmp_path) as running:
            process.decide(Verdict.CANCELED)
            process.exit()
            return await completed(running, "a")

    assert asyncio.run(scenario()) == Operation(trigger_id="a", kind="cancel", done=True)


def test_the_history_of_a_job_has_the_result_of_the_operation_that_ended_it(tmp_path: Path) -> None:
    """The job decides its end before the operation returns."""
    go_on = threading.Event()

    def stop(drain: bool, directory: str | None) -> Any:
        go_on.wait(30)
        return SimpleNamespace(result=lambda: PATH)

    order = Order(
        job_id=JOB, attempt=1, records=str(tmp_path / "records"), settings={}, control="", folder=str(tmp_path)
    )
    manager = jobmanager.JobManager(order)
    job: Any = SimpleNamespace(snapshot=lambda: JobSnapshot(id=JOB, name="counts", state="FINISHED"))
    client: Any = SimpleNamespace(stop_with_savepoint=stop, ended=True)
    manager._attach(job, client)
    assert isinstance(manager._answer(Trigger(id="a", request=Stop())), Operation)
    manager._attempt.decided = Ended(verdict=Verdict.STOPPED, by="t", at_ms=2, savepoint=PATH)
    threading.Timer(0.05, go_on.set).start()
    manager._store_history()
    stored = manager._records.history(JOB)
    assert stored is not None
    assert msgspec.json.decode(stored, type=JobSnapshot).operations == [
        Operation(trigger_id="a", kind="stop", done=True, savepoint=PATH)
    ]


def test_results_are_kept_as_long_as_the_service_is_configured(tmp_path: Path) -> None:
    settings = {"rest.async.store-duration": "1500 ms", "cluster.dir": str(tmp_path / "cluster")}
    order = Order(
        job_id=JOB, attempt=1, records=str(tmp_path / "records"), settings=settings, control="", folder=str(tmp_path)
    )
    job: Any = SimpleNamespace(id=JOB, snapshot=lambda: SNAPSHOT)
    manager, application = jobmanager.JobManager(order), ApplicationGateway(settings)
    manager._attach(job, job)
    application.attach(job, job)
    keepers: list[Any] = [manager._commands, application._jobs[JOB].commands, application, Dispatcher(settings)]
    assert [each._operations._kept_s for each in keepers] == [1.5] * 4


def test_the_history_of_an_earlier_version_can_be_read() -> None:
    stored = b'{"type":"snapshot","id":"1","name":"n","state":"FINISHED","operations":[{"trigger_id":"a","done":true}]}'
    [operation] = msgspec.json.decode(stored, type=JobSnapshot).operations
    assert operation == Operation(trigger_id="a", done=True)
