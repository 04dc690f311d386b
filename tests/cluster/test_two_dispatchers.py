"""Two Dispatchers and a real ZooKeeper: what the standby does not do, and what the loss of a server does not change."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from penstock.cluster.dispatcher import Dispatcher
from penstock.cluster.gateway import RunRequest
from penstock.cluster.housekeeping import Housekeeping
from penstock.cluster.launcher import LocalLauncher
from penstock.driver.job_snapshot import JobSnapshot

pytestmark = pytest.mark.slow

PLAN = '{"of": "the history"}'


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.dispatcher._TICK_S", 0.02)
    monkeypatch.setattr("penstock.cluster.housekeeping._SWEEP_S", 0.0)
    monkeypatch.setattr("penstock.cluster.housekeeping._HOST_SWEEP_S", 0.0)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[LocalLauncher, list[tuple[str, int]]]:
    """The attempts that each launcher started. None has a process."""
    started: dict[LocalLauncher, list[tuple[str, int]]] = {}

    def start(self: LocalLauncher, order: Any) -> None:
        started.setdefault(self, []).append((order.job_id, order.attempt))

    monkeypatch.setattr(LocalLauncher, "start", start)
    return started


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[Housekeeping, str]]:
    """How often each Dispatcher has completed a sweep of the records, and one of its host."""
    completed: Counter[tuple[Housekeeping, str]] = Counter()

    def counted(name: str) -> Callable[[Housekeeping], None]:
        original: Callable[[Housekeeping], None] = getattr(Housekeeping, name)

        def sweep(self: Housekeeping) -> None:
            original(self)
            completed[self, name] += 1

        return sweep

    for name in ("sweep", "sweep_host"):
        monkeypatch.setattr(Housekeeping, name, counted(name))
    return completed


@asynccontextmanager
async def dispatcher(folder: Path, name: str, quorum: str) -> AsyncIterator[Dispatcher]:
    settings = {
        "cluster.dir": str(folder / name),
        "high-availability.type": "zookeeper",
        "high-availability.storageDir": str(folder / "records"),
        "high-availability.cluster-id": folder.name,
        "high-availability.zookeeper.quorum": quorum,
        "high-availability.zookeeper.client.session-timeout": "5 s",
        "state.checkpoints.dir": str(folder / "checkpoints"),
    }
    running = Dispatcher(settings)
    await running.start(f"http://{name}:1")
    try:
        yield running
    finally:
        await running.close()


@asynccontextmanager
async def pair(folder: Path, quorum: str) -> AsyncIterator[tuple[Dispatcher, Dispatcher]]:
    """The leader, and a standby that knows it."""
    async with dispatcher(folder, "a", quorum) as leader:
        await until(lambda: leader.state().leading and leader.state().ready)
        async with dispatcher(folder, "b", quorum) as standby:
            await until(lambda: standby.state().leader == "http://a:1")
            yield leader, standby


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(90):
        while not condition():
            await asyncio.sleep(0.02)


async def submitted(leader: Dispatcher, folder: Path) -> str:
    (folder / "source").write_text("print()")
    program = await leader.upload("job.py", folder / "source")
    return await leader.run(RunRequest(program=program.id))


def test_a_standby_does_not_react_to_a_new_job(
    tmp_path: Path,
    zookeeper: ZooKeeperServer,
    started: dict[LocalLauncher, list[tuple[str, int]]],
    sweeps: Counter[tuple[Housekeeping, str]],
) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, zookeeper.address) as (leader, standby):
            job = await submitted(leader, tmp_path)
            await until(lambda: started)
            assert started == {leader._supervisor.launcher: [(job, 1)]}
            # It could see the job, and looks at its host all the time.
            assert job in await asyncio.to_thread(standby._coordination.pointers)
            before = sweeps[standby._housekeeping, "sweep_host"]
            await until(lambda: sweeps[standby._housekeeping, "sweep_host"] > before + 20)
            assert leader.jobs()[0].id == job
            assert (standby._supervisor._jobs, standby._jobs.views(), standby._jobs.all()) == ({}, [], [])
            assert standby._jobs._feed._followed == {}
            assert not list(standby.directory.jobs.iterdir())
            [attempt] = standby._records.view(job).attempts
            assert attempt.planned is not None
            assert attempt.planned.leader == leader.name

            await leader.cancel(job)
            await until(lambda: leader.job(job).state == "CANCELED")
            before = sweeps[standby._housekeeping, "sweep_host"]
            await until(lambda: sweeps[standby._housekeeping, "sweep_host"] > before + 20)
            assert (standby._supervisor._jobs, standby._jobs.views(), standby._jobs.all()) == ({}, [], [])
        assert list(started) == [leader._supervisor.launcher]

    asyncio.run(scenario())


@pytest.fixture
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as ensemble:
        yield ensemble


def contents(*folders: Path) -> dict[Path, bytes]:
    """Return all files, without those that a Dispatcher writes to find out whether it can."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in files if "probes" not in path.parts}


