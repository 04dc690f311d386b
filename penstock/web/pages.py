"""The pages, as NiceGUI serves them. Their contents come from functions of snapshots, and refresh themselves.

Contents replace the HTML of one element, so a refresh of an unchanged page sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Request
from nicegui import ui

from penstock.common.wall_clock import now_ms
from penstock.driver.control_messages import MakeSavepoint, Operable, Rescale, Stop
from penstock.driver.job_snapshot import JobSnapshot
from penstock.errors import PenstockError
from penstock.rest.views.shared import ENDED
from penstock.web.board import Board
from penstock.web.chart_page import job_charts
from penstock.web.job_sections import SECTIONS, heading, navigation, parallelism_now, vertex_section
from penstock.web.log_page import job_logs
from penstock.web.markup import Markup, join, tag
from penstock.web.notices import ended, failed, in_progress
from penstock.web.savepoints import savepoint_list
from penstock.web.state_page import state_browser
from penstock.web.submit_page import submit_form

BOARD = "penstock.board"
"""Where a request has its board."""


def _board(request: Request) -> Board:
    board: Board = request.scope[BOARD]
    return board


def live(render: Callable[[], Markup], every_s: float) -> Callable[[], None]:
    """Show contents and keep them current, and return what refreshes them at once.

    An error is shown in their place, and the next refresh tries again.
    """

    def contents() -> Markup:
        try:
            return render()
        except PenstockError as error:
            return tag("p", f"{error.statement()} {error.fix or ''}", class_="reason", role="alert")

    shown = ui.html(contents(), sanitize=False).classes("live")

    def refresh() -> None:
        new = contents()
        if new != shown.content:
            shown.set_content(new)

    ui.timer(every_s, refresh)
    return refresh


def _frame(board: Board, title: str) -> bool:
    """Show the top of every page, and return whether this service has the jobs."""
    ui.page_title(f"{title} · Penstock")
    top = tag(
        "header",
        tag("a", "Skip to the contents", href="#contents", class_="skip"),
        tag("a", "Penstock", href="/web/", class_="brand"),
        class_="top",
    )
    ui.html(top, sanitize=False)
    leader = board.elsewhere()
    if leader:
        text = f"This Dispatcher stands by. The one that leads is {leader}; open its page instead."
        ui.html(tag("p", text, class_="reason"), sanitize=False)
    return not leader


@ui.page("/", title="Penstock")
def show_overview(request: Request) -> None:
    """Show all jobs."""
    board = _board(request)
    if _frame(board, "Jobs"):
        with ui.element("div").props('id=contents tabindex="-1"'):
            link = tag("p", tag("a", "Submit a program", href="/web/submit")) if board.accepts_programs else None
            ui.html(join(tag("h1", "Jobs"), link), sanitize=False)
            live(board.overview, board.refresh_s)


@ui.page("/submit", title="Penstock")
def show_submission(request: Request, savepoint: str = "") -> None:
    """Show the form to submit a program."""
    board = _board(request)
    if _frame(board, "Submit a program"):
        with ui.element("div").props('id=contents tabindex="-1"'):
            back = tag("p", tag("a", "All jobs", href="/web/"), class_="crumbs")
            ui.html(join(back, tag("h1", "Submit a program")), sanitize=False).classes("live")
            if board.accepts_programs:
                submit_form(board, savepoint)
            else:
                ui.html(tag("p", "This service accepts no programs.", class_="reason"), sanitize=False)


@ui.page("/jobs/{job_id}", title="Penstock")
def show_job(request: Request, job_id: str) -> None:
    """Show the first section of a job."""
    _job_page(request, job_id, "graph")


@ui.page("/jobs/{job_id}/{section}", title="Penstock")
def show_section(request: Request, job_id: str, section: str, vertex: str = "", moment: str = "") -> None:
    """Show a section of a job: one chain of the graph, or the state at one moment, if the link names it."""
    _job_page(request, job_id, section, vertex, moment)


def _job_page(request: Request, job_id: str, section: str, vertex: str = "", moment: str = "") -> None:
    board = _board(request)
    if not _frame(board, "Job"):
        return
    with ui.element("div").props('id=contents tabindex="-1"'):
        try:
            job = board.job(job_id)
        except PenstockError as error:
            ui.html(
                join(tag("h1", "No such job"), tag("p", error.statement()), tag("a", "All jobs", href="/web/")),
                sanitize=False,
            )
            return
        ui.page_title(f"{job.name} · Penstock")
        live(lambda: heading(board.job(job_id), board.watches.of(job_id), now_ms()), board.refresh_s)
        _actions(board, job)
        extra = ("logs", "state") if board.shows_state else ("logs",)
        ui.html(navigation(job, section, extra), sanitize=False)
        if section == "state" and board.shows_state:
            state_browser(board, job, moment)
            return
        if section == "logs":
            job_logs(board, job)
            return
        if section == "charts":
            job_charts(board, job, lambda render: live(render, board.refresh_s))
            return
        if section == "checkpoints":
            savepoint_list(board, job_id)
        if section not in SECTIONS:
            ui.html(tag("p", f"Section '{section}' does not exist."), sanitize=False)
            return

        def contents() -> Markup:
            job = board.job(job_id)
            more = vertex_section(job, vertex) if vertex and section == "graph" else None
            return join(SECTIONS[section](job, board.watches.of(job_id)), more)

        live(contents, board.refresh_s)


# -- actions -----------------------------------------------------------------------------------------------------------


def _actions(board: Board, job: JobSnapshot) -> None:
    if job.state in ENDED:
        return
    with ui.element("div").classes("actions"):
        _action(
            board,
            job,
            "Savepoint",
            "Make a savepoint. The job continues.",
            lambda directory: MakeSavepoint(directory=directory),
        )
        _action(
            board,
            job,
            "Stop",
            "Make a savepoint and end the job. Windows and timers do not fire.",
            lambda directory: Stop(directory=directory),
        )
        _action(
            board,
            job,
            "Drain",
            "End the input, which fires all windows and timers, make a savepoint and end the job. The savepoint is "
            "not meant to be resumed from.",
            lambda directory: Stop(directory=directory, drain=True),
        )
        _rescale(board, job)
        if board.service.cancel:
            _cancel(board, job)


def _button(text: str, act: Callable[[], Any], *, danger: bool = False) -> None:
    ui.button(text, on_click=act, color=None).props("flat no-caps").classes("danger" if danger else "")


def _action(board: Board, job: JobSnapshot, name: str, text: str, asked: Callable[[str | None], Operable]) -> None:
    with ui.dialog() as dialog, ui.card().classes("ask"):
        ui.label(f"{name}: {job.name}").classes("ask-title")
        ui.label(text)
        directory = ui.input("Directory (empty: the one that the job is configured with)").props(
            "outlined dense stack-label"
        )

        async def go() -> None:
            dialog.close()
            await _perform(board, job, name, asked(directory.value.strip() or None))

        _confirm(dialog, name, go)
    _button(name, dialog.open)


def _rescale(board: Board, job: JobSnapshot) -> None:
    with ui.dialog() as dialog, ui.card().classes("ask"):
        ui.label(f"Rescale: {job.name}").classes("ask-title")
        text = ui.label()
        wanted = ui.number("Parallelism", min=1, precision=0).props("outlined dense stack-label")

        async def go() -> None:
            dialog.close()
            await _perform(board, job, "Rescale", Rescale(parallelism=int(wanted.value or 1)))

        _confirm(dialog, "Rescale", go)

    def ask() -> None:
        try:
            now = board.job(job.id)
        except PenstockError as error:
            failed("Rescale", error)
            return
        text.set_text(
            f"The job needs {now.slots.needed} slots now, and {now.slots.available} are available. It continues from "
            "its last checkpoint with the new parallelism."
        )
        wanted.set_value(max([1, *parallelism_now(now)]))
        dialog.open()

    _button("Rescale", ask)


def _cancel(board: Board, job: JobSnapshot) -> None:
    with ui.dialog() as dialog, ui.card().classes("ask"):
        ui.label(f"Cancel: {job.name}").classes("ask-title")
        ui.label("End the job without a savepoint. Records since the last checkpoint are not committed.")

        async def go() -> None:
            dialog.close()
            try:
                await board.cancel(job.id)
            except PenstockError as error:
                failed("Cancel", error)
            else:
                ui.notify("The job is being cancelled.")

        _confirm(dialog, "Cancel the job", go, danger=True)
    _button("Cancel", dialog.open, danger=True)


def _confirm(dialog: Any, name: str, go: Callable[[], Any], *, danger: bool = False) -> None:
    with ui.element("div").classes("ask-buttons"):
        ui.button("Back", on_click=dialog.close, color=None).props("flat no-caps")
        ui.button(name, on_click=go, color=None).props("unelevated no-caps").classes("go danger" if danger else "go")


async def _perform(board: Board, job: JobSnapshot, name: str, asked: Operable) -> None:
    waiting = in_progress(name)
    try:
        found = await board.perform(job.id, asked)
    except PenstockError as error:
        failed(name, error)
        return
    finally:
        waiting.dismiss()
    ended(board.service.masking, name, found)
