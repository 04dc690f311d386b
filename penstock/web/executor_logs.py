"""The logs of executors: files on this host, and links to the pages of Spark that show them."""

from __future__ import annotations

import socket
import stat
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from penstock.driver.job_snapshot import JobSnapshot
from penstock.web.markup import Child, Markup, join, table, tag
from penstock.web.quantities import NONE

_DRIVER = "driver"
"""Spark's name of the executor inside the driver."""
_FILES = ("stderr", "stdout")
"""The logs that Spark's standalone workers keep in the working directory of an executor."""


def local_logs(job: JobSnapshot) -> dict[str, Path]:
    """Return the log files of the executors that run on this host, by the name to show."""
    found = {}
    here = socket.gethostname()
    for each in job.executors:
        for name in _FILES if each.directory and each.host == here else ():
            path = Path(each.directory, name)
            # Opening a pipe would wait, and a link can lead anywhere.
            with suppress(OSError, ValueError):
                if stat.S_ISREG(path.lstat().st_mode):
                    found[f"executor {each.id}: {name}"] = path
    return found


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
