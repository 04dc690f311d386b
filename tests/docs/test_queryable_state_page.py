"""The examples of docs/query/queryable-state.md form one program, and it runs."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from query_jobs import free_ports

from penstock.query import errors

PAGE = Path(__file__).parents[2] / "docs" / "query" / "queryable-state.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


async def get(app: Any, path: str) -> tuple[int, Any]:
    """Return the status and the content that an ASGI application answers with."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    async with app.router.lifespan_context(app):
        await app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_examples_of_the_queryable_state_page_run(tmp_path: Path) -> None:
    assert len([block for block in BLOCKS if "assert " in block]) == len(BLOCKS) - 3
    port, server_port = free_ports(2)
    token_file = str(tmp_path / "token")
    settings = {
        "queryable-state.proxy.ports": str(port),
        "queryable-state.server.ports": str(server_port),
        "queryable-state.auth.token-file": token_file,
    }
    names: dict[str, Any] = {
        "__name__": "queryable_state_page",
        "settings": settings,
        "port": port,
        "token_file": token_file,
    }
    try:
        for block in BLOCKS:
            exec(compile(block, str(PAGE), "exec"), names)
        assert asyncio.run(get(names["app"], "/totals/ann")) == (200, {"total": 117, "checkpoint": 3})
        assert asyncio.run(get(names["app"], "/totals/eve")) == (404, {"error": "no orders"})
    finally:
        for each in ("client", "server", "job"):
            if each in names:
                names[each].close()


def test_the_page_lists_every_error() -> None:
    documented = set(
        re.findall(r"`([A-Z]\w+)`", PAGE.read_text().partition("## Errors")[2].partition("## Security")[0])
    )
    assert documented - {"True"} == {kind.__name__ for kind in errors.BY_CODE.values()}
