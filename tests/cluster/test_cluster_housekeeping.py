"""What a Dispatcher adopts, finds later and forgets, with a coordination that the test controls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster import housekeeping
from penstock.cluster.coordination import CoordinationUnavailable, NoCoordination
from penstock.cluster.dispatcher import Dispatcher
from penstock.cluster.gateway import Conflict, NotLeading, RunRequest
from penstock.cluster.housekeeping import Housekeeping
from penstock.cluster.leadership import BecomeLeader, Instruction, StepDown
from penstock.cluster.processes import this_process
from penstock.cluster.records import Claim, Ended, JobView, Planned, Records, UnknownJob, new_job_id
from penstock.common.wall_clock import now_ms
from penstock.driver.assignment import Verdict
from penstock.driver.control_messages import Rescale
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import StorageError


class Turns(NoCoordination):
    """Leads when the test says so. The pointers are shared."""

    def __init__(self, records: Records, shared: dict[str, str]) -> None:
        super().__init__(records)
        self.shared = shared
        self.fails = False
        self.keeps = False
        """Whether pointers cannot be removed, as while ZooKeeper does not answer."""
        self._leads = False

    @property
    def leading(self) -> bool:
        return self._leads

    def start(self, address: str, on_instruction: Callable[[Instruction], None]) -> None:
        self._on_instruction = on_instruction

    def lead(self) -> None:
        self._leads = True
        self._on_instruction(BecomeLeader(epoch=1))

    def step_down(self) -> None:
        self._leads = False
        self._on_instruction(StepDown(reason="The test says so."))

    def add_job(self, job_id: str) -> None:
        if self.fails:
            raise CoordinationUnavailable("no answer")
        self.shared[job_id] = ""

    def remove_job(self, job_id: str) -> bool:
        if not self.keeps:
            self.shared.pop(job_id, None)
        return not self.keeps

    def pointers(self) -> Mapping[str, str]:
        return dict(self.shared)


class Cluster:
    """Dispatchers of one cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shared: dict[str, str] = {}
        self.storage = LocalStorage(folder / "ha" / "default")
        self.records = Records(self.storage)

    @asynccontextmanager
    async def dispatcher(self, name: str = "a", *, leads: bool = True, **settings: str) -> AsyncIterator[Dispatcher]:
        given = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
        root = self.folder / name
        running = Dispatcher(
            {"cluster.dir": str(root), "high-availability.storageDir": str(self.folder / "ha"), **given}
        )
        await running.start(f"http://{name}:1")
        try:
            if leads:
                turns(running).lead()
                await until(lambda: running.state().ready)
            yield running
        finally:
            await running.close()

    async def submit(self, running: Dispatcher, job_id: str = "") -> str:
        source = self.folder / "source"
        source.write_text("print()")
        program = await running.upload("job.py", source)
        return await running.run(RunRequest(program=program.id, job_id=job_id))

    def end(self, job_id: str) -> None:
        view = self.records.view(job_id)
        number = len(view.attempts) or 1
        self.records.plan(job_id, number, Planned(leader="t", at_ms=1))
        self.records.end(job_id, number, Ended(verdict=Verdict.FINISHED, by="t", at_ms=now_ms()))


def turns(running: Dispatcher) -> Turns:
    assert isinstance(running._coordination, Turns)
    return running._coordination


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def states(running: Dispatcher) -> dict[str, str]:
    """Return the states of the jobs that are known so far: a new leader does not answer before it knows all."""
    return {job.id: job.state for job in running._jobs.all()}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(tmp_path)
    monkeypatch.setattr(
        "penstock.cluster.dispatcher.coordination_of", lambda settings, storage: Turns(Records(storage), made.shared)
    )
    monkeypatch.setattr("penstock.cluster.dispatcher._TICK_S", 0.01)
    monkeypatch.setattr("penstock.cluster.supervisor.Supervisor._launch", lambda *arguments: None)
    return made


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_SWEEP_S", 0.02)


@pytest.fixture
def host_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_HOST_SWEEP_S", 0.02)


NO_HISTORY = {"web__history": "0"}


