"""The state browser: choose a moment and a state, look up a key, search, compare two moments, and export rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from nicegui import ui

from penstock.driver.job_snapshot import JobSnapshot
from penstock.errors import PenstockError
from penstock.query.errors import QueryError
from penstock.tables.checkpoint import NotACheckpoint
from penstock.tables.snapshot import Snapshot, StateInfo
from penstock.web import live_state, served_state, state_reader
from penstock.web.board import Board
from penstock.web.markup import Markup, join, tag
from penstock.web.reading import Reading, ReadStopped
from penstock.web.state_comparison import Compared, compare_moments
from penstock.web.state_view import comparison_view, history_view, key_view, rows_view

T = TypeVar("T")

_EMPTY_S = 3.0
"""After how many seconds an empty state is read again."""
_PROGRESS_S = 0.5


class _Browser:
    """The controls and results of one viewer."""

    def __init__(self, board: Board, job: JobSnapshot, moment: str) -> None:
        self._board = board
        self._job = job
        self._first_moment = moment
        self._offset = 0
        self._moments: dict[str, str] = {}
        self._compared: Compared | None = None
        self._reading: Reading | None = None
        with _group():
            self._moment = ui.select({}, label="Moment", on_change=self._show_states).props(
                "outlined dense stack-label"
            )
            self._state = ui.select({}, label="Operator and state", on_change=self._show_state).props(
                "outlined dense stack-label"
            )
            self._path = ui.input("Or the path of a savepoint").props("outlined dense stack-label").classes("wide")
            _button("Open", self._open_path)
        with _group():
            self._key = ui.input("Key").props("outlined dense stack-label").on("keydown.enter", self._look_up)
            _button("Look up", self._look_up)
            _button("History", self._history)
            self._examples = ui.element("div").classes("examples")
        with _group():
            self._search = ui.input("Rows where", placeholder='value.price > 10 and key contains "a"').classes("wide")
            self._search.props("outlined dense stack-label").on("keydown.enter", self._first)
            _button("Search", self._first)
            _button("Next page", self._next)
        with _group():
            self._other = ui.select({}, label="Compare with").props("outlined dense stack-label")
            _button("Compare", self._compare)
            _button("Export CSV", self._export("csv"))
            _button("Export Parquet", self._export("parquet"))
            _button("Code for pandas", self._snippet)
        self._note = ui.html("", sanitize=False)
        with _group().classes("progress") as self._progress:
            self._status = ui.html("", sanitize=False).props("role=status")
            _button("Stop reading", self._stop)
        self._progress.set_visibility(False)
        self._result = ui.html("", sanitize=False).props('role=region aria-label="Result"')

    async def start(self) -> None:
        """Show the moments of the job."""
        found = await self._read(lambda reading: state_reader.moments(self._job))
        if found is None:
            return
        if served_state.is_served_only(self._job):
            found = {state_reader.NEWEST: "now", **found}
        self._moments = found
        if self._first_moment:
            self._moments.setdefault(self._first_moment, state_reader.savepoint_label(self._first_moment))
        first = self._first_moment or next(iter(found), None)
        self._moment.set_options(dict(found), value=first)
        self._offer_others()
        note = served_state.memory_note(self._job) or state_reader.retention_note(found)
        self._note.set_content(tag("p", note, class_="quiet") if note else "")

    async def _again(self) -> None:
        if self._moment.value != state_reader.NEWEST:
            # The viewer has chosen another moment meanwhile.
            return
        await self.start()
        await self._show_states()

    async def _open_path(self) -> None:
        path = self._path.value.strip()
        if path:
            self._moments[path] = state_reader.savepoint_label(path)
            self._moment.set_options(dict(self._moments), value=path)
            self._offer_others()

    def _offer_others(self) -> None:
        others = {place: name for place, name in self._moments.items() if place != self._moment.value}
        chosen = self._other.value if self._other.value in others else next(iter(others), None)
        self._other.set_options(others, value=chosen)

    async def _show_states(self) -> None:
        if self._moment.value is None:
            return
        self._offer_others()
        found = await self._read(lambda _: self._states())
        if found is None:
            return
        options = {
            f"{each.uid}\n{each.name}": f"{each.operator} · {each.name} ({each.kind})"
            + (f", lives {each.ttl_ms} ms" if each.ttl_ms is not None else "")
            for each in found
        }
        same = self._state.value if self._state.value in options else next(iter(options), None)
        unchanged = same == self._state.value
        self._state.set_options(options, value=same)
        if same is None:
            self._show(tag("p", "This moment has no state.", class_="quiet"))
        elif unchanged:
            await self._show_state()

    async def _show_state(self) -> None:
        if self._state.value is None:
            return
        uid, name = self._chosen()
        found = await self._read(lambda _: self._examples_of(uid, name))
        self._examples.clear()
        if found is not None and found.keys:
            with self._examples:
                ui.html(tag("span", f"Keys are of type {found.kind}. Examples:", class_="quiet"), sanitize=False)
                for each in found.keys:
                    _button(each if len(each) <= 40 else f"{each[:40]}…", self._choose(each))
        self._search.value = ""
        await self._first()

    def _choose(self, key: str) -> Callable[[], Any]:
        async def choose() -> None:
            self._key.value = key
            await self._look_up()

        return choose

    async def _look_up(self) -> None:
        if not self._has_state():
            return
        key = self._key.value
        uid, name = self._chosen()
        settings, now = self._settings, self._moment.value == state_reader.NEWEST

        def look_up(snapshot: Snapshot) -> state_reader.FoundKey:
            # The job can have been rescaled since the last read.
            if now:
                return live_state.look_up_now(snapshot, self._job, settings, uid, name, key)
            return state_reader.look_up(snapshot, uid, name, key, self._job)

        if self._served:
            found = await self._read(lambda _: served_state.look_up(self._job, settings, uid, name, key))
        else:
            found = await self._read(lambda _: self._of_moment(look_up))
        if found is not None:
            self._show(key_view(key, found))

    async def _history(self) -> None:
        if not self._has_state():
            return
        key = self._key.value
        uid, name = self._chosen()
        found = await self._read(
            lambda _: self._of_moment(lambda snapshot: state_reader.versions(self._job, snapshot, uid, name, key))
        )
        if found is not None:
            self._show(history_view(key, found))

    async def _compare(self) -> None:
        if not self._has_state():
            return
        before, after = self._other.value, self._moment.value
        if before is None or after is None:
            self._show(tag("p", "The job has one moment. Enter the path of a savepoint, and open it.", role="alert"))
            return
        uid, name = self._chosen()
        found = await self._read(lambda reading: compare_moments(self._job, before, after, uid, name, reading))
        if found is not None:
            self._compared, self._offset = found, 0
            self._show(comparison_view(found, 0))

    async def _first(self) -> None:
        self._offset, self._compared = 0, None
        await self._page()

    async def _next(self) -> None:
        offset = self._offset + state_reader.PAGE_ROWS
        if self._compared is not None:
            if offset < len(self._compared.kept):
                self._offset = offset
                self._show(comparison_view(self._compared, offset))
            return
        self._offset = offset
        await self._page()

    async def _page(self) -> None:
        if not self._has_state():
            return
        uid, name = self._chosen()
        where, offset, moment = self._search.value.strip(), self._offset, self._moment.value
        settings = self._settings

        def page(snapshot: Snapshot, reading: Reading) -> state_reader.Rows:
            if moment == state_reader.NEWEST:
                return live_state.page_now(snapshot, self._job, settings, uid, name, offset, where, reading)
            return state_reader.page_of(snapshot, uid, name, offset, where, reading)

        if self._served:
            found = await self._read(
                lambda reading: served_state.page(self._job, settings, uid, name, offset, where, reading)
            )
        else:
            found = await self._read(lambda reading: self._of_moment(lambda snapshot: page(snapshot, reading)))
        if found is not None:
            self._show(rows_view(found))
            if not found.rows and not where and not offset and moment == state_reader.NEWEST:
                # A job that has just started: its next checkpoints have rows.
                with self._note:
                    ui.timer(_EMPTY_S, self._first, once=True)

    def _export(self, form: str) -> Callable[[], Any]:
        async def export() -> None:
            if not self._has_state():
                return
            uid, name = self._chosen()
            data = await self._read(
                lambda reading: self._of_moment(
                    lambda snapshot: state_reader.exported(snapshot, uid, name, form, reading)
                )
            )
            if data is not None:
                self._show(tag("p", f"Exported {len(data):,} bytes."))
                ui.download.content(data, f"state.{form}")

        return export

    def _snippet(self) -> None:
        if not self._has_state():
            return
        uid, name = self._chosen()
        try:
            self._show(tag("pre", state_reader.snippet(self._job, self._moment.value, uid, name), tabindex="0"))
        except PenstockError as error:
            self._show(_problem(error))

    @property
    def _settings(self) -> Mapping[str, str]:
        return self._board.service.gateway.settings

    def _has_state(self) -> bool:
        """Return whether a state is chosen. None is while the page still reads which ones there are."""
        if self._state.value is None and not self._progress.visible:
            self._show(tag("p", "Choose a state first.", role="alert"))
        return self._state.value is not None

    def _chosen(self) -> tuple[str, str]:
        uid, _, name = (self._state.value or "\n").partition("\n")
        return uid, name

    @property
    def _served(self) -> bool:
        """Whether the state server is the only source of the chosen moment."""
        return self._moment.value == state_reader.NEWEST and served_state.is_served_only(self._job)

    def _states(self) -> list[StateInfo]:
        if self._served:
            return served_state.states(self._job, self._settings)
        return self._of_moment(state_reader.states)

    def _examples_of(self, uid: str, state: str) -> state_reader.Examples:
        if self._served:
            return served_state.examples(self._job, self._settings, uid, state)
        return self._of_moment(lambda snapshot: state_reader.examples(snapshot, uid, state))

    def _of_moment(self, read: Callable[[Snapshot], T]) -> T:
        return state_reader.read_moment(self._job, self._moment.value or state_reader.NEWEST, read)

    def _stop(self) -> None:
        if self._reading is not None:
            self._reading.stop()

    async def _read(self, read: Callable[[Reading], T]) -> T | None:
        """Read in a thread, and show the progress. A failure is shown, with the next step. A new read ends the last."""
        self._job = self._board.job(self._job.id)
        self._stop()
        reading = self._reading = Reading()
        self._show(Markup(""))
        try:
            found = await self._watched(reading, read)
        except ReadStopped as stopped:
            if self._reading is reading:
                self._show(tag("p", str(stopped), class_="quiet"))
            return None
        except PenstockError as error:
            self._show(_problem(error))
            if self._moment.value == state_reader.NEWEST and isinstance(error, (NotACheckpoint, QueryError)):
                # The job has just started: its first checkpoint, or its state server, comes soon.
                with self._note:
                    ui.timer(_EMPTY_S, self._again, once=True)
            return None
        return found if self._reading is reading else None

    async def _watched(self, reading: Reading, read: Callable[[Reading], T]) -> T:
        self._status.set_content(tag("span", reading.text, class_="quiet"))
        self._progress.set_visibility(True)
        try:
            async with self._board.readers:
                task = asyncio.ensure_future(asyncio.to_thread(read, reading))
                while not (await asyncio.wait({task}, timeout=_PROGRESS_S))[0]:
                    if self._result.is_deleted:
                        # The viewer has left.
                        reading.stop()
                    else:
                        self._status.set_content(tag("span", reading.text, class_="quiet"))
                return task.result()
        finally:
            if self._reading is reading:
                self._progress.set_visibility(False)

    def _show(self, contents: Markup) -> None:
        self._result.set_content(contents)


def _problem(error: PenstockError) -> Markup:
    fix = join(tag("b", "Next: "), error.fix) if error.fix else None
    return tag("p", error.statement(), " ", fix, class_="reason", role="alert")


def _group() -> ui.element:
    return ui.element("div").classes("browser")


def _button(name: str, action: Callable[[], Any]) -> None:
    ui.button(name, on_click=action, color=None).props("flat no-caps")


def state_browser(board: Board, job: JobSnapshot, moment: str = "") -> None:
    """Show the state browser of a job, at a moment or the newest one."""
    browser = _Browser(board, job, moment)
    ui.timer(0, browser.start, once=True)
