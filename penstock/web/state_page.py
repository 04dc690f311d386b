"""The state browser: choose a moment and a state, look up a key, page through the rows, and export them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from nicegui import ui

from penstock.driver.job_snapshot import JobSnapshot
from penstock.errors import PenstockError
from penstock.tables.checkpoint import NotACheckpoint
from penstock.tables.snapshot import Snapshot
from penstock.web import state_reader
from penstock.web.board import Board
from penstock.web.markup import Markup, join, tag
from penstock.web.state_view import history_view, key_view, rows_view

T = TypeVar("T")

_EMPTY_S = 3.0
"""After how many seconds an empty state is read again."""
_BUSY = tag("p", "Reading …", class_="quiet", role="status")


class _Browser:
    """The controls and results of one viewer."""

    def __init__(self, board: Board, job: JobSnapshot) -> None:
        self._board = board
        self._job = job
        self._offset = 0
        self._moments: dict[str, str] = {}
        with ui.element("div").classes("browser"):
            self._moment = ui.select({}, label="Moment", on_change=self._show_states).props("outlined dense")
            self._path = ui.input("Or the path of a savepoint").props("outlined dense").classes("wide")
            _button("Open", self._open_path)
        with ui.element("div").classes("browser"):
            self._state = ui.select({}, label="Operator and state", on_change=self._show_state).props("outlined dense")
            self._key = ui.input("Key").props("outlined dense").on("keydown.enter", self._look_up)
            _button("Look up", self._look_up)
            _button("History", self._history)
        self._examples = ui.html("", sanitize=False)
        with ui.element("div").classes("browser"):
            self._search = ui.input("Rows that contain").props("outlined dense").on("keydown.enter", self._first)
            _button("First rows", self._first)
            _button("Next rows", self._next)
            _button("Export CSV", self._export("csv"))
            _button("Export Parquet", self._export("parquet"))
            _button("Code for pandas", self._snippet)
        self._note = ui.html("", sanitize=False)
        self._result = ui.html("", sanitize=False).props('role=region aria-label="Result"')

    async def start(self) -> None:
        """Show the moments of the job."""
        found = await self._read(lambda: state_reader.moments(self._job))
        if found is None:
            return
        self._moments = found
        self._moment.set_options(dict(found), value=next(iter(found), None))
        note = state_reader.retention_note(found)
        if not found:
            note = "The job has no checkpoint that this page can read. Make a savepoint, or set state.checkpoints.dir."
        self._note.set_content(tag("p", note, class_="quiet") if note else "")

    async def _again(self) -> None:
        await self.start()
        await self._show_states()

    async def _open_path(self) -> None:
        path = self._path.value.strip()
        if path:
            self._moments[path] = path
            self._moment.set_options(dict(self._moments), value=path)

    async def _show_states(self) -> None:
        if self._moment.value is None:
            return
        found = await self._read(lambda: self._of_moment(lambda snapshot: state_reader.states(snapshot)))
        if found is None:
            return
        options = {
            f"{each.uid}\n{each.name}": f"{each.operator} · {each.name} ({each.kind})"
            + (f", lives {each.ttl_ms} ms" if each.ttl_ms is not None else "")
            for each in found
        }
        same = self._state.value if self._state.value in options else next(iter(options), None)
        self._state.set_options(options, value=same)
        if same is None:
            self._show(tag("p", "This moment has no state.", class_="quiet"))
        else:
            await self._show_state()

    async def _show_state(self) -> None:
        if self._state.value is None:
            return
        uid, name = self._chosen()
        found = await self._read(lambda: self._of_moment(lambda snapshot: state_reader.examples(snapshot, uid, name)))
        shown = [join(" ", tag("code", each[:60])) for each in found or ()]
        self._examples.set_content(tag("p", "Keys, for example:", *shown, class_="quiet") if shown else "")
        await self._first()

    async def _look_up(self) -> None:
        key = self._key.value
        uid, name = self._chosen()
        found = await self._read(
            lambda: self._of_moment(lambda snapshot: state_reader.look_up(snapshot, uid, name, key, self._job))
        )
        if found is not None:
            self._show(key_view(key, found))

    async def _history(self) -> None:
        key = self._key.value
        uid, name = self._chosen()
        found = await self._read(
            lambda: self._of_moment(lambda snapshot: state_reader.versions(self._job, snapshot, uid, name, key))
        )
        if found is not None:
            self._show(history_view(key, found))

    async def _first(self) -> None:
        self._offset = 0
        await self._page()

    async def _next(self) -> None:
        self._offset += state_reader.PAGE_ROWS
        await self._page()

    async def _page(self) -> None:
        if self._state.value is None:
            return
        uid, name = self._chosen()
        containing, offset = self._search.value.strip(), self._offset
        found = await self._read(
            lambda: self._of_moment(lambda snapshot: state_reader.page_of(snapshot, uid, name, offset, containing))
        )
        if found is not None:
            self._show(rows_view(found))
            if not found.rows and not containing and not offset and self._moment.value == state_reader.NEWEST:
                # A job that has just started: its next checkpoints have rows.
                with self._note:
                    ui.timer(_EMPTY_S, self._first, once=True)

    def _export(self, form: str) -> Callable[[], Any]:
        async def export() -> None:
            uid, name = self._chosen()
            data = await self._read(
                lambda: self._of_moment(lambda snapshot: state_reader.exported(snapshot, uid, name, form))
            )
            if data is not None:
                self._show(tag("p", f"Exported {len(data):,} bytes."))
                ui.download.content(data, f"state.{form}")

        return export

    def _snippet(self) -> None:
        if self._state.value is None:
            return
        uid, name = self._chosen()
        self._show(tag("pre", state_reader.snippet(self._job, self._moment.value, uid, name), tabindex="0"))

    def _chosen(self) -> tuple[str, str]:
        uid, _, name = (self._state.value or "\n").partition("\n")
        return uid, name

    def _of_moment(self, read: Callable[[Snapshot], T]) -> T:
        return state_reader.read_moment(self._job, self._moment.value or state_reader.NEWEST, read)

    async def _read(self, read: Callable[[], T]) -> T | None:
        """Read in a thread. A failure is shown, with the next step."""
        self._job = self._board.job(self._job.id)
        self._show(_BUSY)
        try:
            found = await asyncio.to_thread(read)
        except PenstockError as error:
            fix = join(tag("b", "Next: "), error.fix) if error.fix else None
            self._show(tag("p", error.statement(), " ", fix, class_="reason", role="alert"))
            if isinstance(error, NotACheckpoint) and self._moment.value == state_reader.NEWEST:
                # The job has just started, and completes its first checkpoint soon.
                with self._note:
                    ui.timer(_EMPTY_S, self._again, once=True)
            return None
        self._show(Markup(""))
        return found

    def _show(self, contents: Markup) -> None:
        self._result.set_content(contents)


def _button(name: str, action: Callable[[], Any]) -> None:
    ui.button(name, on_click=action, color=None).props("flat no-caps")


def state_browser(board: Board, job: JobSnapshot) -> None:
    """Show the state browser of a job."""
    browser = _Browser(board, job)
    ui.timer(0, browser.start, once=True)