def test_a_leader_forgets_the_jobs_that_another_leader_removed(cluster: Cluster, sweeps: None) -> None:
    async def scenario() -> None:
        async with cluster.dispatcher("a") as first, cluster.dispatcher("b", leads=False, **NO_HISTORY) as second:
            jobs = [await cluster.submit(first) for _ in range(2)]
            turns(first).step_down()
            turns(second).lead()
            cluster.end(jobs[0])
            await until(lambda: cluster.records.job_ids() == jobs[1:])
            turns(second).step_down()
            assert set(states(first)) == set(jobs)
            turns(first).lead()
            await until(lambda: set(states(first)) == set(jobs[1:]))

    asyncio.run(scenario())


def test_a_job_that_another_process_removed_does_not_stop_the_removal_of_others(cluster: Cluster, sweeps: None) -> None:
    async def scenario() -> None:
        async with cluster.dispatcher(**NO_HISTORY) as running:
            add = running._supervisor.add
            jobs = sorted([await cluster.submit(running) for _ in range(2)])
            # The records of the first one vanish after this leader has seen its end.
            running._supervisor.supervises = lambda job_id: bool(blocked)  # type: ignore[method-assign]
            for job_id in jobs:
                cluster.end(job_id)
            await until(lambda: set(states(running).values()) == {"FINISHED"})
            Records(cluster.storage).remove(jobs[0])
            add(jobs[1])
            blocked.clear()
            await until(lambda: not running.jobs())
            assert cluster.records.job_ids() == []

    blocked = [True]
    asyncio.run(scenario())


def test_a_job_is_not_removed_while_its_process_still_exits(cluster: Cluster, sweeps: None) -> None:
    async def scenario() -> None:
        async with cluster.dispatcher(**NO_HISTORY) as running:
            exits = {"now": False}
            running._supervisor.launcher.remains = lambda *process: not exits["now"]  # type: ignore[method-assign]
            job_id = await cluster.submit(running)
            await until(lambda: cluster.records.view(job_id).attempts)
            me = this_process()
            claim = Claim(token="t", host=me.host, boot=me.boot, pid=me.pid, started=me.started, at_ms=1)
            assert cluster.records.claim(job_id, 1, claim)
            cluster.end(job_id)
            await until(lambda: states(running)[job_id] == "FINISHED")
            swept = running._housekeeping._next_sweep
            await until(lambda: running._housekeeping._next_sweep > swept + 0.05)
            assert cluster.records.job_ids() == [job_id]
            exits["now"] = True
            await until(lambda: not running.jobs())
            assert cluster.records.job_ids() == []

    asyncio.run(scenario())


def test_the_records_of_a_job_stay_until_its_pointer_is_removed(cluster: Cluster, sweeps: None) -> None:
    """A pointer without records would be shown as a job that is broken."""

    async def scenario() -> None:
        async with cluster.dispatcher(**NO_HISTORY) as running:
            turns(running).keeps = True
            job_id = await cluster.submit(running)
            await until(lambda: cluster.records.view(job_id).attempts)
            cluster.end(job_id)
            await until(lambda: not running._supervisor.supervises(job_id))
            swept = running._housekeeping._next_sweep
            await until(lambda: running._housekeeping._next_sweep > swept + 0.05)
            assert cluster.records.job_ids() == [job_id]
            assert states(running) == {job_id: "FINISHED"}
            assert set(cluster.shared) == {job_id}
            turns(running).keeps = False
            await until(lambda: not running.jobs())
            assert (cluster.records.job_ids(), cluster.shared) == ([], {})

    asyncio.run(scenario())


def test_an_interrupted_removal_is_completed(cluster: Cluster, sweeps: None) -> None:
    async def scenario() -> None:
        async with cluster.dispatcher() as running:
            job_id = await cluster.submit(running)
            turns(running).step_down()
        cluster.end(job_id)
        cluster.storage.write(f"jobs/{job_id}/removed", b"")
        cluster.shared.clear()
        async with cluster.dispatcher() as running:
            await until(lambda: cluster.storage.list("jobs/") == [])
            assert not running.jobs()

    asyncio.run(scenario())


