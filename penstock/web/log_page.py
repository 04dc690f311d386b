"""The logs of a job's attempts, followed while they grow, and filtered; links to Spark's logs of its executors."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

from nicegui import ui

from penstock.driver.job_snapshot import JobSnapshot
from penstock.web.board import Board
from penstock.web.markup import Child, Markup, join, table, tag
from penstock.web.quantities import NONE, size

_TAIL = 256 << 10
"""Bytes of a log that the page shows: its end."""
_DRIVER = "driver"
"""Spark's name of the executor inside the driver."""


def tail(path: Path, containing: str = "", most: int = _TAIL) -> str:
    """Return the complete lines at the end of a log, or those that contain something."""
    with open(path, "rb") as file:
        start = max(0, path.stat().st_size - most)
        file.seek(start)
        text = file.read().decode(errors="replace")
    if start:
        text = text.partition("\n")[2]
    return "".join(line for line in text.splitlines(keepends=True) if containing.lower() in line.lower())


def executor_logs(job: JobSnapshot) -> Markup | None:
    """Return links to the logs of the executors, which Spark keeps. The service never opens them itself."""
    apart = [each for each in job.executors if each.id != _DRIVER]
    if not apart:
        here = "The Python workers run on the host of the program, and write to the same log as the program."
        return tag("p", here, class_="quiet") if job.executors else None
    rows: list[list[Child]] = [
        [
            each.id,
            each.address or NONE,
            join(*(join(_link(name, url), " ") for name, url in sorted(each.logs.items())))
            if each.logs
            else "Spark gives no address. The cluster manager has this log.",
        ]
        for each in apart
    ]
    return join(
        tag("h2", "Executors"),
        tag("p", "Python workers write to the log of their executor. The links open Spark's pages.", class_="quiet"),
        table(["Executor", "Address", "Logs"], rows, label="Logs of executors"),
    )


def _link(name: str, url: str) -> Markup:
    """Return a link to a web page, and any other address as text."""
    try:
        address = urlsplit(url)
        is_page = address.scheme in ("http", "https") and bool(address.hostname)
    except ValueError:
        is_page = False
    if not is_page:
        return tag("span", f"{name}: {url}")
    return tag("a", name, href=url, target="_blank", rel="noopener noreferrer", title=url)


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
        links = executor_logs(board.job(job.id)) or ""
        if links != apart.content:
            apart.set_content(links)
        found = {each.name: each for each in await board.service.gateway.logs(job.id)}
        labels = {name: f"{name} ({size(each.size)})" for name, each in found.items()}
        if [*files.options] != [*labels]:
            last = next(reversed(labels), None)
            files.set_options(labels, value=files.value if files.value in labels else last)
        log = found.get(files.value or "")
        if log is None:
            show(tag("p", "The job has no log file: its program writes to the terminal that runs it.", class_="quiet"))
        elif log.url:
            show(tag("p", f"This log is on another host. Read it with: penstock logs {job.id}", class_="quiet"))
        else:
            try:
                lines = await asyncio.to_thread(tail, log.path, wanted.value)
            except OSError as error:
                show(tag("p", f"The log cannot be read: {error.strerror}.", class_="reason"))
            else:
                show(tag("pre", board.service.masking.text(lines) or "No lines.", tabindex="0", class_="tall"))

    ui.timer(board.refresh_s, refresh)
