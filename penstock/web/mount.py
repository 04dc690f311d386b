"""Puts the page in front of the REST interface of a service. Importing it requires `penstock[web]`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib import resources

from fastapi import FastAPI
from nicegui import ui
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.rest.app import Application
from penstock.web import pages
from penstock.web.board import Board
from penstock.web.guard import PREFIX, Guard


def add_page(rest: Application, settings: Mapping[str, str], token: str) -> ASGIApp:
    """Return the page and the REST interface as one application. See `penstock.rest.assembly.AddPage`."""
    board = Board(rest.service, rest.audit)
    page = _WithBoard(_nicegui(), board)
    return Guard(page, rest, rest.rules, token, rest.audit)


class _WithBoard:
    """Passes the board to the pages, and observes the jobs while the service runs."""

    def __init__(self, app: FastAPI, board: Board) -> None:
        self._app = app
        self._board = board
        lifespan = app.router.lifespan_context

        @asynccontextmanager
        async def watching(parent: FastAPI) -> AsyncIterator[None]:
            async with lifespan(parent):
                task = asyncio.create_task(board.watch())
                try:
                    yield
                finally:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task

        app.router.lifespan_context = watching

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[pages.BOARD] = self._board
        await self._app(scope, receive, send)


def _nicegui() -> FastAPI:
    """Return NiceGUI below `/web`. It has one set of pages per process."""
    app = FastAPI(openapi_url=None)
    files = resources.files("penstock.web")
    ui.add_css(files.joinpath("page.css").read_text(), shared=True)
    ui.add_head_html(f"<script>{files.joinpath('page.js').read_text()}</script>", shared=True)
    ui.run_with(
        app,
        title="Penstock",
        favicon=_ICON,
        dark=None,
        language="en-US",
        tailwind=False,
        binding_refresh_interval=None,
        mount_path=PREFIX,
        show_welcome_message=False,
    )
    return app


_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#1d5fa8"/>'
    '<path d="M6 20c4-7 7 5 11-1s6-6 9-4" fill="none" stroke="#fff" stroke-width="3.4" stroke-linecap="round"/></svg>'
)
