"""A Dispatcher that takes over follows the JobManagers of its predecessor, which had another directory."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.cluster.dispatcher import Dispatcher
from penstock.cluster.gateway import Conflict, RunRequest
from penstock.cluster.order import socket_name
from penstock.cluster.orders import job_defaults
from penstock.cluster.processes import _stat, this_process
from penstock.cluster.records import Claim, Planned, Records, Submission, new_job_id
from penstock.control.server import ControlPoint
from penstock.driver.control_messages import Answer, Describe, Done, Follow, Request
from penstock.driver.job_snapshot import JobSnapshot
from penstock.state.local_storage import LocalStorage

JOB = new_job_id()
TIMEOUT_MS = 300


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.control.server._FOLLOW_S", 0.02)
    monkeypatch.setattr("penstock.control.server._HEARTBEAT_S", 0.1)
    monkeypatch.setattr("penstock.cluster.feed._RETRY_S", 0.02)
    monkeypatch.setattr("penstock.cluster.dispatcher._TICK_S", 0.02)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """The process that the supervisor sees, and would kill."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as sleeping:
        yield sleeping
        sleeping.kill()


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Path]:
    """The control directory of the Dispatcher that started the job, with the control point of its JobManager."""
    folder = tmp_path / "first" / "control"
    folder.mkdir(mode=0o700, parents=True)
    point = ControlPoint(str(folder), socket_name(JOB, 1), answer)
    yield folder
    point.close()


def answer(request: Request) -> Answer:
    if isinstance(request, Follow):
        return JobSnapshot(id=JOB, name="counts", state="RUNNING", attempt=1)
    return Done(checkpoint=3)


def recorded(tmp_path: Path, claim: Claim) -> Records:
    records = Records(LocalStorage(str(tmp_path / "ha" / "default")))
    submission = Submission(
        id=JOB, name="counts", program="0" * 64, file="a.py", submitted_ms=1, python="3", penstock="1"
    )
    records.submit(submission)
    assert records.plan(JOB, 1, Planned(leader="first", at_ms=1))
    assert records.claim(JOB, 1, claim)
    return records


def claim_of(process: subprocess.Popen[bytes], control: Path, host: str = "") -> Claim:
    me, stat = this_process(), _stat(process.pid)
    assert stat is not None
    return Claim(
        token="t",
        host=host or me.host,
        boot=me.boot,
        pid=process.pid,
        started=stat.started,
        at_ms=1,
        control=str(control),
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def second(tmp_path: Path) -> Dispatcher:
    settings = {
        "cluster.dir": str(tmp_path / "second"),
        "high-availability.storageDir": str(tmp_path / "ha"),
        "heartbeat.timeout": f"{TIMEOUT_MS} ms",
    }
    return Dispatcher(settings)


def test_a_job_manager_of_another_dispatcher_on_this_host_is_adopted(
    tmp_path: Path, process: subprocess.Popen[bytes], control: Path
) -> None:
    records = recorded(tmp_path, claim_of(process, control))

    async def scenario() -> None:
        dispatcher = second(tmp_path)
        await dispatcher.start("127.0.0.1:1")
        await until(lambda: dispatcher.state().ready and dispatcher.job(JOB).state == "RUNNING")
        assert await dispatcher.ask(JOB, Describe()) == Done(checkpoint=3)
        # It would count as silent by now if the Dispatcher looked for it in its own directory.
        first = dispatcher._jobs.heard_ms(JOB, 1) or 0
        await until(lambda: (dispatcher._jobs.heard_ms(JOB, 1) or 0) > first + 4 * TIMEOUT_MS)
        await dispatcher.close()

    asyncio.run(scenario())
    last = records.view(JOB).last
    assert last is not None
    assert (last.number, last.ended) == (1, None)
    assert process.poll() is None


def test_a_job_manager_that_does_not_answer_is_replaced(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    records = recorded(tmp_path, claim_of(process, tmp_path / "first" / "control"))

    async def scenario() -> None:
        dispatcher = second(tmp_path)
        await dispatcher.start("127.0.0.1:1")
        await asyncio.to_thread(process.wait, 20)
        await dispatcher.close()

    asyncio.run(scenario())
    ended = records.view(JOB).attempts[0].ended
    assert ended is not None
    assert "has not answered" in ended.reason


def test_a_request_to_a_job_manager_on_another_host_names_the_host(
    tmp_path: Path, process: subprocess.Popen[bytes], control: Path
) -> None:
    recorded(tmp_path, claim_of(process, control, host="elsewhere"))

    async def scenario() -> None:
        dispatcher = second(tmp_path)
        await dispatcher.start("127.0.0.1:1")
        await until(lambda: dispatcher.state().ready and bool(dispatcher.jobs()))
        with pytest.raises(Conflict, match="runs on host elsewhere"):
            await dispatcher.ask(JOB, Describe())
        await dispatcher.close()

    asyncio.run(scenario())


def test_jobs_keep_their_checkpoints_where_every_dispatcher_finds_them(tmp_path: Path) -> None:
    first, other = Dispatcher({"cluster.dir": "/a"}), second(tmp_path)
    assert job_defaults(first.settings, first.directory)["state.checkpoints.dir"] == "file:///a/checkpoints"
    assert (
        job_defaults(other.settings, other.directory)["state.checkpoints.dir"] == f"{tmp_path}/ha/default/checkpoints"
    )


def test_a_repeated_submission_with_the_same_id_is_one_job(tmp_path: Path) -> None:
    program = tmp_path / "job.py"

    async def scenario() -> None:
        dispatcher = second(tmp_path)
        await dispatcher.start("127.0.0.1:1")
        await until(lambda: dispatcher.state().ready)
        # No process starts: the test is about records.
        dispatcher._supervisor.add = lambda job_id, view: None  # type: ignore[method-assign]
        program.write_text("print()")
        stored = await dispatcher.upload("job.py", program)
        request = RunRequest(program=stored.id, job_id=JOB)
        assert await dispatcher.run(request) == JOB
        assert await dispatcher.run(request) == JOB
        with pytest.raises(Conflict, match="with another program, arguments or configuration"):
            await dispatcher.run(msgspec.structs.replace(request, arguments=["--other"]))
        await dispatcher.close()

    asyncio.run(scenario())
    assert Records(LocalStorage(str(tmp_path / "ha" / "default"))).job_ids() == [JOB]
