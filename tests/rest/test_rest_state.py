"""Queryable state over HTTP, from a state server that follows the checkpoints of a job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from fake_gateway import JOB, JOBS, snapshot
from http_service import OPEN, Answer, Service, served
from query_jobs import Job, free_ports

from penstock.query import errors as query_errors
from penstock.query.errors import QueryError
from penstock.query.flight_server import query_token
from penstock.query.server import StateServer
from penstock.rest.errors import status_of

BASE = f"/penstock/v1/jobs/{JOB}/states"
Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    proxy, server = free_ports(2)
    made = {
        "queryable-state.enable": "true",
        "queryable-state.proxy.ports": str(proxy),
        "queryable-state.server.ports": str(server),
        "queryable-state.auth.token-file": str(tmp_path_factory.mktemp("token") / "token"),
        "queryable-state.poll-interval": "2 ms",
        "queryable-state.retained-checkpoints": "2",
    }
    query_token(made)
    return made


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, str]) -> Iterator[Job]:
    job = Job(tmp_path_factory.mktemp("job"))
    for number in range(4):
        job.run(("ann", number + 1), *((f"key{each}", each) for each in range(30)))
    server = StateServer(settings)
    followed = server.follow(JOB, "orders", job.root)
    server.await_checkpoint(followed, job.harness.checkpoint)
    server.start()
    yield job
    server.close()
    job.harness.close()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(tmp_path_factory.mktemp("service"), OPEN) as service:
        yield service


@pytest.fixture
def service(serving: Service, settings: dict[str, str]) -> Service:
    serving.gateway.reset()
    serving.gateway.by_id[JOB] = snapshot(configuration=settings)
    return serving


@pytest.fixture
def ask(service: Service, job: Job) -> Ask:
    """`ask("the%20value/value", key='"ann"')` reads."""
    return lambda path="", **query: service.get(
        f"{BASE}{'/' if path else ''}{path}" + (f"?{urlencode(query)}" if query else "")
    )


def test_the_states_of_a_job_are_listed_with_the_readable_checkpoints(ask: Ask, job: Job) -> None:
    found = ask().json
    assert (found["oldest"], found["newest"], found["ended"]) == (4, 4, False)
    states = {each["name"]: each for each in found["states"]}
    assert set(states) == {"the value", "the list", "the map", "the reducing", "the aggregating"}
    assert states["the map"] == {
        "name": "the map",
        "uid": "kinds",
        "operator": "Keyed Process",
        "state": "map",
        "kind": "map",
        "type": "string -> long",
        "key_type": "",
        "ttl_ms": None,
    }


def test_a_state_has_the_columns_of_its_rows(ask: Ask) -> None:
    found = ask("the%20map").json
    assert (found["checkpoint"], found["state"]["name"]) == (4, "the map")
    assert found["columns"] == [
        {"name": "key", "type": "string"},
        {"name": "map_key", "type": "string"},
        {"name": "value", "type": "int64"},
    ]


@pytest.mark.parametrize(
    ("state", "value"),
    [
        ("the value", 4),
        ("the list", [1, 2, 3, 4]),
        ("the map", [{"key": f"n{number}", "value": number} for number in range(1, 5)]),
        ("the reducing", 10),
        ("the aggregating", {"f0": 10, "f1": 4}),
    ],
)
def test_a_key_is_read_from_any_kind_of_state(ask: Ask, state: str, value: Any) -> None:
    assert ask(f"{state.replace(' ', '%20')}/value", key='"ann"').json == {"checkpoint": 4, "value": value}


def test_the_pages_of_a_state_have_each_row_once(ask: Ask) -> None:
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = ask("the%20value/rows", limit=7, **({} if cursor is None else {"cursor": cursor})).json
        assert page["checkpoint"] == 4
        assert len(page["rows"]) <= 7
        seen += [(row["key"], row["value"]) for row in page["rows"]]
        cursor, pages = page["cursor"], pages + 1
    assert pages == 5
    assert sorted(seen) == sorted([("ann", 4), *((f"key{each}", each) for each in range(30))])


def test_the_entries_of_a_map_are_read_by_range_and_page(ask: Ask) -> None:
    page = ask("the%20map/entries", key='"ann"', start='"n2"', limit=2).json
    assert page["entries"] == [{"key": "n2", "value": 2}, {"key": "n3", "value": 3}]
    page = ask("the%20map/entries", key='"ann"', start='"n2"', limit=2, cursor=page["cursor"]).json
    assert (page["entries"], page["cursor"]) == ([{"key": "n4", "value": 4}], None)
    assert ask("the%20map/entries", key='"ann"', prefix='"n1"').json["entries"] == [{"key": "n1", "value": 1}]


@pytest.mark.parametrize(
    ("path", "query", "status", "code"),
    [
        ("none", {}, 404, "unknown-name"),
        ("none/rows", {}, 404, "unknown-name"),
        ("the%20value/value", {"key": '"eve"'}, 404, "unknown-key"),
        ("the%20value/value", {"key": "5"}, 400, "wrong-key-type"),
        ("the%20value/entries", {"key": '"ann"'}, 400, "wrong-kind"),
        ("the%20value/value", {"key": '"ann"', "checkpoint": "1"}, 410, "gone"),
        ("the%20value/rows", {"cursor": "1-0-10"}, 410, "gone"),
    ],
)
def test_each_error_has_its_status_and_code(ask: Ask, path: str, query: Any, status: int, code: str) -> None:
    answer = ask(path, **query)
    assert (answer.status, answer.headers["x-penstock-error"]) == (status, code)
    assert answer.error


@pytest.mark.parametrize(
    ("path", "query", "text"),
    [
        ("the%20value/value", {}, "'key' is missing"),
        ("the%20value/value", {"key": "ann"}, "'key' is not JSON"),
        ("the%20value/value", {"key": "[" * 10_000}, "'key' is not JSON"),
        ("the%20value/value", {"key": '"\\ud800"'}, ""),
        ("the%20value/value", {"key": "5", "key-type": "uuid"}, "are of type str"),
        ("the%20value/value", {"key": '"x"', "key-type": "uuid"}, "not of type uuid"),
        ("the%20value/value", {"key": '"ann"', "window": "a,b"}, "'window'"),
        ("the%20value/value", {"key": '"ann"', "checkpoint": "-1"}, "'checkpoint'"),
        ("the%20value/rows", {"limit": "1001"}, "at most 1,000"),
        ("the%20value/rows", {"limit": "0"}, "'limit'"),
        ("the%20value/rows", {"cursor": "x"}, "'cursor'"),
        ("the%20value/rows", {"cursor": "4-0"}, "'cursor'"),
        ("the%20value/rows", {"cursor": "4-0-9999999"}, "QueryableStateClient.scan"),
        ("the%20map/entries", {"key": '"ann"', "cursor": "4-xy"}, "'cursor'"),
        ("the%20map/entries", {"key": '"ann"', "start": "5"}, "does not compare"),
    ],
)
def test_a_bad_parameter_is_named(ask: Ask, path: str, query: Any, text: str) -> None:
    answer = ask(path, **query)
    assert answer.status == 400
    assert text in answer.error


def test_a_checkpoint_that_is_not_complete_is_a_conflict(
    tmp_path: Path, job: Job, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The proxy gives up long before the service does.
    monkeypatch.setattr("penstock.rest.state_endpoints._PART", 0.01)
    with served(tmp_path / "service", OPEN | {"web.timeout": "50 s"}) as service:
        service.gateway.by_id[JOB] = snapshot(configuration=settings)
        answer = service.get(f"{BASE}/the%20value/value?key=%22ann%22&checkpoint=99")
    assert (answer.status, answer.headers["x-penstock-error"]) == (409, "not-reached")


def test_a_job_without_queryable_state_names_the_setting(service: Service) -> None:
    service.gateway.by_id[JOB] = snapshot(configuration={"parallelism.default": "2"})
    answer = service.get(BASE)
    assert (answer.status, answer.headers["x-penstock-error"]) == (409, "not-enabled")
    assert "queryable-state.enable" in answer.error


def test_a_job_that_no_server_has_is_not_found(ask: Ask, service: Service, settings: dict[str, str]) -> None:
    other = JOBS["RESTARTING"]
    service.gateway.by_id[other] = snapshot(other, "RESTARTING", configuration=settings)
    answer = service.get(f"/penstock/v1/jobs/{other}/states")
    assert (answer.status, answer.headers["x-penstock-error"]) == (404, "unknown-job")


def test_a_proxy_that_does_not_answer_is_unavailable(service: Service, settings: dict[str, str]) -> None:
    (port,) = free_ports(1)
    service.gateway.by_id[JOB] = snapshot(configuration=settings | {"queryable-state.proxy.ports": str(port)})
    answer = service.get(BASE)
    assert (answer.status, answer.headers["x-penstock-error"]) == (503, "unreachable")


def test_a_proxy_that_refuses_the_token_of_the_service_is_a_bad_gateway(
    tmp_path: Path, ask: Ask, service: Service, settings: dict[str, str]
) -> None:
    other = {"queryable-state.auth.token-file": str(tmp_path / "token")}
    query_token(other)
    service.gateway.by_id[JOB] = snapshot(configuration=settings | other)
    answer = ask()
    assert (answer.status, answer.headers["x-penstock-error"]) == (502, "not-allowed")


def test_state_is_not_shown_if_the_service_says_so(tmp_path: Path, settings: dict[str, str]) -> None:
    with served(tmp_path / "service", OPEN | {"web.state.enable": "false"}) as service:
        service.gateway.by_id[JOB] = snapshot(configuration=settings)
        for path in ("", "/the%20value", "/the%20value/rows", "/the%20value/value?key=1", "/the%20map/entries?key=1"):
            answer = service.get(BASE + path)
            assert (answer.status, "web.state.enable" in answer.error) == (403, True)


def test_state_needs_the_token_and_a_known_host(tmp_path: Path, job: Job, settings: dict[str, str]) -> None:
    with served(tmp_path / "service") as service:
        service.gateway.by_id[JOB] = snapshot(configuration=settings)
        assert service.get(BASE, Authorization="Bearer wrong").status == 401
        assert service.get(BASE, Host="evil.example").status == 403
        assert service.get(BASE).status == 200
        assert service.ask("POST", BASE).status == 405


def test_every_error_of_a_read_has_a_status_that_is_not_an_internal_error() -> None:
    kinds = [
        kind
        for kind in vars(query_errors).values()
        if isinstance(kind, type) and issubclass(kind, QueryError) and kind is not QueryError
    ]
    assert {kind.code: int(status_of(kind("x"))) for kind in kinds} == {
        "unknown-job": 404,
        "unknown-name": 404,
        "unknown-key": 404,
        "wrong-key-type": 400,
        "wrong-kind": 400,
        "not-served": 503,
        "not-reached": 409,
        "gone": 410,
        "not-enabled": 409,
        "not-allowed": 502,
        "not-trusted": 502,
        "bad-request": 400,
        "too-large": 400,
        "busy": 429,
        "unreachable": 503,
    }


def test_the_answers_are_described_in_the_openapi_document(service: Service) -> None:
    document = json.dumps(service.get("/penstock/v1/openapi.json").json)
    for name in ("StateTables", "StateSchema", "StateRows", "StateValue", "StateEntries"):
        assert f'"{name}"' in document
