"""A Dispatcher without jobs: its readiness, its storage, and who leads."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.servers.zookeeper import ZooKeeperServer
from penstock.checkpoint.bases import SAVED_STATE
from penstock.cluster.dispatcher import Dispatcher
from penstock.cluster.gateway import Conflict, NotLeading, RunRequest, Timeout
from penstock.cluster.leadership import BecomeLeader, StepDown
from penstock.cluster.records import UnknownJob
from penstock.cluster.recovery import FoundJob, found_jobs
from penstock.common.program_files import BadProgram
from penstock.driver.job_snapshot import Operation
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import StorageError


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.dispatcher._TICK_S", 0.01)
    monkeypatch.setattr("penstock.cluster.dispatcher._PROBE_S", 0.02)


@asynccontextmanager
async def dispatcher(folder: Path, address: str = "http://h:1", **settings: str) -> AsyncIterator[Dispatcher]:
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
    running = Dispatcher({"cluster.dir": str(folder), **given})
    await running.start(address)
    try:
        yield running
    finally:
        await running.close()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def submitted(running: Dispatcher, tmp_path: Path) -> str:
    source = tmp_path / "source"
    source.write_text("print()")
    program = await running.upload("job.py", source)
    return await running.run(RunRequest(program=program.id))


def test_a_service_that_cannot_write_records_is_not_ready_and_accepts_no_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = {"disk": False}
    write = LocalStorage.write

    def writing(self: LocalStorage, name: str, data: bytes) -> None:
        if full["disk"]:
            raise StorageError(f"Cannot write {name}: No space left on device.")
        write(self, name, data)

    monkeypatch.setattr(LocalStorage, "write", writing)

    async def scenario() -> None:
        async with dispatcher(tmp_path / "cluster") as running:
            await until(lambda: running.state().ready)
            full["disk"] = True
            await until(lambda: not running.state().ready)
            assert "No space left on device" in running.state().problem
            with pytest.raises(Conflict, match="No space left on device"):
                await running.run(RunRequest(program="p"))
            full["disk"] = False
            await until(lambda: running.state().ready)

    asyncio.run(scenario())


def test_the_probe_of_the_storage_leaves_one_file_per_host_after_any_number_of_starts(tmp_path: Path) -> None:
    probes = tmp_path / "cluster" / "records" / "default" / "probes"

    def found() -> dict[str, str]:
        return {path.name: path.read_text() for path in probes.glob("[!.]*")}

    async def scenario() -> None:
        for _ in range(3):
            before = found()
            async with dispatcher(tmp_path / "cluster"):
                await until(lambda before=before: found() != before)

    asyncio.run(scenario())
    assert list(found()) == [socket.gethostname()]


def test_a_draining_service_refuses_jobs_and_supervises_those_that_it_has(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with dispatcher(tmp_path / "cluster") as running:
            await until(lambda: running.state().ready)
            await running.drain()
            assert (running.state().leading, running.state().ready) == (True, False)
            with pytest.raises(Conflict, match="draining"):
                await running.run(RunRequest(program="p"))

    asyncio.run(scenario())


def test_a_job_with_damaged_records_is_shown_as_failed_until_they_are_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cluster.housekeeping._SWEEP_S", 0.05)
    monkeypatch.setattr("penstock.cluster.supervisor.Supervisor._launch", lambda *arguments: None)

    async def scenario() -> None:
        async with dispatcher(tmp_path / "cluster") as first:
            await until(lambda: first.state().ready)
            job = await submitted(first, tmp_path)
        record = tmp_path / "cluster" / "records" / "default" / "jobs" / job / "job"
        sound = record.read_bytes()
        record.write_bytes(b"{")
        async with dispatcher(tmp_path / "cluster") as second:
            await until(lambda: second.state().ready and second.jobs())
            assert second.job(job).state == "FAILED"
            assert "cannot be read" in second.job(job).reason
            record.write_bytes(sound)
            await until(lambda: second.job(job).state in ("CREATED", "INITIALIZING"))

    asyncio.run(scenario())


def test_the_leftovers_of_a_savepoint_are_removed_once_and_the_operation_reports_it(tmp_path: Path) -> None:
    path = tmp_path / "savepoint-half"
    (path / SAVED_STATE).mkdir(parents=True)
    (path / SAVED_STATE / "part").touch()

    async def dispose(running: Dispatcher, trigger_id: str) -> Operation:
        assert await running.dispose_savepoint(str(path), trigger_id) == trigger_id
        async with asyncio.timeout(30):
            while not (operation := await running.operation("", trigger_id)).done:
                await asyncio.sleep(0.01)
        return operation

    async def scenario() -> None:
        async with dispatcher(tmp_path / "cluster") as running:
            first = await dispose(running, "first")
            assert not path.exists()
            # A client that repeats its request starts nothing.
            assert await dispose(running, "first") == first
            assert (first.failure, (await dispose(running, "second")).failure_kind) == ("", "NotASavepoint")

    asyncio.run(scenario())


def test_a_log_of_the_service_that_is_rotated_while_logs_are_listed_is_left_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with dispatcher(tmp_path / "cluster") as running:
            (tmp_path / "cluster" / "dispatcher.log").write_text("text")
            (tmp_path / "cluster" / "dispatcher.log.5").symlink_to(tmp_path / "rotated away")
            assert [each.name for each in await running.logs("")] == ["dispatcher.log"]

    asyncio.run(scenario())


def test_an_unknown_job_is_refused_by_every_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with dispatcher(tmp_path / "cluster") as running:
            await until(lambda: running.state().ready)
            for request in (running.cancel("f" * 32), running.operation("f" * 32, "t"), running.logs("f" * 32)):
                with pytest.raises(UnknownJob):
                    await request

    asyncio.run(scenario())


def test_a_cancelled_job_that_has_not_started_never_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.supervisor.Supervisor._launch", lambda *arguments: None)

    async def scenario() -> None:
        async with dispatcher(tmp_path / "cluster") as running:
            await until(lambda: running.state().ready)
            job = await submitted(running, tmp_path)
            await running.cancel(job)
            await until(lambda: running.job(job).state == "CANCELED")
            with pytest.raises(Conflict, match="has ended"):
                await running.cancel(job)

    asyncio.run(scenario())


def test_a_service_with_as_many_jobs_as_it_may_run_refuses_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cluster.supervisor.Supervisor._launch", lambda *arguments: None)

    async def scenario() -> None:
        async with dispatcher(tmp_path / "cluster", cluster__max_jobs="2") as running:
            await until(lambda: running.state().ready)
            first, _ = await submitted(running, tmp_path), await submitted(running, tmp_path)
            with pytest.raises(Conflict, match=r"2 jobs run already, the limit of cluster\.max-jobs\."):
                await submitted(running, tmp_path)
            await running.cancel(first)
            await until(lambda: running.job(first).state == "CANCELED")
            await submitted(running, tmp_path)

    asyncio.run(scenario())


def test_the_heap_of_jobmanagers_is_a_setting_of_the_service(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with dispatcher(tmp_path / "cluster", jobmanager__memory__heap__size="600 mb") as running:
            assert running._order("1" * 32, 1, False).defaults["spark.driver.memory"] == "600m"

    asyncio.run(scenario())


def test_a_job_submitted_again_has_the_name_of_the_last_one_until_its_program_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cluster.supervisor.Supervisor._launch", lambda *arguments: None)

    async def scenario() -> None:
        async with dispatcher(tmp_path / "cluster") as running:
            await until(lambda: running.state().ready)
            (tmp_path / "source").write_text("print()")
            program = (await running.upload("job.py", tmp_path / "source")).id
            north = RunRequest(program=program, arguments=["north"], job_id="1" * 32)
            assert running.job(await running.run(north)).name == "job"
            named = msgspec.structs.replace(running.job(north.job_id), name="north counts")
            running._jobs._received(named)
            again = await running.run(RunRequest(program=program, arguments=["north"]))
            assert running.job(again).name == "north counts"
            other = await running.run(RunRequest(program=program, arguments=["south"]))
            assert running.job(other).name == "job"
            # A client that repeats its request gets the job that it submitted.
            assert await running.run(north) == north.job_id

    asyncio.run(scenario())


def test_a_leadership_that_is_lost_and_won_again_during_the_adoption_adopts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[Dispatcher] = []
    readings: list[int] = []

    def reading(*arguments: Any) -> list[list[FoundJob]]:
        jobs = list(found_jobs(*arguments))
        readings.append(sum(map(len, jobs)))
        if len(readings) == 1:
            running[0]._on_instruction(StepDown(reason="The session was lost."))
            running[0]._on_instruction(BecomeLeader(epoch=2))
        return jobs

    monkeypatch.setattr("penstock.cluster.housekeeping.found_jobs", reading)

    async def scenario() -> None:
        running.append(Dispatcher({"cluster.dir": str(tmp_path / "cluster")}))
        await running[0].start("http://h:1")
        await until(lambda: running[0].state().ready)
        await running[0].close()

    asyncio.run(scenario())
    assert readings == [0, 0]


@pytest.mark.slow
def test_a_drained_leader_hands_over_and_a_standby_names_the_leader(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    settings = {
        "high-availability__type": "zookeeper",
        "high-availability__storageDir": str(tmp_path / "records"),
        "high-availability__zookeeper__quorum": zookeeper.address,
        "high-availability__zookeeper__client__session-timeout": "6 s",
    }

    async def scenario() -> None:
        async with dispatcher(tmp_path / "a", "http://a:1", **settings) as first:
            await until(lambda: first.state().leading)
            async with dispatcher(tmp_path / "b", "http://b:1", **settings) as second:
                await until(lambda: second.state().leader == "http://a:1")
                assert second.leader() == "http://a:1"
                with pytest.raises(NotLeading):
                    await second.run(RunRequest(program="p"))
                await first.drain()
                assert not first.state().leading
                await until(lambda: second.state().leading and second.state().ready)
                assert second.leader() is None
                # It passes requests on to the new leader.
                await until(lambda: first.state().leader == "http://b:1")
                assert first.leader() == "http://b:1"
                assert not first.state().ready

    asyncio.run(scenario())


def test_a_few_programs_are_inspected_at_the_same_time_and_the_next_ones_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a process, so a client that asks for many plans would take the memory of the jobs."""
    begun: list[asyncio.Future[str]] = []

    async def inspect(*arguments: object, savepoint: bool) -> str:
        begun.append(asyncio.get_running_loop().create_future())
        return await begun[-1]

    monkeypatch.setattr("penstock.cluster.dispatcher.inspect", inspect)

    async def scenario() -> None:
        async with dispatcher(tmp_path / "cluster") as running:
            (tmp_path / "source").write_text("print()")
            program = RunRequest(program=(await running.upload("job.py", tmp_path / "source")).id)
            asked = [asyncio.create_task(running.plan(program)) for _ in range(5)]
            await until(lambda: len(begun) == 4)
            begun[0].set_result("the first plan")
            [first], _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            assert await first == "the first plan"
            await until(lambda: len(begun) == 5)

            monkeypatch.setattr("penstock.cluster.dispatcher._INSPECTION_WAIT_S", 0.01)
            with pytest.raises(Timeout, match="4 other programs"):
                await running.dry_run(program)
            assert len(begun) == 5
            for each in begun[1:]:
                each.set_exception(BadProgram("It has no job."))
            for each in asked:
                if each is first:
                    continue
                with pytest.raises(BadProgram):
                    await each
            # A program that was refused, or a client that left, does not count any more.
            left = asyncio.create_task(running.plan(program))
            await until(lambda: len(begun) == 6)
            left.cancel()
            again = [asyncio.create_task(running.plan(program)) for _ in range(4)]
            await until(lambda: len(begun) == 10)
            for each in begun[6:]:
                each.set_result("")
            await asyncio.gather(*again)

    asyncio.run(scenario())
