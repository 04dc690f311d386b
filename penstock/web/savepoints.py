"""The savepoints of a job: look at their state, resume from one, dispose of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from urllib.parse import urlencode

from nicegui import ui

from penstock.driver.job_snapshot import JobSnapshot
from penstock.errors import PenstockError
from penstock.web.board import Board
from penstock.web.markup import Markup, job_path, join, tag
from penstock.web.notices import ended, failed, in_progress

RESUME = "/web/submit"


def known_savepoints(job: JobSnapshot) -> list[str]:
    """Return the paths of the savepoints that a snapshot lists, newest first."""
    found = [each.path for each in job.checkpoints.history if each.savepoint and each.path]
    latest = job.checkpoints.latest_savepoint
    ended_with = [job.savepoint] if job.savepoint else []
    return [*dict.fromkeys([*ended_with, *([latest.path] if latest is not None and latest.path else []), *found])]


def savepoint_links(board: Board, job: JobSnapshot, path: str) -> Markup:
    """Return the links to what one can do with a savepoint."""
    links = []
    if board.shows_state:
        links.append(tag("a", "Look at its state", href=f"{job_path(job.id, 'state')}?{urlencode({'moment': path})}"))
    if board.accepts_programs:
        links.append(tag("a", "Resume from it", href=f"{RESUME}?{urlencode({'savepoint': path})}"))
    return join(tag("code", path), *links)


def savepoint_list(board: Board, job_id: str) -> None:
    """Show the savepoints of a job, and keep the list current."""
    ask = _disposal(board)
    place = ui.element("div").classes("savepoints")
    shown: list[str] | None = None

    def refresh() -> None:
        nonlocal shown
        try:
            job = board.job(job_id)
        except PenstockError:
            return
        paths = [path for path in known_savepoints(job) if path not in board.disposed]
        if paths == shown:
            return
        shown = paths
        place.clear()
        with place:
            if paths:
                ui.html(tag("h2", "Savepoints"), sanitize=False)
            for path in paths:
                with ui.element("div").classes("savepoint"):
                    ui.html(savepoint_links(board, job, path), sanitize=False).classes("links")
                    button = ui.button("Dispose", on_click=partial(ask, path), color=None)
                    button.props("flat no-caps").classes("danger")

    refresh()
    ui.timer(board.refresh_s, refresh)


def _disposal(board: Board) -> Callable[[str], None]:
    """Return a function that asks whether to delete a savepoint. Its dialog outlives refreshes of the list."""
    path = ""
    with ui.dialog() as dialog, ui.card().classes("ask"):
        ui.label("Dispose of a savepoint").classes("ask-title")
        ui.label("Delete its files. No job can resume from it afterwards. This cannot be undone.")
        named = ui.html("", sanitize=False)

        async def go() -> None:
            dialog.close()
            waiting = in_progress("Disposal")
            try:
                found = await board.dispose(path)
            except PenstockError as error:
                failed("Disposal", error)
                return
            finally:
                waiting.dismiss()
            ended(board.service.masking, "Disposal", found)

        with ui.element("div").classes("ask-buttons"):
            ui.button("Back", on_click=dialog.close, color=None).props("flat no-caps")
            ui.button("Delete the savepoint", on_click=go, color=None).props("unelevated no-caps").classes("go danger")

    def ask(chosen: str) -> None:
        nonlocal path
        path = chosen
        named.set_content(tag("code", chosen))
        dialog.open()

    return ask
