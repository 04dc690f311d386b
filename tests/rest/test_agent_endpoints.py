"""A Dispatcher serves the leader on another host: over real sockets, with a real control point behind it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from certificates import self_signed
from fake_gateway import JOB, JOBS
from http_service import OPEN, Service, served, wait_for

from penstock.cluster.connection import Connection, LocalConnection
from penstock.cluster.gateway import AttemptProcess, Conflict, LogFile
from penstock.cluster.order import socket_name
from penstock.cluster.other_hosts import NoAgent
from penstock.control import server as control_server
from penstock.control.server import ControlPoint
from penstock.driver.control_messages import (
    Answer,
    Describe,
    DescribeEnvironment,
    Follow,
    Poll,
    Refused,
    Request,
    Stop,
    TakeCheckpoint,
    Trigger,
    decode_answer,
)
from penstock.driver.job_snapshot import JobSnapshot, Operation
from penstock.errors import PenstockError
from penstock.rest.agent_endpoints import AGENT_ENDPOINTS
from penstock.rest.agents import HttpAgents

AGENT = "/penstock/v1/agent"
ATTEMPT = f"{AGENT}/jobs/{JOB}/attempts/1"


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "_FOLLOW_S", 0.02)


class CountedConnection(LocalConnection):
    """A connection that is in a set while it is open."""

    def __init__(self, opened: set[CountedConnection], *place: Any) -> None:
        super().__init__(*place)
        self._opened = opened

    async def __aenter__(self) -> LocalConnection:
        self._opened.add(self)
        return await super().__aenter__()

    async def __aexit__(self, *error: object) -> None:
        self._opened.discard(self)
        await super().__aexit__(*error)


class FakeAgent:
    """One attempt with a control point, and the logs of a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "control").mkdir(mode=0o700, parents=True)
        self.asked: list[Request] = []
        self.snapshot = JobSnapshot(id=JOB, name="counts", state="RUNNING", attempt=1)
        self.hang = threading.Event()
        self.point = ControlPoint(str(folder / "control"), socket_name(JOB, 1), self.answer)
        self.killed: list[tuple[str, int]] = []
        self.open: set[CountedConnection] = set()

    def answer(self, request: Request) -> Answer:
        self.asked.append(request)
        match request:
            case Follow():
                return self.snapshot
            case Stop():
                raise PenstockError("The job cannot be stopped.", fix="Wait.")
            case Describe():
                self.hang.wait(20)
        return Operation(trigger_id="t", done=True)

    def connection(self, job_id: str, attempt: int) -> LocalConnection:
        if (job_id, attempt) != (JOB, 1):
            raise Conflict("No process on host here has claimed it.")
        return CountedConnection(self.open, str(self.folder / "control"), job_id, attempt)

    def processes(self, attempts: Sequence[tuple[str, int]]) -> list[AttemptProcess]:
        return [AttemptProcess(job=job, attempt=number, alive=True, remains=True) for job, number in attempts]

    def kill(self, job_id: str, attempt: int) -> bool:
        if attempt != 1:
            raise Conflict("The attempt has not ended.")
        self.killed.append((job_id, attempt))
        return True

    def logs(self, job_id: str) -> list[LogFile]:
        return [
            LogFile(name=path.name, size=path.stat().st_size, modified_ms=1, path=path)
            for path in self.folder.glob("1-jobmanager*")
        ]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Service]:
    """A standby on another host, with a token."""
    with served(tmp_path / "host") as service:
        # Nothing answers there: an agent must not pass requests on to the leader.
        service.gateway.other_leader = "http://127.0.0.1:9"
        agent = service.gateway.agent = FakeAgent(tmp_path / "agent")
        yield service
        agent.point.close()


def fake(host: Service) -> FakeAgent:
    assert isinstance(host.gateway.agent, FakeAgent)
    return host.gateway.agent


def agents(host: Service) -> HttpAgents:
    return HttpAgents(host.token, "")


async def answer(host: Service, request: Request, attempt: int = 1) -> Answer:
    async with asyncio.timeout(20), agents(host).connection(host.server.address, JOB, attempt) as connection:
        connection.send(request)
        found: Answer = decode_answer(await connection.receive())
        return found


def test_snapshots_arrive_as_they_change_and_end_with_the_job_manager(host: Service) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(20), agents(host).connection(host.server.address, JOB, 1) as connection:
            connection.send(Follow())
            assert await state(connection) == "RUNNING"
            # Longer than the parts in which it travels.
            fake(host).snapshot = JobSnapshot(id=JOB, name="n" * 3_000_000, state="FAILING", attempt=1)
            assert await state(connection) == "FAILING"
            fake(host).point.close()
            await state(connection)
            with pytest.raises(EOFError):
                await state(connection)

    asyncio.run(scenario())


