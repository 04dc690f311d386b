"""Results of operations on a job that runs: after a client has seen one, it sees its effect in the job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from followed_job import JOB, SNAPSHOT, FollowedJob, following, until

from penstock.cluster.records import Ended
from penstock.control import server
from penstock.driver.assignment import Verdict
from penstock.driver.control_messages import RESCALE, STOP, Answer, Poll, Request
from penstock.driver.job_snapshot import Operation

SCALED = msgspec.structs.replace(SNAPSHOT, parallelism=4)


class JobManager(FollowedJob):
    """The job has one operation, which is done as soon as `complete` is called."""

    def __init__(self, folder: Path) -> None:
        self.operation = Operation(trigger_id="a", kind=RESCALE)
        self.snapshot = SNAPSHOT
        super().__init__(folder)

    def answer(self, request: Request) -> Answer:
        return self.operation if isinstance(request, Poll) else self.snapshot

    def complete(self, kind: str = RESCALE) -> None:
        self.operation = Operation(trigger_id="a", kind=kind, done=True)
        self.snapshot = msgspec.structs.replace(SCALED, operations=[self.operation])


@pytest.fixture
def process(tmp_path: Path) -> Iterator[JobManager]:
    process = JobManager(tmp_path)
    yield process
    process.exit()


@pytest.fixture(autouse=True)
def _held_back_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.dispatcher._RESULT_SHOWN_S", 600.0)


def test_a_result_is_held_back_until_the_job_is_shown_with_its_effect(
    tmp_path: Path, process: JobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No snapshot would arrive in time without news.
    monkeypatch.setattr(server, "_FOLLOW_S", 60.0)

    async def scenario() -> None:
        async with following(tmp_path) as running:
            assert not (await running.operation(JOB, "a")).done
            process.complete()
            polled = asyncio.ensure_future(running.operation(JOB, "a"))
            await asyncio.wait([polled], timeout=0.2)
            assert not polled.done()
            assert running.job(JOB).parallelism == -1
            process.point.notify()
            assert (await polled).done
            assert running.job(JOB).parallelism == 4

    asyncio.run(scenario())


def test_a_result_is_passed_on_although_no_snapshot_shows_it(
    tmp_path: Path, process: JobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cluster.dispatcher._RESULT_SHOWN_S", 0.1)
    process.operation = Operation(trigger_id="a", kind=RESCALE, done=True)

    async def scenario() -> None:
        async with following(tmp_path) as running:
            assert (await running.operation(JOB, "a")).done

    asyncio.run(scenario())


def test_a_stop_is_complete_when_the_job_is_shown_as_ended(
    tmp_path: Path, process: JobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_FOLLOW_S", 0.02)

    async def scenario() -> None:
        async with following(tmp_path) as running:
            process.complete(STOP)
            await until(lambda: running.job(JOB).parallelism == 4)
            polled = asyncio.ensure_future(running.operation(JOB, "a"))
            await asyncio.wait([polled], timeout=0.2)
            assert not polled.done()
            process.records.end(JOB, 1, Ended(verdict=Verdict.STOPPED, by="t", at_ms=2))
            assert (await polled).done
            assert running.job(JOB).state == "FINISHED"

    asyncio.run(scenario())


def test_a_result_is_passed_on_at_once_if_the_dispatcher_no_longer_follows_the_job(
    tmp_path: Path, process: JobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_FOLLOW_S", 60.0)

    async def scenario() -> None:
        async with following(tmp_path) as running:
            process.complete()
            polled = asyncio.ensure_future(running.operation(JOB, "a"))
            await asyncio.wait([polled], timeout=0.1)
            running._jobs.leave_all()
            assert (await polled).done

    asyncio.run(scenario())
