"""A Dispatcher that no longer leads leaves the JobManagers to its successor, and follows them when it leads again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from followed_job import JOB, SNAPSHOT, FollowedJob, following, shorten_waits, until

from penstock.cluster.connection import LocalConnection
from penstock.cluster.leadership import BecomeLeader, PauseLeadership, ResumeLeadership, StepDown
from penstock.driver.control_messages import Answer, Request

STEP_DOWN = StepDown(reason="The session was lost.")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_waits(monkeypatch)


class JobManager(FollowedJob):
    """Every snapshot differs from the one before."""

    def __init__(self, folder: Path) -> None:
        self.asked = 0
        self.state = "RUNNING"
        super().__init__(folder)

    def answer(self, request: Request) -> Answer:
        self.asked += 1
        return msgspec.structs.replace(SNAPSHOT, state=self.state, epochs=self.asked)

    @property
    def is_followed(self) -> bool:
        return bool(self.point._at_work)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[JobManager]:
    process = JobManager(tmp_path)
    yield process
    process.exit()


def test_a_former_leader_leaves_a_running_job_until_it_leads_again(tmp_path: Path, process: JobManager) -> None:
    async def scenario() -> None:
        async with following(tmp_path) as running:
            running._on_instruction(STEP_DOWN)
            await until(lambda: not process.is_followed)
            assert running._jobs.heard_ms(JOB, 1) is None
            asked, process.state = process.asked, "FAILING"
            running._on_instruction(BecomeLeader(epoch=2))
            await until(lambda: running.job(JOB).state == "FAILING")
            assert process.asked > asked
            await until(lambda: running.job(JOB).epochs > asked + 3)

    asyncio.run(scenario())


def test_a_former_leader_does_not_connect_to_jobs_that_ended_under_another_one(
    tmp_path: Path, process: JobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    enter = LocalConnection.__aenter__

    async def counted(self: LocalConnection) -> object:
        opened.append(1)
        return await enter(self)

    async def scenario() -> None:
        async with following(tmp_path) as running:
            process.exit()
            monkeypatch.setattr(LocalConnection, "__aenter__", counted)
            # As long as it leads, it tries again and again.
            await until(lambda: len(opened) > 3)
            running._on_instruction(STEP_DOWN)
            await until(lambda: not any("_follow" in str(task.get_coro()) for task in asyncio.all_tasks()))

    monkeypatch.setattr("penstock.cluster.supervisor.Supervisor.tick", lambda *arguments, **options: None)
    asyncio.run(scenario())


def test_a_step_that_ends_after_the_leadership_follows_nothing(tmp_path: Path, process: JobManager) -> None:
    async def scenario() -> None:
        async with following(tmp_path) as running:
            running._on_instruction(STEP_DOWN)
            running._supervisor.changed(process.records.view(JOB))
            await until(lambda: not running._jobs._feed._followed)
            await until(lambda: not process.is_followed)
            assert not running._jobs._feed._followed

    asyncio.run(scenario())


def test_a_leader_whose_connection_to_zookeeper_is_interrupted_shows_what_changes(
    tmp_path: Path, process: JobManager
) -> None:
    async def scenario() -> None:
        async with following(tmp_path) as running:
            running._on_instruction(PauseLeadership())
            process.state = "FAILING"
            await until(lambda: running.job(JOB).state == "FAILING")
            running._on_instruction(ResumeLeadership())
            process.state = "RUNNING"
            await until(lambda: running.job(JOB).state == "RUNNING")

    asyncio.run(scenario())


def test_a_leader_again_shows_no_snapshot_of_its_earlier_turn(tmp_path: Path, process: JobManager) -> None:
    async def scenario() -> None:
        async with following(tmp_path) as running:
            running._on_instruction(STEP_DOWN)
            await until(lambda: not process.is_followed)
            process.point.close()
            running._on_instruction(BecomeLeader(epoch=2))
            # The process does not answer, so only the records are known.
            await until(lambda: running.job(JOB).state == "INITIALIZING")

    asyncio.run(scenario())
