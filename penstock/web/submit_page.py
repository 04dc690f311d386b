"""Submit a program: choose a file, arguments and settings, compare it with a savepoint, and start it."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from nicegui import events, ui

from penstock.errors import PenstockError
from penstock.web.board import Board
from penstock.web.markup import Markup, job_path, join, tag


def submit_form(board: Board) -> None:
    """Show the form."""
    program = ""

    async def uploaded(event: events.UploadEventArguments) -> None:
        nonlocal program
        upload.reset()
        path = board.service.uploads / secrets.token_hex(16)
        try:
            await event.file.save(path)
            stored = await board.upload(event.file.name, path)
        except PenstockError as error:
            show(_problem(error))
            return
        finally:
            path.unlink(missing_ok=True)
        program = stored.id
        show(tag("p", "Uploaded ", tag("code", stored.name), ". It does not run yet.", role="status"))

    async def submit(*, dry: bool) -> None:
        if not program:
            show(tag("p", "Choose a program first.", class_="reason", role="alert"))
            return
        show(tag("p", "Comparing …" if dry else "Submitting …", role="status"))
        try:
            found = await board.submit(program, arguments.value, settings.value, savepoint.value, dry_run=dry)
        except PenstockError as error:
            show(_problem(error))
            return
        if dry:
            show(join(tag("h2", "Dry run"), tag("pre", found, tabindex="0")))
        else:
            show(tag("p", "Submitted: ", tag("a", found, href=job_path(found)), role="status"))

    with ui.element("div").classes("form"):
        upload = ui.upload(label="Program: .py, .zip or .whl", on_upload=uploaded, auto_upload=True)
        upload.props(f'flat bordered accept=".py,.zip,.whl" max-file-size={board.service.max_content}')
        arguments = ui.input("Arguments").props("outlined dense")
        settings = ui.textarea("Settings, one per line: key: value").props("outlined dense")
        savepoint = ui.input("Resume from a savepoint (path or URI)").props("outlined dense")
        with ui.element("div").classes("browser"):
            _button("Dry run", lambda: submit(dry=True))
            _button("Submit", lambda: submit(dry=False))
    result = ui.html("", sanitize=False)

    def show(contents: Markup) -> None:
        result.set_content(contents)


def _button(name: str, action: Callable[[], object]) -> None:
    ui.button(name, on_click=action, color=None).props("flat no-caps")


def _problem(error: PenstockError) -> Markup:
    fix = join(tag("b", "Next: "), error.fix) if error.fix else None
    return tag("p", error.statement(), " ", fix, class_="reason", role="alert")
