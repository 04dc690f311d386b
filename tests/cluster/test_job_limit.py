"""`cluster.max-jobs`: how many jobs run at the same time, also right after a takeover."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.dispatcher import Dispatcher
from penstock.cluster.gateway import Conflict, NotLeading, RunRequest
from penstock.cluster.leadership import BecomeLeader, StepDown
from penstock.cluster.records import new_job_id
from penstock.cluster.recovery import FoundJob, found_jobs


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.dispatcher._TICK_S", 0.01)
    monkeypatch.setattr("penstock.cluster.dispatcher._FIRST_S", 0.01)
    monkeypatch.setattr("penstock.cluster.supervisor.Supervisor._launch", lambda *arguments: None)


@pytest.fixture
def readable(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A new leader finds the jobs once this is set."""
    event = threading.Event()
    event.set()

    def reading(*arguments: Any) -> Iterator[list[FoundJob]]:
        event.wait(30)
        yield from found_jobs(*arguments)

    monkeypatch.setattr("penstock.cluster.housekeeping.found_jobs", reading)
    yield event
    event.set()


@asynccontextmanager
async def dispatcher(folder: Path, **settings: str) -> AsyncIterator[Dispatcher]:
    given = {key.replace("__", "."): value for key, value in settings.items()}
    running = Dispatcher({"cluster.dir": str(folder / "cluster"), "cluster.max-jobs": "2", **given})
    await running.start("http://h:1")
    try:
        yield running
    finally:
        await running.close()


async def until_ready(running: Dispatcher) -> None:
    async with asyncio.timeout(30):
        while not running.state().ready:
            await asyncio.sleep(0.01)


async def uploaded(running: Dispatcher, folder: Path) -> str:
    (folder / "source").write_text("print()")
    return (await running.upload("job.py", folder / "source")).id


def test_the_limit_counts_the_jobs_that_a_new_leader_has_not_found_yet(
    tmp_path: Path, readable: threading.Event
) -> None:
    async def scenario() -> None:
        async with dispatcher(tmp_path) as first:
            await until_ready(first)
            request = RunRequest(program=await uploaded(first, tmp_path))
            jobs = {await first.run(request), await first.run(request)}
        readable.clear()
        async with dispatcher(tmp_path) as second:
            asked = asyncio.create_task(second.run(request))
            await asyncio.sleep(0)
            assert not asked.done()
            readable.set()
            with pytest.raises(Conflict, match=r"2 jobs run already, the limit of cluster\.max-jobs\."):
                await asked
            assert {job.id for job in second.jobs()} == jobs

    asyncio.run(scenario())


def test_a_submission_to_a_leader_that_does_not_find_its_jobs_soon_is_refused_and_can_be_repeated(
    tmp_path: Path, readable: threading.Event
) -> None:
    async def scenario() -> None:
        async with dispatcher(tmp_path, web__timeout="100 ms") as running:
            await until_ready(running)
            request = RunRequest(program=await uploaded(running, tmp_path), job_id=new_job_id())
            readable.clear()
            running._on_instruction(StepDown(reason="The session was lost."))
            running._on_instruction(BecomeLeader(epoch=2))
            with pytest.raises(NotLeading, match="reads the records of the jobs"):
                await running.run(request)
            assert running._records.job_ids() == []
            readable.set()
            await until_ready(running)
            assert await running.run(request) == request.job_id
            assert await running.run(request) == request.job_id
            assert running._records.job_ids() == [request.job_id]

    asyncio.run(scenario())


def test_a_repeated_submission_is_not_refused_because_of_the_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with dispatcher(tmp_path) as running:
            await until_ready(running)
            program = await uploaded(running, tmp_path)
            request = RunRequest(program=program, job_id=new_job_id())
            await running.run(request)
            await running.cancel(request.job_id)
            async with asyncio.timeout(30):
                while running.job(request.job_id).state != "CANCELED":
                    await asyncio.sleep(0.01)
            for _ in range(2):
                await running.run(RunRequest(program=program))
            # Its client has not received the answer.
            assert await running.run(request) == request.job_id
            with pytest.raises(Conflict):
                await running.run(RunRequest(program=program))

    asyncio.run(scenario())
