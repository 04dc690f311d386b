"""Server-sent events, and the probes of the service."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import msgspec
import pytest
from http_service import OPEN, Service, served

from penstock.cluster.gateway import ClusterState, Event


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(tmp_path_factory.mktemp("service"), OPEN) as service:
        yield service


@pytest.fixture
def service(running: Service) -> Service:
    running.gateway.reset()
    running.gateway.recorded = [event(number) for number in range(5)]
    return running


def event(number: int) -> Event:
    return Event(number=number, at_ms=number, kind="job-state", job="j", details={"state": "RUNNING\nid: 99"})


def read_events(service: Service, count: int, path: str = "", **headers: str) -> list[tuple[str, str, Event]]:
    """Return the id, kind and data of the first events of a stream."""
    connection = http.client.HTTPConnection("127.0.0.1", service.server.port, timeout=30)
    connection.request("GET", f"/penstock/v1/events{path}", headers=headers)
    response = connection.getresponse()
    assert response.status == 200
    assert response.getheader("content-type") == "text/event-stream; charset=utf-8"
    found = []
    try:
        while len(found) < count:
            fields = {}
            while line := response.readline().decode().rstrip("\n"):
                name, _, value = line.partition(": ")
                fields[name] = value
            if "id" in fields:
                found.append((fields["id"], fields["event"], msgspec.json.decode(fields["data"], type=Event)))
    finally:
        connection.close()
    return found


def test_events_are_streamed_in_order(service: Service) -> None:
    assert read_events(service, 5) == [(str(number), "job-state", event(number)) for number in range(5)]


def test_a_client_continues_after_its_last_event(service: Service) -> None:
    assert [found[0] for found in read_events(service, 2, **{"Last-Event-ID": "2"})] == ["3", "4"]
    assert [found[0] for found in read_events(service, 1, "?after=3")] == ["4"]


def test_an_event_arrives_while_the_stream_is_open(service: Service) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.server.port, timeout=30)
    connection.request("GET", "/penstock/v1/events?after=4")
    response = connection.getresponse()
    assert response.readline() == b": connected\n"
    service.gateway.recorded.append(event(5))
    assert response.readline() == b"\n"
    assert response.readline() == b"id: 5\n"
    connection.close()


def test_the_stream_ends_with_its_source_after_the_last_event(service: Service) -> None:
    service.gateway.events_end = True
    text = service.get("/penstock/v1/events").body.decode()
    assert [line for line in text.splitlines() if line.startswith("id: ")] == [f"id: {number}" for number in range(5)]


@pytest.mark.parametrize("given", ["x", "1.5", "--1", "9" * 30])
def test_a_last_event_that_is_not_a_number_is_refused(service: Service, given: str) -> None:
    answer = service.get("/penstock/v1/events", **{"Last-Event-ID": given})
    assert answer.status == 400
    assert "integer" in answer.error


def test_the_probes_report_health_and_readiness(service: Service) -> None:
    assert service.get("/health").json == {}
    assert service.get("/ready").json == {"leading": True, "ready": True, "draining": False}
    service.gateway.cluster = ClusterState(leading=False, ready=False, draining=True, problem="secret")
    answer = service.get("/ready")
    assert (answer.status, answer.json) == (503, {"leading": False, "ready": False, "draining": True})
    assert service.get("/health").status == 200
