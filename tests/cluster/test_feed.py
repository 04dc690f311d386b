"""A Dispatcher's connections to JobManagers, over real control points."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from penstock.cluster.connection import LocalConnection
from penstock.cluster.feed import Connect, Feed
from penstock.cluster.gateway import Conflict, Timeout
from penstock.cluster.order import socket_name
from penstock.cluster.records import new_job_id
from penstock.control import server
from penstock.control.client import RefusedByJob
from penstock.control.place import SUFFIX, address, opened
from penstock.control.server import ControlPoint
from penstock.driver.control_messages import Answer, Describe, Done, Follow, Request, Rescale, Stop, encode
from penstock.driver.job_snapshot import JobSnapshot
from penstock.errors import PenstockError

JOB = new_job_id()


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_FOLLOW_S", 0.02)
    monkeypatch.setattr("penstock.cluster.feed._RETRY_S", 0.02)


class Process:
    """A JobManager that answers as its attributes say."""

    def __init__(self, control: Path, attempt: int = 1, job: str = JOB) -> None:
        self.snapshot = JobSnapshot(id=job, name="counts", state="RUNNING", attempt=attempt)
        self.hang = threading.Event()
        self.point = ControlPoint(str(control), socket_name(job, attempt), self.answer)

    def answer(self, request: Request) -> Answer:
        match request:
            case Follow():
                return self.snapshot
            case Stop():
                self.hang.wait(10)
                return Done()
            case Rescale():
                raise PenstockError("The job cannot be rescaled.", fix="Wait.")
        return Done(checkpoint=3)


@pytest.fixture
def control(tmp_path: Path) -> Path:
    (tmp_path / "control").mkdir(mode=0o700)
    return tmp_path / "control"


class Scripted:
    """A process that answers each request with the next of these lines, and the last one again and again."""

    def __init__(self, control: Path, *lines: bytes) -> None:
        self._lines = list(lines)
        self._control = str(control)

    async def __aenter__(self) -> None:
        with opened(self._control) as folder:
            path = address(folder, socket_name(JOB, 1) + SUFFIX)
            self._server = await asyncio.start_unix_server(self._answer, path)

    async def __aexit__(self, *error: object) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(self._lines.pop(0) if len(self._lines) > 1 else self._lines[0])
        with suppress(OSError):
            await writer.drain()
        await reader.read()
        writer.close()


SNAPSHOT = encode(JobSnapshot(id=JOB, name="counts", state="RUNNING", attempt=1)) + b"\n"
UNREADABLE = [b'{"type":"FromTheFuture"}\n', b"no json\n", b"x" * 200_000 + b"\n", b"\xff\n"]


def at(control: Path, attempt: int, job: str = JOB) -> Connect:
    """Connect to the process of an attempt."""
    return partial(LocalConnection, str(control), job, attempt)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def test_snapshots_arrive_as_they_change(control: Path) -> None:
    async def scenario() -> None:
        seen: list[JobSnapshot] = []
        feed = Feed(seen.append)
        process = Process(control)
        feed.follow(JOB, 1, at(control, 1, JOB))
        await until(lambda: len(seen) == 1)
        process.snapshot = JobSnapshot(id=JOB, name="counts", state="FAILING", attempt=1)
        await until(lambda: seen[-1].state == "FAILING")
        assert feed.heard_ms[JOB, 1] > 0
        process.point.close()
        await feed.close()

    asyncio.run(scenario())


def test_the_last_snapshot_of_an_ending_process_arrives(control: Path) -> None:
    async def scenario() -> None:
        seen: list[JobSnapshot] = []
        feed = Feed(seen.append)
        process = Process(control)
        feed.follow(JOB, 1, at(control, 1, JOB))
        await until(lambda: len(seen) == 1)
        process.snapshot = JobSnapshot(id=JOB, name="counts", state="FINISHED", attempt=1)
        process.point.close()
        await until(lambda: seen[-1].state == "FINISHED")
        await feed.close()

    asyncio.run(scenario())


def test_a_process_that_opens_its_control_point_later_is_followed(control: Path) -> None:
    async def scenario() -> None:
        seen: list[JobSnapshot] = []
        feed = Feed(seen.append)
        feed.follow(JOB, 1, at(control, 1, JOB))
        await asyncio.sleep(0.05)
        process = Process(control)
        await until(lambda: bool(seen))
        process.point.close()
        await feed.close()

    asyncio.run(scenario())


def test_an_old_attempt_that_ends_after_the_new_one_opened_leaves_it_controllable(control: Path) -> None:
    async def scenario() -> None:
        seen: list[JobSnapshot] = []
        feed = Feed(seen.append)
        old, new = Process(control, 1), Process(control, 2)
        feed.follow(JOB, 1, at(control, 1, JOB))
        await until(lambda: bool(seen))
        feed.follow(JOB, 2, at(control, 2, JOB))
        old.point.close()
        await until(lambda: seen[-1].attempt == 2)
        assert await feed.ask(JOB, at(control, 2), Describe(), 5) == Done(checkpoint=3)
        new.point.close()
        await feed.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("line", UNREADABLE)
def test_a_process_with_unreadable_snapshots_is_alive_and_followed(
    control: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, line: bytes
) -> None:
    monkeypatch.setattr("penstock.cluster.connection.LINE_BYTES", 50_000)

    async def scenario() -> None:
        seen: list[JobSnapshot] = []
        feed = Feed(seen.append)
        async with Scripted(control, line, line, SNAPSHOT):
            feed.follow(JOB, 1, at(control, 1))
            await until(lambda: bool(feed.heard_ms))
            assert not seen
            await until(lambda: bool(seen))
            await feed.close()

    asyncio.run(scenario())
    assert caplog.text.count("Cannot read the snapshots of job") == 1


def test_a_snapshot_that_cannot_be_shown_does_not_end_the_feed(control: Path) -> None:
    seen: list[JobSnapshot] = []

    def show(snapshot: JobSnapshot) -> None:
        seen.append(snapshot)
        if len(seen) == 1:
            raise KeyError("a defect")

    async def scenario() -> None:
        feed = Feed(show)
        async with Scripted(control, SNAPSHOT):
            feed.follow(JOB, 1, at(control, 1))
            await until(lambda: len(seen) == 2)
            await feed.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("line", UNREADABLE)
def test_an_unreadable_answer_conflicts(control: Path, monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    monkeypatch.setattr("penstock.cluster.connection.LINE_BYTES", 50_000)

    async def scenario() -> None:
        async with Scripted(control, line):
            with pytest.raises(Conflict, match="cannot be read"):
                await Feed(print).ask(JOB, at(control, 1), Describe(), 5)

    asyncio.run(scenario())


def test_a_process_with_the_same_name_is_not_disconnected_by_the_end_of_another(control: Path) -> None:
    async def scenario() -> None:
        feed = Feed(lambda snapshot: None)
        old, new = Process(control, 1), Process(control, 1)
        old.point.close()
        assert await feed.ask(JOB, at(control, 1), Describe(), 5) == Done(checkpoint=3)
        new.point.close()

    asyncio.run(scenario())


def test_a_request_to_a_process_that_does_not_run_conflicts(control: Path) -> None:
    with pytest.raises(Conflict, match=f"The JobManager of job {JOB} does not run"):
        asyncio.run(Feed(print).ask(JOB, at(control, 1), Describe(), 5))


def test_a_request_to_a_process_that_hangs_ends_at_the_deadline(control: Path) -> None:
    process = Process(control)
    with pytest.raises(Timeout, match=r"did not answer within 0\.1 s"):
        asyncio.run(Feed(print).ask(JOB, at(control, 1), Stop(), 0.1))
    process.hang.set()
    process.point.close()


def test_a_refusal_keeps_the_words_of_the_job(control: Path) -> None:
    process = Process(control)
    with pytest.raises(RefusedByJob, match="The job cannot be rescaled"):
        asyncio.run(Feed(print).ask(JOB, at(control, 1), Rescale(parallelism=2), 5))
    process.point.close()


def test_snapshots_of_many_jobs_arrive_apart(control: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.feed._APART_S", 0.1)
    monkeypatch.setattr(server, "_FOLLOW_S", 60.0)
    jobs = [new_job_id() for _ in range(4)]

    async def scenario() -> None:
        clock = asyncio.get_running_loop().time
        seen: dict[str, float] = {}
        feed = Feed(lambda snapshot: seen.update({snapshot.id: clock()}))
        processes = [Process(control, job=job) for job in jobs]
        began = clock()
        for job in jobs:
            feed.follow(job, 1, at(control, 1, job))
        await until(lambda: len(seen) == 4)
        # A busy machine delays any of them; none arrives before its turn.
        assert all(seen[job] - began > 0.1 * number - 0.01 for number, job in enumerate(jobs))
        await feed.close()
        for process in processes:
            process.point.close()

    asyncio.run(scenario())
