"""A standby passes requests on to the leader: reads, actions, uploads and streams."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from fake_gateway import JOB
from http_service import OPEN, Service, multipart, served

from penstock.cluster.gateway import ClusterState, Event, NotLeading
from penstock.rest.standby import _Patience


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Service]:
    with served(tmp_path / "leader", OPEN) as leader:
        yield leader


@pytest.fixture
def standby(tmp_path: Path, leader: Service) -> Iterator[Service]:
    with served(tmp_path / "standby", OPEN) as standby:
        standby.gateway.other_leader = leader.server.address
        yield standby


def test_reads_and_errors_are_those_of_the_leader(leader: Service, standby: Service) -> None:
    for path in (f"/jobs/{JOB}/config", f"/jobs/{JOB}/metrics?get=numRestarts", "/jobs/" + "f" * 32, "/nothing"):
        ours, theirs = standby.get(path), leader.get(path)
        assert (ours.status, ours.headers["content-type"]) == (theirs.status, theirs.headers["content-type"])
        assert ours.body == theirs.body


def test_actions_reach_the_leader_alone(leader: Service, standby: Service) -> None:
    assert standby.ask("PATCH", f"/jobs/{JOB}?mode=cancel").status == 202
    assert leader.gateway.asked
    assert not standby.gateway.asked


def test_the_page_of_a_standby_acts_and_a_foreign_page_does_not(leader: Service, standby: Service) -> None:
    own = {"Origin": standby.server.address, "Sec-Fetch-Site": "same-origin", "User-Agent": "Mozilla/5.0"}
    assert standby.ask("PATCH", f"/jobs/{JOB}?mode=cancel", {}, {**own, "Origin": "http://evil.example"}).status == 403
    assert standby.ask("PATCH", f"/jobs/{JOB}?mode=cancel", headers=own).status == 403
    assert not leader.gateway.asked
    assert standby.ask("PATCH", f"/jobs/{JOB}?mode=cancel", {}, own).status == 202
    assert leader.gateway.asked


def test_an_upload_is_stored_by_the_leader(leader: Service, standby: Service) -> None:
    content = b"print()" + b"#" * 3_000_000
    body, headers = multipart("job.py", content)
    assert standby.ask("POST", "/jars/upload", body, headers).status == 200
    assert len(leader.gateway.stored) == 1
    assert not standby.gateway.stored


def test_an_upload_in_chunks_is_stored_by_the_leader(leader: Service, standby: Service) -> None:
    body, headers = multipart("job.py", b"print()")
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:50], body[50:])) + b"0\r\n\r\n"
    head = (
        f"POST /jars/upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {headers['Content-Type']}\r\n"
        f"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    assert b" 200 " in standby.raw(head.encode() + chunks).split(b"\r\n")[0]
    assert len(leader.gateway.stored) == 1


def test_health_is_that_of_the_standby(leader: Service, standby: Service) -> None:
    leader.server.stop()
    assert standby.get("/health").status == 200


def test_requests_that_concern_one_dispatcher_stay_with_it(leader: Service, standby: Service) -> None:
    standby.gateway.cluster = ClusterState(leading=False, ready=True, leader=leader.server.address)
    assert standby.get("/penstock/v1/cluster").json["leading"] is False
    assert standby.ask("POST", "/penstock/v1/drain").status == 200
    assert standby.ask("DELETE", "/cluster").status == 200
    assert standby.gateway.asked == [("drain",)]
    assert standby.gateway.is_shut_down
    assert not leader.gateway.asked
    assert not leader.gateway.is_shut_down


READ = ("GET", "/jobs/overview")
CANCEL = ("PATCH", f"/jobs/{JOB}?mode=cancel")
SAVEPOINT = ("POST", f"/jobs/{JOB}/savepoints")
UPLOAD = ("POST", "/jars/upload")
requests = pytest.mark.parametrize(("method", "path"), [READ, CANCEL, SAVEPOINT, UPLOAD])


def outcomes(service: Service) -> list[tuple[str, str, int]]:
    return [(each["action"], each["job"], each["outcome"]) for each in service.audit()]


@requests
def test_a_leader_that_does_not_answer_is_reported(leader: Service, standby: Service, method: str, path: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        standby.gateway.other_leader = f"http://127.0.0.1:{free.getsockname()[1]}"
        answer = standby.ask(method, path)
    assert answer.status == 503
    assert "does not lead, and the leader at http://127.0.0.1:" in answer.error


@requests
def test_two_standbys_do_not_pass_a_request_on_forever(
    leader: Service, standby: Service, method: str, path: str
) -> None:
    leader.gateway.other_leader = standby.server.address
    answer = standby.ask(method, path)
    assert answer.status == 503
    assert "No Dispatcher leads" in answer.error


@requests
def test_a_cluster_without_a_leader_is_reported(leader: Service, standby: Service, method: str, path: str) -> None:
    def unknown() -> str:
        raise NotLeading("No Dispatcher leads at the moment.")

    standby.gateway.leader = unknown  # type: ignore[method-assign]
    answer = standby.ask(method, path)
    assert answer.status == 503
    assert "No Dispatcher leads" in answer.error


@requests
def test_a_stopped_leader_that_accepts_connections_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    monkeypatch.setattr("penstock.rest.standby._SLACK_S", 0.0)
    monkeypatch.setattr("penstock.rest.service._SLOW_S", 0.05)
    with (
        served(tmp_path, {**OPEN, "web.timeout": "50 ms"}) as standby,
        socket.create_server(("127.0.0.1", 0)) as stopped,
    ):
        standby.gateway.other_leader = f"http://127.0.0.1:{stopped.getsockname()[1]}"
        answer = standby.ask(method, path, b"")
    assert answer.status == 503
    assert "did not answer within 0.05 s" in answer.error


def test_an_answer_that_has_begun_has_no_deadline(
    leader: Service, standby: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    class Patience(_Patience):
        def end(self) -> None:
            super().end()
            if self._timeout.when() is None:
                ended.set()

    async def events(after: int = -1) -> AsyncIterator[Event]:
        yield Event(number=1, at_ms=0, kind="leader")
        await asyncio.to_thread(ended.wait)
        yield Event(number=2, at_ms=0, kind="drained")

    monkeypatch.setattr("penstock.rest.standby._Patience", Patience)
    leader.gateway.events = events  # type: ignore[method-assign]
    answer = standby.get("/penstock/v1/events")
    assert answer.status == 200
    assert b"drained" in answer.body


def test_both_dispatchers_audit_a_forwarded_action(leader: Service, standby: Service) -> None:
    assert standby.ask(*CANCEL).status == 202
    assert outcomes(standby) == outcomes(leader) == [("PATCH /jobs/:jobid", JOB, 202)]
    refused = standby.ask("POST", f"/jobs/{JOB}/savepoints", b"no json")
    assert outcomes(standby)[1:] == [("POST /jobs/:jobid/savepoints", JOB, refused.status)]


def test_an_action_that_could_not_be_forwarded_is_audited(leader: Service, standby: Service) -> None:
    leader.gateway.other_leader = standby.server.address
    standby.ask(*CANCEL)
    assert outcomes(standby)[-1] == ("PATCH /jobs/:jobid", JOB, 503)