def test_a_job_whose_storage_does_not_answer_is_reconciling_and_then_continues(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreachable: set[str] = set()
    view = Records.view

    def reading(self: Records, job_id: str) -> JobView:
        if job_id in unreachable:
            raise StorageError("The storage does not answer.")
        return view(self, job_id)

    monkeypatch.setattr(Records, "view", reading)

    async def scenario() -> None:
        async with cluster.dispatcher() as first:
            jobs = [await cluster.submit(first) for _ in range(2)]
            turns(first).step_down()
        unreachable.add(jobs[0])
        async with cluster.dispatcher() as running:
            await until(lambda: len(running.jobs()) == 2)
            shown = running.job(jobs[0])
            assert (shown.state, shown.ended_ms, shown.reason) == ("RECONCILING", -1, "The storage does not answer.")
            assert states(running)[jobs[1]] in ("CREATED", "INITIALIZING")
            unreachable.clear()
            await until(lambda: states(running)[jobs[0]] in ("CREATED", "INITIALIZING"))

    asyncio.run(scenario())


def test_a_job_whose_pointer_is_refused_is_not_supervised_until_the_pointer_is_repaired(
    cluster: Cluster, sweeps: None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with cluster.dispatcher() as first:
            job_id = await cluster.submit(first)
            turns(first).step_down()
        cluster.shared[job_id] = "It was changed."
        async with cluster.dispatcher() as running:
            await until(lambda: states(running) == {job_id: "FAILED"})
            ended_ms = running.job(job_id).ended_ms
            swept = running._housekeeping._next_sweep
            await until(lambda: running._housekeeping._next_sweep > swept + 0.05)
            assert not running._supervisor.supervises(job_id)
            assert (running.job(job_id).reason, running.job(job_id).ended_ms) == ("It was changed.", ended_ms)
            assert [each.message for each in caplog.records if each.levelname == "ERROR"] == [
                f"Job {job_id} cannot be recovered: It was changed."
            ]
            cluster.shared[job_id] = ""
            await until(lambda: states(running)[job_id] in ("CREATED", "INITIALIZING"))

    asyncio.run(scenario())


def test_a_submission_that_fails_after_its_record_is_cancelled_or_can_be_repeated(
    cluster: Cluster, sweeps: None
) -> None:
    async def scenario() -> None:
        async with cluster.dispatcher() as running:
            turns(running).fails = True
            mine = new_job_id()
            for job_id in ("", mine):
                with pytest.raises(CoordinationUnavailable):
                    await cluster.submit(running, job_id)
            # Neither is left in the dark.
            await until(lambda: len(running.jobs()) == 2)
            [other] = set(states(running)) - {mine}
            await until(lambda: states(running)[other] == "CANCELED")
            turns(running).fails = False
            assert await cluster.submit(running, mine) == mine
            await until(lambda: states(running)[mine] == "INITIALIZING")
            assert not cluster.records.view(mine).cancel_requested

    asyncio.run(scenario())


def test_jobs_submitted_at_the_same_time_do_not_exceed_the_limit(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with cluster.dispatcher(cluster__max_jobs="2") as running:
            await cluster.submit(running)
            [program] = await running.programs()
            request = RunRequest(program=program.id)
            outcomes = await asyncio.gather(*(running.run(request) for _ in range(4)), return_exceptions=True)
            assert sum(isinstance(each, Conflict) for each in outcomes) == 3
            assert len(cluster.records.job_ids()) == 2
            # A client repeats its request, whose answer was lost.
            [known] = [each for each in outcomes if isinstance(each, str)]
            assert await cluster.submit(running, known) == known

    asyncio.run(scenario())


def test_the_program_of_a_job_that_cannot_be_read_is_kept(
    cluster: Cluster, sweeps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cluster.programs._UNUSED_S", -1.0)

    async def scenario() -> None:
        async with cluster.dispatcher() as first:
            job_id = await cluster.submit(first)
            for program in await first.programs():
                await first.remove_program(program.id)
            turns(first).step_down()
        record = cluster.storage.root / "jobs" / job_id / "job"
        sound = record.read_bytes()
        record.write_bytes(b"{")
        async with cluster.dispatcher() as running:
            await until(lambda: states(running) == {job_id: "FAILED"})
            swept = running._housekeeping._next_sweep
            await until(lambda: running._housekeeping._next_sweep > swept + 0.05)
            assert len(cluster.records.programs()) == 1
            record.write_bytes(sound)
            cluster.end(job_id)
            cluster.records.forget_all()
            await until(lambda: states(running)[job_id] == "FINISHED")
            assert len(cluster.records.programs()) == 1

    asyncio.run(scenario())


def test_jobs_that_run_are_supervised_before_the_history_is_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended jobs have no pointer."""
    read = threading.Event()
    view = Records.view
    ended: set[str] = set()

    def reading(self: Records, job_id: str) -> JobView:
        if job_id in ended and threading.current_thread().name.startswith("penstock-read"):
            assert read.wait(30)
        return view(self, job_id)

    async def scenario() -> None:
        async with cluster.dispatcher() as first:
            for _ in range(3):
                ended.add(await cluster.submit(first))
            turns(first).step_down()
            await asyncio.to_thread(lambda: [cluster.end(job_id) for job_id in ended])
            cluster.shared.clear()
            turns(first).lead()
            await until(lambda: first.state().ready)
            waiting = await cluster.submit(first)
            await until(lambda: cluster.records.view(waiting).attempts)
            turns(first).step_down()
        cluster.records.request_cancel(waiting)
        monkeypatch.setattr(Records, "view", reading)
        async with cluster.dispatcher(leads=False) as running:
            turns(running).lead()
            await until(lambda: cluster.records.view(waiting).attempts[0].ended)
            assert not running.state().ready
            read.set()
            await until(lambda: len(states(running)) == 4)

    asyncio.run(scenario())


def test_the_files_of_forgotten_jobs_are_removed_on_every_host(cluster: Cluster, host_sweeps: None) -> None:
    async def scenario() -> None:
        async with cluster.dispatcher() as leader, cluster.dispatcher("b", leads=False) as standby:
            recorded, forgotten = await cluster.submit(leader), new_job_id()
            for job_id in (recorded, forgotten):
                (standby.directory.jobs / job_id / "1").mkdir(parents=True)
            (standby.directory.jobs / "notes").mkdir()
            await until(lambda: {path.name for path in standby.directory.jobs.iterdir()} == {recorded, "notes"})

    asyncio.run(scenario())


def test_files_stay_while_the_storage_has_no_records(cluster: Cluster, host_sweeps: None) -> None:
    """It could be a directory on which nothing is mounted."""

    async def scenario() -> None:
        async with cluster.dispatcher(leads=False) as running:
            folder = running.directory.jobs / new_job_id()
            folder.mkdir()
            for _ in range(3):
                swept = running._housekeeping._next_host_sweep
                await until(lambda swept=swept: running._housekeeping._next_host_sweep > swept)
            assert folder.exists()

    asyncio.run(scenario())


def test_a_new_leader_answers_for_jobs_once_it_has_found_all_of_them(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, go_on = threading.Event(), threading.Event()
    adopt = Housekeeping.adopt

    def slowly(housekeeping: Housekeeping) -> None:
        reads.set()
        assert go_on.wait(30)
        adopt(housekeeping)

    async def scenario() -> None:
        async with cluster.dispatcher("a") as first:
            job_id = await cluster.submit(first)
        monkeypatch.setattr(Housekeeping, "adopt", slowly)
        async with cluster.dispatcher("b", leads=False) as second:
            turns(second).lead()
            await until(reads.is_set)
            for request in (second.jobs, lambda: second.job(job_id)):
                with pytest.raises(NotLeading, match="reads the records"):
                    request()
            with pytest.raises(NotLeading, match="reads the records"):
                await second.trigger(job_id, Rescale(parallelism=1))
            assert not second.state().ready
            go_on.set()
            await until(lambda: second.state().ready)
            assert [each.id for each in second.jobs()] == [second.job(job_id).id] == [job_id]
            with pytest.raises(UnknownJob):
                second.job("e" * 32)

    asyncio.run(scenario())
