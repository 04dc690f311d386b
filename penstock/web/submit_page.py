"""Submit a program: choose a file, arguments and settings, compare it with a savepoint, and start it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from nicegui import events, ui

from penstock.common.options import OPTIONS, BadSetting
from penstock.common.options.definition import Option
from penstock.common.options.service import SERVICE_PREFIXES
from penstock.common.wall_clock import now_ms
from penstock.errors import PenstockError
from penstock.web.board import Board
from penstock.web.dry_run_view import dry_run_view
from penstock.web.markup import Markup, job_path, join, tag
from penstock.web.quantities import duration

_CLAIM_MODES = {
    "NO_CLAIM": "Leave the savepoint unchanged",
    "CLAIM": "The job owns the savepoint, and deletes it when it no longer needs it",
}


def job_settings() -> dict[str, str]:
    """Return the settings that a job can have, with their meanings."""
    return {
        key: f"{key}: {option.meaning}"
        for key, option in sorted(OPTIONS.items())
        if not key.startswith(SERVICE_PREFIXES)
    }


def with_setting(text: str, key: str) -> str:
    """Return the settings with a line for one more key, and its default for the user to change."""
    lines = [line for line in text.splitlines() if line.strip()]
    if any(line.partition(":")[0].strip() == key for line in lines):
        return text
    return "\n".join([*lines, f"{key}: {_default(OPTIONS[key])}"])


def _default(option: Option[Any]) -> str:
    """Return the default as a user writes it; empty if the reference only describes it."""
    try:
        return option.default_text if option.type.parse(option.key, option.default_text) == option.default else ""
    except BadSetting:
        return ""


class _Form:
    """The form of one viewer."""

    def __init__(self, board: Board, savepoint: str) -> None:
        self._board = board
        with ui.element("div").classes("form"):
            self._upload = ui.upload(
                label="Upload a program: .py, .zip or .whl", on_upload=self._uploaded, auto_upload=True
            )
            self._upload.props(f'flat bordered accept=".py,.zip,.whl" max-file-size={board.service.max_content}')
            self._program = ui.select({}, label="Program").props("outlined dense stack-label")
            self._arguments = ui.input("Arguments").props("outlined dense stack-label")
            self._keys = ui.select(job_settings(), label="Add a setting", with_input=True, on_change=self._add_setting)
            self._keys.props('outlined dense stack-label options-dense popup-content-class="setting-keys"')
            self._settings = ui.textarea("Settings, one per line: key: value").props(
                "outlined dense stack-label autogrow"
            )
            self._savepoint = ui.input("Resume from a savepoint (path or URI)", value=savepoint)
            self._savepoint.props("outlined dense stack-label")
            self._claim = ui.select(_CLAIM_MODES, label="Afterwards", value="NO_CLAIM").props(
                "outlined dense stack-label"
            )
            self._skip = ui.checkbox("Skip state of the savepoint that the program does not have")
            self._claim.bind_visibility_from(self._savepoint, "value")
            self._skip.bind_visibility_from(self._savepoint, "value")
            with ui.element("div").classes("browser"):
                _button("Submit", lambda: self._submit(dry=False)).classes("go")
                _button("Dry run", lambda: self._submit(dry=True))
        self._result = ui.html("", sanitize=False)

    async def start(self) -> None:
        """Offer the programs that were uploaded before."""
        try:
            await self._offer(None)
        except PenstockError as error:
            self._show(_problem(error))

    async def _offer(self, chosen: str | None) -> None:
        now = now_ms()
        programs = await self._board.programs()
        options = {each.id: f"{each.name}, uploaded {duration(now - each.uploaded_ms)} ago" for each in programs}
        self._program.set_options(options, value=chosen if chosen in options else None)

    async def _uploaded(self, event: events.UploadEventArguments) -> None:
        self._upload.reset()
        path = self._board.service.uploads / secrets.token_hex(16)
        try:
            await event.file.save(path)
            stored = await self._board.upload(event.file.name, path)
            await self._offer(stored.id)
        except PenstockError as error:
            self._show(_problem(error))
            return
        finally:
            path.unlink(missing_ok=True)
        self._show(tag("p", "Uploaded ", tag("code", stored.name), ". It does not run yet.", role="status"))

    def _add_setting(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value:
            self._settings.value = with_setting(self._settings.value or "", event.value)
            self._keys.value = None

    async def _submit(self, *, dry: bool) -> None:
        if not self._program.value:
            self._show(tag("p", "Choose a program first.", class_="reason", role="alert"))
            return
        self._show(tag("p", "Comparing …" if dry else "Submitting …", role="status"))
        try:
            found = await self._board.submit(
                self._program.value,
                self._arguments.value,
                self._settings.value,
                self._savepoint.value,
                claim_mode=self._claim.value,
                skip_missing=self._skip.value,
                dry_run=dry,
            )
        except PenstockError as error:
            self._show(_problem(error))
            return
        if dry:
            self._show(dry_run_view(found))
        else:
            self._show(tag("p", "Submitted: ", tag("a", found, href=job_path(found)), role="status"))

    def _show(self, contents: Markup) -> None:
        self._result.set_content(contents)


def submit_form(board: Board, savepoint: str = "") -> None:
    """Show the form. It resumes from a savepoint if one is given."""
    form = _Form(board, savepoint)
    ui.timer(0, form.start, once=True)


def _button(name: str, action: Callable[[], object]) -> ui.button:
    return ui.button(name, on_click=action, color=None).props("flat no-caps")


def _problem(error: PenstockError) -> Markup:
    fix = join(tag("b", "Next: "), error.fix) if error.fix else None
    return tag("p", error.statement(), " ", fix, class_="reason", role="alert")