def test_nothing_is_removed_when_the_leader_of_zookeeper_changes(
    tmp_path: Path,
    ensemble: ZooKeeperEnsemble,
    started: dict[LocalLauncher, list[tuple[str, int]]],
    sweeps: Counter[tuple[Housekeeping, str]],
) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, ensemble.address) as (first, second):
            records = first._records
            running, ended = await submitted(first, tmp_path), await submitted(first, tmp_path)
            snapshot = JobSnapshot(id=ended, name="ended", state="CANCELED", plan=PLAN)
            records.store_history(ended, msgspec.json.encode(snapshot))
            await first.cancel(ended)
            await until(lambda: first.job(ended).state == "CANCELED")
            for job in (running, ended):
                records.bind_lineage(job, str(tmp_path / "checkpoints" / job))
                manifest = tmp_path / "checkpoints" / job / "lineage" / "manifests" / "1"
                manifest.parent.mkdir(parents=True)
                manifest.write_text("a checkpoint")
            await until(lambda: not first._supervisor.supervises(ended))
            for node in (first, second):
                # Of jobs that ran on the host.
                for job in (running, ended):
                    (node.directory.jobs / job / "1").mkdir(parents=True, exist_ok=True)
                    (node.directory.jobs / job / "1" / "jobmanager.log").write_text("a log")
            folders = [tmp_path / "records", tmp_path / "checkpoints", first.directory.jobs, second.directory.jobs]
            before = contents(*folders)
            assert any("history" in path.parts for path in before)

            for _ in range(2):
                killed = ensemble.servers[await asyncio.to_thread(ensemble.leader)]
                await asyncio.to_thread(killed.kill)
                await asyncio.to_thread(ensemble.leader)
                await until(lambda: sum(each.state().leading for each in (first, second)) == 1)
                leader = first if first.state().leading else second
                await until(lambda leader=leader: leader.state().ready)
                swept = sweeps.copy()
                await until(lambda leader=leader, swept=swept: swept_again(leader, (first, second), sweeps, swept))
                assert contents(*folders) == before
                assert {job.id: job.state for job in leader.jobs()} == {running: "INITIALIZING", ended: "CANCELED"}
                await until(lambda leader=leader: leader.job(ended).plan == PLAN)
                assert set(await asyncio.to_thread(leader._coordination.pointers)) == {running}
                await asyncio.to_thread(killed.start)
            # A new leader starts the process of an attempt that has none again, and plans no other attempt.
            assert {attempt for attempts in started.values() for attempt in attempts} <= {(running, 1), (ended, 1)}

    asyncio.run(scenario())


def swept_again(
    leader: Dispatcher,
    nodes: tuple[Dispatcher, ...],
    sweeps: Counter[tuple[Housekeeping, str]],
    before: Counter[tuple[Housekeeping, str]],
) -> bool:
    """Return whether the records and all hosts were swept ten times."""
    wanted = [(leader._housekeeping, "sweep"), *((each._housekeeping, "sweep_host") for each in nodes)]
    return all(sweeps[each] >= before[each] + 10 for each in wanted)
