"""The logs of a job's attempts and executors, followed while they grow, and filtered."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nicegui import ui

from penstock.driver.job_snapshot import JobSnapshot
from penstock.web.board import Board
from penstock.web.executor_logs import executor_logs, local_logs
from penstock.web.markup import Markup, tag
from penstock.web.quantities import size

_TAIL = 256 << 10
"""Bytes of a log that the page shows: its end."""


def tail(path: Path, containing: str = "", most: int = _TAIL) -> str:
    """Return the complete lines at the end of a log, or those that contain something."""
    with open(path, "rb") as file:
        start = max(0, path.stat().st_size - most)
        file.seek(start)
        text = file.read().decode(errors="replace")
    if start:
        text = text.partition("\n")[2]
    return "".join(line for line in text.splitlines(keepends=True) if containing.lower() in line.lower())


def job_logs(board: Board, job: JobSnapshot) -> None:
    """Show the logs of a job."""
    shown = ""
    with ui.element("div").classes("browser"):
        files = ui.select({}, label="File").props("outlined dense")
        wanted = ui.input("Lines that contain").props("outlined dense")
    text = ui.html("", sanitize=False)
    apart = ui.html("", sanitize=False)

    def show(contents: Markup) -> None:
        nonlocal shown
        if contents != shown:
            shown = contents
            text.set_content(contents)

    async def refresh() -> None:
        now = board.job(job.id)
        links = executor_logs(now) or ""
        if links != apart.content:
            apart.set_content(links)
        found = {each.name: each for each in await board.service.gateway.logs(job.id)}
        near = await asyncio.to_thread(local_logs, now)
        labels = {name: name for name in near} | {name: f"{name} ({size(each.size)})" for name, each in found.items()}
        if [*files.options] != [*labels]:
            last = next(reversed(labels), None)
            files.set_options(labels, value=files.value if files.value in labels else last)
        log = found.get(files.value or "")
        path = near.get(files.value or "") if log is None else log.path
        if path is None:
            show(tag("p", "The job has no log file: its program writes to the terminal that runs it.", class_="quiet"))
        elif log is not None and log.url:
            show(tag("p", f"This log is on another host. Read it with: penstock logs {job.id}", class_="quiet"))
        else:
            try:
                lines = await asyncio.to_thread(tail, path, wanted.value)
            except OSError as error:
                show(tag("p", f"The log cannot be read: {error.strerror}.", class_="reason"))
            else:
                show(tag("pre", board.service.masking.text(lines) or "No lines.", tabindex="0", class_="tall"))

    ui.timer(board.refresh_s, refresh)
