"""Which requests reach the page: those of a browser that has logged in, from the service's own pages."""

import asyncio

import pytest
from starlette.responses import PlainTextResponse

from penstock.rest.access import AccessRules
from penstock.web.guard import Guard
from penstock.web.login import login_code

TOKEN = "t" * 43
PAGE, REST = PlainTextResponse("the page"), PlainTextResponse("rest")


async def page(scope, receive, send):
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
    else:
        await PAGE(scope, receive, send)


@pytest.fixture
def guard():
    return Guard(page, REST, AccessRules({}, TOKEN), TOKEN, None)


class Answer:
    def __init__(self, messages):
        start = messages[0]
        self.type = start["type"]
        self.status = start.get("status", 0)
        self.headers = {name.decode(): value.decode() for name, value in start.get("headers", [])}
        self.text = b"".join(each.get("body", b"") for each in messages).decode()


def ask(guard, path, query="", kind="http", method="GET", host="127.0.0.1:8081", **headers):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": f"{kind}.connect"}

    raw = [(b"host", host.encode())]
    raw += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        **{"type": kind, "path": path, "raw_path": path.encode(), "query_string": query.encode(), "headers": raw},
        **{"scheme": "http", "server": ("127.0.0.1", 8081), "client": ("127.0.0.1", 5), "root_path": ""},
    }
    if kind == "http":
        scope["method"] = method
    asyncio.run(guard(scope, receive, send))
    return Answer(sent)


def cookie_of(guard):
    answer = ask(guard, "/web/login", f"code={login_code(TOKEN)}")
    assert answer.status == 303
    return answer.headers["set-cookie"].partition(";")[0]


def test_a_login_link_sets_a_cookie_that_scripts_and_other_sites_cannot_use(guard):
    answer = ask(guard, "/web/login", f"code={login_code(TOKEN)}")
    assert (answer.status, answer.headers["location"]) == (303, "/web/")
    attributes = answer.headers["set-cookie"].lower().split("; ")[1:]
    assert {"httponly", "samesite=strict", "path=/web"} <= set(attributes)
    assert "secure" not in attributes


def test_a_login_link_works_once(guard):
    code = login_code(TOKEN)
    assert ask(guard, "/web/login", f"code={code}").status == 303
    again = ask(guard, "/web/login", f"code={code}")
    assert again.status == 401
    assert "set-cookie" not in again.headers
    assert "penstock web" in again.text


def test_the_page_needs_a_session(guard):
    assert ask(guard, "/web/").status == 401
    assert ask(guard, "/web/", cookie="penstock_session=x").status == 401
    assert ask(guard, "/web/", cookie=cookie_of(guard)).text == "the page"


def test_the_token_of_rest_is_no_session_and_a_session_is_no_token(guard):
    assert ask(guard, "/web/", authorization=f"Bearer {TOKEN}").status == 401
    assert ask(guard, "/jobs", cookie=cookie_of(guard)).text == "rest"


def test_the_root_leads_to_the_page(guard):
    assert ask(guard, "/").headers["location"] == "/web/"
    assert ask(guard, "/web").headers["location"] == "/web/"


@pytest.mark.parametrize("path", ["/webx", "/jobs/web/", "/config"])
def test_other_paths_are_those_of_rest(guard, path):
    assert ask(guard, path).text == "rest"


@pytest.mark.parametrize("path", ["/", "/web/", "/web/login", "/web/jobs/1"])
def test_a_foreign_host_is_refused(guard, path):
    answer = ask(guard, path, f"code={login_code(TOKEN)}", host="evil.example:8081", cookie=cookie_of(guard))
    assert answer.status == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("headers", [{"origin": "http://evil.example"}, {"sec_fetch_site": "cross-site"}])
def test_requests_of_other_sites_are_refused_even_with_the_cookie(guard, headers):
    assert ask(guard, "/web/_nicegui_ws/socket.io/", method="POST", cookie=cookie_of(guard), **headers).status == 403


def test_foreign_websockets_are_refused(guard):
    path, cookie = "/web/_nicegui_ws/socket.io/", cookie_of(guard)
    own = ask(guard, path, kind="websocket", cookie=cookie, origin="http://127.0.0.1:8081")
    assert own.type == "websocket.accept"
    for headers in (
        {"cookie": cookie, "origin": "http://evil.example"},
        {"cookie": cookie, "origin": "http://127.0.0.1:9999"},
        {"cookie": cookie, "origin": "null"},
        {"origin": "http://127.0.0.1:8081"},
        {"cookie": cookie, "host": "evil.example"},
    ):
        assert ask(guard, path, kind="websocket", **headers).type == "websocket.close"


def test_pages_can_load_from_their_own_host_only_and_not_be_framed(guard):
    policy = ask(guard, "/web/", cookie=cookie_of(guard)).headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "http:" not in policy


def test_the_page_needs_no_session_if_tokens_are_off():
    open_guard = Guard(page, REST, AccessRules({}, ""), "", None)
    assert ask(open_guard, "/web/").text == "the page"
    assert ask(open_guard, "/web/", host="evil.example").status == 403
