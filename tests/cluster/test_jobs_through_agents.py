"""A leader supervises a JobManager on another host, through an agent that the test controls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from penstock.cluster.connection import Connection, LocalConnection
from penstock.cluster.coordination import NoCoordination
from penstock.cluster.dispatcher import Dispatcher
from penstock.cluster.gateway import AttemptProcess, Conflict, LogFile
from penstock.cluster.order import socket_name
from penstock.cluster.other_hosts import NoAgent
from penstock.cluster.records import Claim, Planned, Records, Submission, new_job_id
from penstock.control.server import ControlPoint
from penstock.driver.assignment import Verdict
from penstock.driver.control_messages import Answer, Describe, Done, Follow, Request
from penstock.driver.job_snapshot import JobSnapshot
from penstock.state.local_storage import LocalStorage

JOB = new_job_id()
ADDRESS = "http://elsewhere:8081"
SILENT_MS = 400


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.control.server._FOLLOW_S", 0.02)
    monkeypatch.setattr("penstock.control.server._HEARTBEAT_S", 0.1)
    monkeypatch.setattr("penstock.cluster.feed._RETRY_S", 0.02)
    monkeypatch.setattr("penstock.cluster.dispatcher._TICK_S", 0.02)
    monkeypatch.setattr("penstock.cluster.other_hosts._PERIOD_S", 0.02)
    monkeypatch.setattr("penstock.cluster.supervisor.Supervisor._launch", lambda *arguments: None)
    monkeypatch.setattr(NoCoordination, "agents", lambda self: {"elsewhere": [ADDRESS]})


class OtherHost:
    """The host `elsewhere`, with one JobManager and a Dispatcher."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers = True
        self.alive = self.remains = True
        self.killed: list[tuple[str, int]] = []
        self.asked: list[Request] = []
        self.point = ControlPoint(str(folder), socket_name(JOB, 1), self.answer)

    def answer(self, request: Request) -> Answer:
        if isinstance(request, Follow):
            return JobSnapshot(id=JOB, name="counts", state="RUNNING", attempt=1)
        self.asked.append(request)
        return Done(checkpoint=3)

    def _reach(self, address: str) -> None:
        assert address == ADDRESS
        if not self.answers:
            raise NoAgent(f"the Dispatcher at {address} does not answer")

    def connection(self, address: str, job_id: str, attempt: int) -> AbstractAsyncContextManager[Connection]:
        self._reach(address)
        return LocalConnection(str(self.folder), job_id, attempt)

    async def processes(self, address: str, attempts: Sequence[tuple[str, int]]) -> list[AttemptProcess]:
        self._reach(address)
        assert set(attempts) <= {(JOB, 1)}
        return [AttemptProcess(job=JOB, attempt=1, alive=self.alive, remains=self.remains)]

    async def kill(self, address: str, job_id: str, attempt: int) -> bool:
        self._reach(address)
        self.killed.append((job_id, attempt))
        self.alive = self.remains = False
        return True

    async def logs(self, address: str, job_id: str) -> list[LogFile]:
        self._reach(address)
        return [LogFile(name="1-jobmanager.log", size=1, modified_ms=1, url=f"{address}/1-jobmanager.log")]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[OtherHost]:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    host = OtherHost(tmp_path / "elsewhere")
    yield host
    host.point.close()


@pytest.fixture
def records(tmp_path: Path) -> Records:
    records = Records(LocalStorage(tmp_path / "ha" / "default"))
    records.submit(Submission(id=JOB, name="n", program="", file="a.py", submitted_ms=1, python="3", penstock="1"))
    assert records.plan(JOB, 1, Planned(leader="first", at_ms=1))
    claim = Claim(token="t", host="elsewhere", boot="b", pid=7, started=1, at_ms=1, control="/elsewhere")
    assert records.claim(JOB, 1, claim)
    records.bind_lineage(JOB, "lineage")
    return records


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def leader(tmp_path: Path, host: OtherHost) -> Dispatcher:
    """Return a Dispatcher that has taken over."""
    settings = {
        "cluster.dir": str(tmp_path / "second"),
        "high-availability.storageDir": str(tmp_path / "ha"),
        "heartbeat.timeout": f"{SILENT_MS} ms",
    }
    dispatcher = Dispatcher(settings, host)
    await dispatcher.start("http://127.0.0.1:1")
    await until(lambda: dispatcher.state().ready)
    return dispatcher


def test_a_job_manager_on_another_host_is_followed_and_asked_and_its_logs_are_listed(
    tmp_path: Path, host: OtherHost, records: Records
) -> None:
    async def scenario() -> None:
        dispatcher = await leader(tmp_path, host)
        await until(lambda: dispatcher.job(JOB).state == "RUNNING")
        assert await dispatcher.ask(JOB, Describe()) == Done(checkpoint=3)
        assert [each.name for each in await dispatcher.logs(JOB)] == ["1-jobmanager.log"]
        # It would count as silent by now if nothing were heard from it.
        first = dispatcher._jobs.heard_ms(JOB, 1) or 0
        await until(lambda: (dispatcher._jobs.heard_ms(JOB, 1) or 0) > first + 2 * SILENT_MS)
        await dispatcher.close()

    asyncio.run(scenario())
    assert host.asked == [Describe()]
    assert [each.ended for each in records.view(JOB).attempts] == [None]


def test_a_dead_process_on_another_host_is_lost_and_its_remains_are_killed_before_the_next_attempt(
    tmp_path: Path, host: OtherHost, records: Records
) -> None:
    async def scenario() -> None:
        dispatcher = await leader(tmp_path, host)
        await until(lambda: dispatcher.job(JOB).state == "RUNNING")
        host.alive = False
        await until(lambda: len(records.view(JOB).attempts) == 2)
        assert host.killed[0] == (JOB, 1)
        await dispatcher.close()

    asyncio.run(scenario())
    ended = records.view(JOB).attempts[0].ended
    assert ended is not None
    assert (ended.verdict, ended.reason) == (Verdict.LOST, "Process 7 on elsewhere died.")


def test_a_silent_process_on_another_host_is_lost_and_killed(tmp_path: Path, host: OtherHost, records: Records) -> None:
    host.point.close()

    async def scenario() -> None:
        dispatcher = await leader(tmp_path, host)
        await until(lambda: len(records.view(JOB).attempts) == 2)
        assert host.killed == [(JOB, 1)]
        await dispatcher.close()

    asyncio.run(scenario())
    ended = records.view(JOB).attempts[0].ended
    assert ended is not None
    assert ended.reason == f"Process 7 has not answered for {SILENT_MS} ms."


def test_a_job_on_a_host_that_is_not_reached_is_shown_by_its_records_and_can_be_cancelled(
    tmp_path: Path, host: OtherHost, records: Records
) -> None:
    host.answers = False

    async def scenario() -> None:
        dispatcher = await leader(tmp_path, host)
        await until(lambda: dispatcher.jobs())
        assert dispatcher.job(JOB).state == "INITIALIZING"
        with pytest.raises(Conflict, match="runs on host elsewhere, which this Dispatcher does not reach") as found:
            await dispatcher.ask(JOB, Describe())
        assert "Start a Dispatcher on elsewhere" in str(found.value)
        assert await dispatcher.logs(JOB) == []
        await dispatcher.cancel(JOB)
        await dispatcher.close()

    asyncio.run(scenario())
    view = records.view(JOB)
    assert view.cancel_requested
    assert [each.ended for each in view.attempts] == [None]
    assert host.killed == []
