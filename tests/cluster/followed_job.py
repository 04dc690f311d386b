"""A job whose JobManager is a process that does nothing, with a control point within the process of the test."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.cluster.dispatcher import Dispatcher
from penstock.cluster.order import socket_name
from penstock.cluster.processes import _stat, this_process
from penstock.cluster.records import Claim, Planned, Records, Submission, new_job_id
from penstock.control.server import ControlPoint
from penstock.driver.control_messages import Answer, Request
from penstock.driver.job_snapshot import JobSnapshot
from penstock.state.local_storage import LocalStorage

JOB = new_job_id()
SNAPSHOT = JobSnapshot(id=JOB, name="counts", state="RUNNING", attempt=1)


def shorten_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.control.server._FOLLOW_S", 0.02)
    monkeypatch.setattr("penstock.cluster.feed._RETRY_S", 0.02)
    monkeypatch.setattr("penstock.cluster.dispatcher._TICK_S", 0.02)


class FollowedJob:
    """The job runs attempt 1. Subclasses answer requests."""

    def __init__(self, folder: Path) -> None:
        self.records = Records(LocalStorage(str(folder / "ha" / "default")))
        control = folder / "control"
        control.mkdir(mode=0o700)
        self.point = ControlPoint(str(control), socket_name(JOB, 1), self.answer)
        self._process = subprocess.Popen(["sleep", "60"], start_new_session=True)
        submission = Submission(
            id=JOB, name="counts", program="0" * 64, file="a.py", submitted_ms=1, python="3", penstock="1"
        )
        self.records.submit(submission)
        assert self.records.plan(JOB, 1, Planned(leader="first", at_ms=1))
        me, stat = this_process(), _stat(self._process.pid)
        assert stat is not None
        claim = Claim(
            token="t",
            host=me.host,
            boot=me.boot,
            pid=self._process.pid,
            started=stat.started,
            at_ms=1,
            control=str(control),
        )
        assert self.records.claim(JOB, 1, claim)

    def answer(self, request: Request) -> Answer:
        return SNAPSHOT

    def exit(self) -> None:
        self.point.close()
        self._process.kill()
        self._process.wait()


@asynccontextmanager
async def following(folder: Path) -> AsyncIterator[Dispatcher]:
    """A Dispatcher that leads and has received a snapshot of the job."""
    running = Dispatcher({"cluster.dir": str(folder / "d"), "high-availability.storageDir": str(folder / "ha")})
    await running.start("127.0.0.1:1")
    try:
        await until(lambda: running.job(JOB).state == "RUNNING")
        yield running
    finally:
        await running.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)
