"""Who can use the service: Host, Origin, token, and the rule that keeps forms of foreign pages out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_gateway import JOB
from http_service import OPEN, Service, multipart, served

from penstock.common.addresses import is_loopback
from penstock.rest.access import AccessControl, AccessRules
from penstock.rest.audit import AuditLog

CANCEL = f"/jobs/{JOB}?mode=cancel"
YARN_CANCEL = f"/jobs/{JOB}/yarn-cancel"
OWN_HEADER = {"X-Penstock-Request": "1"}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that needs its token."""
    with served(tmp_path_factory.mktemp("closed")) as service:
        yield service


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that needs no token."""
    names = {"rest.allowed-hosts": "flows.example, Other, bücher.example"}
    with served(tmp_path_factory.mktemp("opened"), {**OPEN, **names}) as service:
        yield service


@pytest.fixture(params=["closed", "opened"])
def either(request: pytest.FixtureRequest) -> Service:
    found: Service = request.getfixturevalue(request.param)
    return found


def origin_of(service: Service) -> str:
    return f"http://127.0.0.1:{service.server.port}"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8081",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "169.254.1.1",
        "",
        "[::2]",
    ],
)
def test_a_name_that_was_rebound_to_this_address_is_refused(either: Service, host: str) -> None:
    answer = either.get("/jobs", Host=host)
    assert answer.status == 403
    assert "rest.allowed-hosts" in answer.error


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8081"])
def test_loopback_names_reach_the_service(either: Service, host: str) -> None:
    assert either.get("/jobs", Host=host).status == 200


@pytest.mark.parametrize("host", ["flows.example", "flows.example:443", "OTHER:1", "xn--bcher-kva.example"])
def test_a_configured_name_reaches_the_service(opened: Service, host: str) -> None:
    assert opened.get("/jobs", Host=host).status == 200


@pytest.mark.parametrize("request_line", [b"GET /jobs HTTP/1.1\r\n", b"GET /jobs HTTP/1.0\r\n"])
def test_a_request_with_no_host_or_two_hosts_is_refused(opened: Service, request_line: bytes) -> None:
    assert b" 400 " in opened.raw(request_line + b"Connection: close\r\n\r\n").splitlines()[0]
    twice = request_line + b"Host: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert b" 400 " in opened.raw(twice).splitlines()[0]


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", "Bearer wrong", "Basic x", "Bearer {0}x", "{0}", "ApiKey {0}"]
)
@pytest.mark.parametrize("path", ["/jobs", "/overview", "/nothing", "/penstock/v1/openapi.json", "/health/x"])
def test_a_wrong_token_is_refused(closed: Service, authorization: str, path: str) -> None:
    answer = closed.get(path, Authorization=authorization.format(closed.token))
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "rest.auth.token-file" in answer.error
    assert closed.token not in answer.body.decode()


def test_the_token_admits_a_request_whatever_the_case_of_its_scheme(closed: Service) -> None:
    assert closed.get("/jobs").status == 200
    assert closed.get("/jobs", Authorization=f"bearer {closed.token}").status == 200


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_probes_need_no_token(closed: Service, path: str) -> None:
    assert closed.get(path, Authorization="").status == 200
    assert closed.ask("POST", path, headers={"Authorization": ""}).status == 401


@pytest.mark.parametrize("origin", ["null", "http://evil.example", "https://127.0.0.1", "http://127.0.0.1:1", "", "x"])
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE", "OPTIONS"])
def test_a_page_of_another_origin_is_refused_for_every_method(either: Service, origin: str, method: str) -> None:
    answer = either.ask(method, CANCEL, headers={"Origin": origin, **OWN_HEADER})
    assert answer.status == 403
    assert "origin" in answer.error


def test_an_upload_from_a_page_of_another_origin_is_refused(either: Service) -> None:
    body, headers = multipart("evil.py", b"import os")
    answer = either.ask("POST", "/jars/upload", body, {**headers, "Origin": "http://evil.example"})
    assert answer.status == 403
    assert either.gateway.stored == {}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_site_can_only_link_to_reads(either: Service, site: str) -> None:
    navigation = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
    assert either.ask("GET", "/jobs", headers=navigation).status == 200
    assert either.ask("GET", "/jobs", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}).status == 403
    reads = (("GET", YARN_CANCEL), ("GET", YARN_CANCEL + "/"), ("GET", "/jars/x/plan"), ("GET", "/v1/jars/x/plan/"))
    for method, path in (*reads, ("DELETE", "/cluster"), ("POST", "/jars/upload"), ("PATCH", CANCEL)):
        assert either.ask(method, path, headers={**navigation, **OWN_HEADER}).status == 403
    assert not any(each[0] == "cancel" for each in either.gateway.asked)


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=XX", "text/plain"]
)
@pytest.mark.parametrize(
    "marks",
    [
        {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"},
        {"Referer": "http://evil.example/"},
        {"Cookie": "a=b"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "{own}"},
    ],
    ids=lambda marks: next(iter(marks)),
)
def test_a_form_of_a_browser_is_refused_without_a_token(opened: Service, kind: str, marks: dict[str, str]) -> None:
    marks = {name: value.format(own=origin_of(opened)) for name, value in marks.items()}
    body, _ = multipart("evil.py", b"import os")
    answer = opened.ask("POST", "/jars/upload", body, {"Content-Type": kind, **marks})
    assert answer.status == 403
    assert "X-Penstock-Request" in answer.error
    assert opened.gateway.stored == {}


def test_the_own_page_acts_with_json_or_the_own_header(opened: Service) -> None:
    page = {"Origin": origin_of(opened), "Sec-Fetch-Site": "same-origin", "User-Agent": "Mozilla/5.0"}
    opened.gateway.asked.clear()
    assert opened.ask("PATCH", CANCEL, headers=page).status == 403
    assert opened.ask("PATCH", CANCEL, {}, page).status == 202
    assert opened.ask("PATCH", CANCEL, headers={**page, **OWN_HEADER}).status == 202
    assert opened.gateway.asked == [("cancel", JOB)] * 2


def test_a_client_that_is_not_a_browser_acts_without_headers(opened: Service) -> None:
    opened.gateway.asked.clear()
    assert opened.ask("PATCH", CANCEL).status == 202
    assert opened.ask("POST", f"/jobs/{JOB}/savepoints", b'{"target-directory": "/s"}').status == 202
    body, headers = multipart("job.py", b"")
    assert opened.ask("POST", "/jars/upload", body, headers).status == 200
    opened.gateway.stored.clear()


def test_cancelling_with_get_needs_the_own_header_or_the_token(opened: Service, closed: Service) -> None:
    for service in (opened, closed):
        service.gateway.asked.clear()
    for path in (YARN_CANCEL, YARN_CANCEL + "/", "/v1" + YARN_CANCEL, YARN_CANCEL.replace("yarn", "%79arn")):
        assert opened.get(path).status == 403
    assert closed.get(YARN_CANCEL, Authorization="").status == 401
    assert opened.gateway.asked == closed.gateway.asked == []
    assert opened.ask("GET", YARN_CANCEL, headers=OWN_HEADER).status == 202
    assert closed.get(YARN_CANCEL).status == 202
    assert opened.gateway.asked == closed.gateway.asked == [("cancel", JOB)]


def test_a_foreign_websocket_is_refused_before_its_handshake(either: Service) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x"}
    answer = either.ask("GET", "/socket", headers={**upgrade, "Origin": "http://evil.example"})
    assert answer.status == 403


def websocket(rules: AccessRules, headers: dict[str, str]) -> list[dict[str, Any]]:
    """Return what the middleware sends to a websocket. The application behind it accepts every one."""
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "path": "/socket",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "server": ("127.0.0.1", 8081),
    }
    asyncio.run(AccessControl(app, rules)(scope, receive, send))
    return sent


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:8081", "Origin": "http://evil.example"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Host": "127.0.0.1:8081", "Origin": "null"},
        {"Host": "127.0.0.1:8081", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Host": "127.0.0.1:8081", "Origin": "http://127.0.0.1:8080"},
    ],
)
def test_the_middleware_closes_a_foreign_websocket(headers: dict[str, str]) -> None:
    (closed,) = websocket(AccessRules({}, ""), headers)
    assert (closed["type"], closed["code"]) == ("websocket.close", 1008)


def test_the_middleware_checks_the_token_of_a_websocket() -> None:
    headers = {"Host": "localhost:8081", "Origin": "http://localhost:8081"}
    rules = AccessRules({}, "a-long-enough-token")
    assert websocket(rules, headers)[0]["type"] == "websocket.close"
    admitted = {**headers, "Authorization": "Bearer a-long-enough-token"}
    assert websocket(rules, admitted) == [{"type": "websocket.accept"}]


def test_the_address_that_a_connection_arrived_at_names_the_service() -> None:
    rules = AccessRules({"rest.bind-address": "0.0.0.0"}, "")
    scope = {"type": "http", "method": "GET", "path": "/jobs", "server": ("10.1.2.3", 8081)}
    assert rules.refusal({**scope, "headers": [(b"host", b"10.1.2.3:8081")]}) is None
    assert rules.refusal({**scope, "headers": [(b"host", b"10.1.2.4:8081")]}) is not None
    six = {**scope, "server": ("fe80::1", 8081)}
    assert rules.refusal({**six, "headers": [(b"host", b"[fe80::1]:8081")]}) is None


def test_the_name_of_the_host_is_accepted_only_on_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Node7")
    monkeypatch.setattr("socket.getfqdn", lambda: "node7.example")
    scope = {"type": "http", "method": "GET", "path": "/jobs", "server": ("10.1.2.3", 8081)}

    def accepts(settings: dict[str, str], host: bytes) -> bool:
        return AccessRules(settings, "").refusal({**scope, "headers": [(b"host", host)]}) is None

    for host in (b"node7:8081", b"node7.example:8081"):
        assert accepts({"rest.bind-address": "0.0.0.0"}, host)
        assert accepts({"rest.bind-address": "::"}, host)
        assert not accepts({}, host)
    assert not accepts({"rest.bind-address": "0.0.0.0"}, b"0.example")
    assert accepts({"rest.address": "flows.example"}, b"flows.example")


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "127.8.9.1", "::1", "[::1]"])
def test_loopback_addresses_are_recognized(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.example.org", ""])
def test_other_addresses_are_not_loopback(address: str) -> None:
    assert not is_loopback(address)


def test_refused_actions_do_not_flood_the_audit_log(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        began = time.monotonic()
        for _ in range(300):
            assert service.ask("POST", "/jars/upload", headers={"Authorization": ""}).status == 401
        seconds = int(time.monotonic() - began) + 2
        assert 20 <= len(service.audit()) <= 20 * seconds


def test_refused_actions_are_logged_again_in_the_next_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("penstock.rest.access.time", clock)
    audit = AuditLog(tmp_path / "audit.log", 1 << 20, 1)

    async def never(*arguments: Any) -> None:
        raise AssertionError("the request was not refused")

    async def ignore(message: Any) -> None:
        pass

    guarded = AccessControl(never, AccessRules({}, "t" * 40), audit)
    scope = {"type": "http", "method": "POST", "path": "/jars/upload", "headers": [(b"host", b"localhost")]}
    for clock.now, lines in ((100.0, 20), (100.9, 20), (101.0, 40), (105.0, 60)):
        for _ in range(30):
            asyncio.run(guarded(scope, never, ignore))
        assert len((tmp_path / "audit.log").read_text().splitlines()) == lines
    audit.close()


@pytest.mark.parametrize("mark", [(b"cookie", b"a=b"), (b"referer", b"http://localhost"), (b"sec-fetch-mode", b"cors")])
@pytest.mark.parametrize("agent", [b"Mozilla/5.0", b"another"])
def test_a_browser_is_recognized_by_any_of_its_headers_in_any_order(mark: tuple[bytes, bytes], agent: bytes) -> None:
    rules = AccessRules({}, "")
    headers = [(b"host", b"localhost"), mark, (b"user-agent", agent), (b"content-type", b"text/plain")]
    for given in permutations(headers):
        refusal = rules.refusal({"type": "http", "method": "POST", "path": "/jars/upload", "headers": list(given)})
        assert refusal is not None
        assert refusal.status == 403


def test_actions_are_audited_with_peer_job_and_outcome(tmp_path: Path) -> None:
    with served(tmp_path) as closed:
        closed.ask("PATCH", CANCEL)
        closed.ask("PATCH", f"/jobs/{'f' * 32}?mode=cancel&secret=hunter2")
        closed.ask("PATCH", CANCEL, headers={"Authorization": "Bearer wrong"})
        # A read is not audited, whether it is answered or refused.
        closed.get("/jobs")
        assert closed.get("/jobs", Authorization="Bearer wrong").status == 401
        lines = closed.audit()
    assert [(line["action"], line["job"], line["outcome"]) for line in lines] == [
        ("PATCH /jobs/:jobid", JOB, 202),
        ("PATCH /jobs/:jobid", "f" * 32, 404),
        (f"PATCH /jobs/{JOB}", "", 401),
    ]
    assert all(line["peer"].startswith("127.0.0.1:") and line["at"] > 0 for line in lines)
    assert "hunter2" not in str(lines)
    assert closed.token not in str(lines)
    assert (closed.folder / "audit.log").stat().st_mode & 0o077 == 0
