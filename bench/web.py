"""`python -m bench.web`: the page in Chromium, of a service with 500 jobs and of a job with 60 chains, with limits.

The jobs are simulated by one process that speaks the control protocol. Takes about two minutes. With `--jobs 5
--chains 5 --seconds 2` it only checks that everything works; it measures nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console

from bench.rows import Rows
from chaos.service.dispatchers import DispatcherProcess
from penstock.common.tokens import read_token
from penstock.rest.contract import MultipleJobsDetails
from penstock.rest.token_file import token_file
from penstock.web.login import login_url

CONTENT_S = 2.0
CPU_MS = 30.0
_PATIENCE_S = 180.0
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


class _Found(NamedTuple):
    content_s: float
    """From the navigation to the useful content."""
    cpu_ms: float
    """CPU of the server per second and viewer, in addition to that without viewers."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.web", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--chains", type=int, default=60)
    parser.add_argument("--viewers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to measure")
    chosen = parser.parse_args()
    rows = Rows(f"the page, with {chosen.viewers} viewers", Console(stderr=True))
    for what, jobs, stages, opened in (
        (f"overview of {chosen.jobs} jobs", chosen.jobs, 4, "#jobs tbody tr"),
        (f"job with {chosen.chains} chains", 1, chosen.chains - 1, "svg.graph a.vertex"),
    ):
        found = _measured(jobs, stages, opened, chosen)
        rows.add(
            f"{what}: useful content", f"{found.content_s:.2f} s", f"≤ {CONTENT_S} s", found.content_s <= CONTENT_S
        )
        rows.add(
            f"{what}: CPU per second and viewer", f"{found.cpu_ms:.1f} ms", f"≤ {CPU_MS} ms", found.cpu_ms <= CPU_MS
        )
    return rows.show(chosen.check)


def _measured(jobs: int, stages: int, selector: str, chosen: argparse.Namespace) -> _Found:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as work:
        node = DispatcherProcess(
            {"cluster.dir": f"{work}/service", "rest.port": "0"}, module="penstock.web.dispatcher_service"
        )
        records, control = Path(work, "service", "records", "default"), Path(work, "simulated")
        with _simulated(records, control, jobs, stages), node:
            client = node.client()
            _until_running(lambda: len(client.get("/jobs/overview", MultipleJobsDetails).jobs), jobs)
            overview = client.get("/jobs/overview", MultipleJobsDetails)
            path = "" if jobs > 1 else f"jobs/{overview.jobs[0].jid}"
            alone = _cpu_per_s(node.pid, chosen.seconds)
            login = login_url(client.address, read_token(token_file(node.settings)))
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_FLAGS)
                content_s = _open(browser, login, f"{client.address}/web/{path}", selector, chosen.viewers)
                watched = _cpu_per_s(node.pid, chosen.seconds)
                browser.close()
    return _Found(content_s, 1000 * (watched - alone) / chosen.viewers)


def _open(browser: Browser, login: str, address: str, selector: str, viewers: int) -> float:
    """Open the page for all viewers, and return how long the last one waited for the content."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(login)
    page.close()
    took = 0.0
    for _ in range(viewers):
        page = context.new_page()
        began = time.monotonic()
        page.goto(address, wait_until="commit")
        page.locator(selector).last.wait_for()
        took = time.monotonic() - began
    return took


def _until_running(count: Callable[[], int], wanted: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while count() != wanted:
        if time.monotonic() > deadline:
            raise SystemExit(f"{wanted} jobs run: not within {_PATIENCE_S:.0f} s")
        time.sleep(0.5)


@contextmanager
def _simulated(records: Path, control: Path, jobs: int, stages: int) -> Iterator[None]:
    words = [str(records), str(control), str(jobs), str(stages)]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.service.simulator", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            if not process.stdout.readline():
                raise SystemExit(f"the simulator ended with {process.wait()}")
            yield
        finally:
            process.terminate()


def _cpu_per_s(pid: int, seconds: float) -> float:
    """Return the CPU seconds per second of a process over some time."""
    before, began = _cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return (_cpu_s(pid) - before) / (time.monotonic() - began)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