def test_a_followed_connection_that_falls_silent_ends(host: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.rest.agents._SILENT_S", 0.2)

    async def scenario() -> None:
        async with asyncio.timeout(20), agents(host).connection(host.server.address, JOB, 1) as connection:
            connection.send(Follow())
            assert await state(connection) == "RUNNING"
            with pytest.raises(OSError):
                await state(connection)

    # Its next sign of life is due after 5 s.
    asyncio.run(scenario())


async def state(connection: Connection) -> str:
    snapshot = decode_answer(await connection.receive())
    assert isinstance(snapshot, JobSnapshot)
    return snapshot.state


def test_requests_reach_the_job_manager_and_its_answers_and_refusals_return(host: Service) -> None:
    trigger = Trigger(id="t", request=TakeCheckpoint())
    for request in (trigger, Poll(id="t"), DescribeEnvironment()):
        assert asyncio.run(answer(host, request)) == Operation(trigger_id="t", done=True)
    assert fake(host).asked == [trigger, Poll(id="t"), DescribeEnvironment()]
    refused = asyncio.run(answer(host, Stop()))
    assert isinstance(refused, Refused)
    assert refused.problem == "The job cannot be stopped."


def test_actions_are_audited_by_the_agent_and_reads_are_not(host: Service) -> None:
    for request in (Poll(id="t"), TakeCheckpoint()):
        asyncio.run(answer(host, request))
    assert asyncio.run(agents(host).kill(host.server.address, JOB, 1))
    assert fake(host).killed == [(JOB, 1)]
    assert [(each["action"].rpartition("/")[2], each["job"], each["outcome"]) for each in host.audit()] == [
        ("control", JOB, 200),
        ("kill", JOB, 200),
    ]


def test_a_read_cannot_carry_an_action(host: Service) -> None:
    for body in ({"type": "stop"}, {"type": "trigger", "id": "t", "request": {"type": "cancel"}}, {}, None):
        assert host.ask("GET", f"{ATTEMPT}/control", body).status == 400
    assert host.ask("POST", f"{ATTEMPT}/control", {"type": "follow"}).status == 400
    assert fake(host).asked == []


def test_processes_are_described_in_one_request(host: Service) -> None:
    async def scenario() -> None:
        wanted = [(JOB, number) for number in range(1, 1200)]
        found = await agents(host).processes(host.server.address, wanted)
        assert [(each.job, each.attempt) for each in found] == wanted

    asyncio.run(scenario())


@pytest.mark.parametrize("attempts", ["x", f"{JOB}-", f"{JOB}-x", "../etc-1", f"{JOB}-1,,{JOB}", f"{JOB}-1234567"])
def test_malformed_attempts_are_refused(host: Service, attempts: str) -> None:
    assert host.get(f"{AGENT}/processes?attempts={attempts}").status == 400


def test_a_refused_kill_is_not_a_success(host: Service) -> None:
    with pytest.raises(NoAgent, match="The attempt has not ended"):
        asyncio.run(agents(host).kill(host.server.address, JOB, 2))
    assert host.ask("POST", f"{AGENT}/jobs/{JOB}/attempts/-1/kill").status == 400
    assert fake(host).killed == []


def test_a_job_manager_that_does_not_run_is_told_from_an_agent_that_does_not_answer(host: Service) -> None:
    with pytest.raises(NoAgent, match="does not answer"):
        asyncio.run(HttpAgents(host.token, "").kill("http://127.0.0.1:9", JOB, 1))
    with pytest.raises(NoAgent, match="token"):
        asyncio.run(HttpAgents("x" * 20, "").kill(host.server.address, JOB, 1))
    fake(host).point.close()
    for attempt in (1, 2):
        with pytest.raises(ConnectionRefusedError) as found:
            asyncio.run(answer(host, Poll(id="t"), attempt))
        assert not isinstance(found.value, NoAgent)


def test_every_path_needs_the_token(host: Service) -> None:
    for endpoint in AGENT_ENDPOINTS:
        path = endpoint.path.replace(":jobid", JOB).replace(":attempt", "1").replace(":name", "1-jobmanager.log")
        assert host.ask(endpoint.method, path, headers={"Authorization": "Bearer wrong"}).status == 401
        foreign = {"Origin": "http://evil.example"}
        assert host.ask(endpoint.method, path, headers=foreign).status == 403
    assert fake(host).asked == fake(host).killed == []


def test_an_application_is_not_an_agent(host: Service) -> None:
    host.gateway.agent = None
    answer = host.get(f"{AGENT}/processes?attempts={JOB}-1")
    assert answer.status == 404
    assert "application" in answer.error


def test_the_connection_to_the_job_manager_ends_with_that_of_the_leader(host: Service) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(20), agents(host).connection(host.server.address, JOB, 1) as connection:
            connection.send(Follow())
            await connection.receive()
            assert fake(host).open

    asyncio.run(scenario())
    wait_for(lambda: not fake(host).open)


def test_the_server_stops_although_a_leader_waits_for_an_answer(host: Service) -> None:
    async def scenario() -> None:
        waiting = asyncio.ensure_future(answer(host, Describe()))
        while Describe() not in fake(host).asked:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(host.server.stop)
        with pytest.raises((EOFError, OSError)):
            await waiting

    asyncio.run(scenario())
    fake(host).hang.set()


def test_agents_are_reached_with_tls_if_their_certificate_is_trusted(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    with served(tmp_path / "host", {"rest.ssl.certificate": certificate, "rest.ssl.private-key": key}) as host:
        host.gateway.agent = agent = FakeAgent(tmp_path / "agent")
        assert host.server.address.startswith("https://")
        trusting, other = HttpAgents(host.token, certificate), HttpAgents(host.token, "")
        assert asyncio.run(trusting.kill(host.server.address, JOB, 1))
        with pytest.raises(NoAgent, match="CERTIFICATE_VERIFY_FAILED"):
            asyncio.run(other.kill(host.server.address, JOB, 1))
        assert agent.killed == [(JOB, 1)]
        agent.point.close()


class TestLogs:
    @pytest.fixture
    def leader(self, tmp_path: Path, host: Service) -> Iterator[Service]:
        """The leader, whose gateway lists the logs of the other host."""
        (tmp_path / "agent" / "1-jobmanager.log").write_bytes(b"0123456789")
        given = {"rest.auth.token-file": str(tmp_path / "host" / "token")}
        with served(tmp_path / "leader", given) as leader:

            async def logs(job_id: str) -> list[LogFile]:
                return await agents(host).logs(host.server.address, job_id)

            leader.gateway.logs = logs  # type: ignore[method-assign]
            yield leader

    def test_logs_of_another_host_are_listed_and_read(self, leader: Service) -> None:
        listed = leader.get(f"/penstock/v1/jobs/{JOB}/logs").json
        assert [(each["name"], each["size"]) for each in listed["logs"]] == [("1-jobmanager.log", 10)]
        path = f"/penstock/v1/jobs/{JOB}/logs/1-jobmanager.log"
        assert leader.get(path).body == b"0123456789"
        part = leader.get(path, Range="bytes=-4")
        assert (part.status, part.body, part.headers["content-range"]) == (206, b"6789", "bytes 6-9/10")
        assert leader.get(path, Range="bytes=20-").status == 416
        assert leader.get(path, Range="x").status == 400
        assert leader.get("/taskmanagers/app-1-0/log").body == b"0123456789"

    def test_a_followed_log_ends_with_the_job(self, leader: Service, tmp_path: Path) -> None:
        received: list[bytes] = []
        path = f"/penstock/v1/jobs/{JOB}/logs/1-jobmanager.log?follow=true"
        reader = threading.Thread(target=lambda: received.append(leader.get(path).body))
        reader.start()
        with open(tmp_path / "agent" / "1-jobmanager.log", "ab") as log:
            log.write(b"more")
        leader.gateway.by_id[JOB] = leader.gateway.by_id[JOBS["FINISHED"]]
        reader.join(30)
        assert received == [b"0123456789more"]

    def test_a_log_on_a_host_that_has_gone_is_reported(self, leader: Service, host: Service) -> None:
        async def logs(job_id: str) -> list[LogFile]:
            url = f"http://127.0.0.1:9{AGENT}/jobs/{JOB}/logs/1-jobmanager.log"
            return [LogFile(name="1-jobmanager.log", size=1, modified_ms=1, url=url)]

        leader.gateway.logs = logs  # type: ignore[method-assign]
        answer = leader.get(f"/penstock/v1/jobs/{JOB}/logs/1-jobmanager.log")
        assert answer.status == 404
        assert "on another host" in answer.error


def test_the_paths_of_agents_are_not_part_of_the_interface(tmp_path: Path) -> None:
    with served(tmp_path / "service", OPEN) as service:
        document = json.dumps(service.get("/penstock/v1/openapi.json").json)
    assert "/agent" not in document
