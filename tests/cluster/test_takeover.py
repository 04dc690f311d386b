"""Takeover between real processes, and failures of real ZooKeeper servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dispatchers import Member, StandIn, all_found, settings_for, until
from kazoo.client import KazooClient

from chaos.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from penstock.cluster.coordination import CoordinationUnavailable
from penstock.cluster.gateway import NotLeading
from penstock.cluster.leadership import BecomeLeader, PauseLeadership, ResumeLeadership, StepDown
from penstock.cluster.records import Records, Submission, new_job_id
from penstock.cluster.zookeeper_client import ZooKeeperSettings
from penstock.state.local_storage import LocalStorage

pytestmark = pytest.mark.slow
Make = Callable[..., Member]
Start = Callable[..., StandIn]


def first_act(process: StandIn, after: float = 0.0) -> tuple[float, int]:
    """Wait for an act after a time, and return its time and epoch."""
    until(lambda: any(at > after for at, _ in process.acts()), f"an act of {process.file.name}")
    return next((at, epoch) for at, epoch in process.acts() if at > after)


def assert_one_acted_at_a_time(*processes: StandIn) -> None:
    """Epochs never overlap: all acts of an epoch precede those of every later one."""
    acts = sorted(act for process in processes for act in process.acts())
    epochs = [epoch for _, epoch in acts]
    assert epochs == sorted(epochs)
    for epoch in set(epochs):
        owners = [process for process in processes if any(each == epoch for _, each in process.acts())]
        assert len(owners) == 1, f"{len(owners)} processes acted in epoch {epoch}"


class TestProcesses:
    def test_a_killed_leader_is_replaced(self, settings: ZooKeeperSettings, stand_in: Start) -> None:
        one = stand_in(settings, "one")
        _, epoch = first_act(one)
        two = stand_in(settings, "two")
        until(lambda: candidates(settings) == 2, "both candidates")
        one.kill()
        _, successor = first_act(two)
        assert successor > epoch
        assert_one_acted_at_a_time(one, two)

    def test_a_stopped_leader_is_replaced_and_steps_down_before_it_acts(
        self, settings: ZooKeeperSettings, stand_in: Start
    ) -> None:
        one = stand_in(settings, "one")
        first_act(one)
        two = stand_in(settings, "two")
        until(lambda: candidates(settings) == 2, "both candidates")
        one.pause()
        taken_at, _ = first_act(two)
        stopped = one.lines()
        one.resume()
        until(lambda: "StepDown" in one.instructions(), "the step down")
        first_act(two, after=one.lines()[-1][0])
        since = one.lines()[len(stopped) :]
        # An act that was decided before the stop can be written after it.
        assert next(text for at, text in since if at > taken_at) == "StepDown"
        assert not any(at > taken_at for at, _ in one.acts())
        # The roles change again.
        two.kill()
        first_act(one, after=taken_at)
        assert_one_acted_at_a_time(one, two)

    def test_a_leader_that_is_stopped_briefly_goes_on(self, settings: ZooKeeperSettings, stand_in: Start) -> None:
        one = stand_in(settings, "one")
        at, _ = first_act(one)
        one.pause()
        one.resume()
        first_act(one, after=at)
        assert one.instructions() == ["BecomeLeader"]


def candidates(settings: ZooKeeperSettings) -> int:
    """Return the number of candidates in the latch."""
    client = KazooClient(settings.quorum, auth_data=[("digest", settings.credentials)])
    client.start()
    try:
        return len(client.get_children(settings.latch))
    finally:
        client.stop()
        client.close()


class TestOneServer:
    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[ZooKeeperServer]:
        with ZooKeeperServer(tmp_path / "server") as server:
            yield server

    @pytest.fixture
    def leader(self, server: ZooKeeperServer, member: Make) -> Member:
        return member(settings_for(server.address)).leads()

    def test_a_restart_within_the_session_pauses_the_leader(self, server: ZooKeeperServer, leader: Member) -> None:
        job_id = new_job_id()
        leader.coordination.add_job(job_id)
        server.kill()
        until(lambda: not leader.coordination.leading, "the pause")
        with pytest.raises((NotLeading, CoordinationUnavailable)):
            leader.coordination.add_job(new_job_id())
        server.start()
        leader.leads()
        begun, paused, *others = leader.instructions
        assert (type(begun), paused) == (BecomeLeader, PauseLeadership())
        # A slow machine can take longer than the lease.
        assert others[-1] == ResumeLeadership() or isinstance(others[-1], BecomeLeader)
        assert leader.coordination.pointers() == {job_id: ""}

    def test_a_long_outage_makes_the_leader_step_down_without_an_answer_from_a_server(
        self, server: ZooKeeperServer, leader: Member
    ) -> None:
        server.kill()
        until(lambda: any(isinstance(each, StepDown) for each in leader.instructions), "the step down")
        assert [type(each) for each in leader.instructions] == [BecomeLeader, PauseLeadership, StepDown]
        assert "cannot be reached" in leader.coordination.problem
        server.start()
        leader.leads()
        until(lambda: leader.coordination.problem == "")

    def test_a_paused_server_makes_the_leader_step_down(self, server: ZooKeeperServer, leader: Member) -> None:
        server.pause()
        until(lambda: any(isinstance(each, StepDown) for each in leader.instructions), "the step down")
        server.resume()
        leader.leads()
        first, *_, last = (each for each in leader.instructions if isinstance(each, BecomeLeader))
        assert first.epoch < last.epoch

    def test_a_dispatcher_waits_for_a_server_that_starts_later(self, tmp_path: Path, member: Make) -> None:
        server = ZooKeeperServer(tmp_path / "late")
        early = member(settings_for(server.address))
        until(lambda: "cannot be reached" in early.coordination.problem)
        with server:
            early.leads()
            assert early.coordination.problem == ""

    def test_closing_does_not_wait_for_a_paused_server(self, server: ZooKeeperServer, leader: Member) -> None:
        server.pause()
        leader.coordination.close()
        assert isinstance(leader.instructions[-1], StepDown)

    def test_a_leader_survives_the_loss_of_all_data_in_zookeeper(
        self, server: ZooKeeperServer, leader: Member, tmp_path: Path
    ) -> None:
        records = Records(LocalStorage(tmp_path / "records"))
        job_id = submitted(records)
        leader.coordination.add_job(job_id)
        server.kill()
        until(lambda: any(isinstance(each, StepDown) for each in leader.instructions), "the step down")
        (server.directory / "data").rename(server.directory / "lost")
        server.start()
        leader.leads()
        assert leader.coordination.pointers() == {}
        [found] = all_found(leader.coordination, records)
        assert found.job_id == job_id
        assert found.view is not None


def submitted(records: Records) -> str:
    job_id = new_job_id()
    records.submit(
        Submission(
            id=job_id, name="counts", program="", file="job.py", submitted_ms=0, python="3.11.7", penstock="0.1.0"
        )
    )
    return job_id


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as ensemble:
        yield ensemble


class TestThreeServers:
    @pytest.fixture
    def ensemble(self, shared: ZooKeeperEnsemble) -> ZooKeeperEnsemble:
        """All three run, whatever the test before did."""
        return shared.start()

    @pytest.mark.parametrize("role", ["leader", "follower"])
    def test_nothing_is_deleted_when_one_server_dies(
        self, role: str, ensemble: ZooKeeperEnsemble, member: Make, tmp_path: Path
    ) -> None:
        records = Records(LocalStorage(tmp_path))
        dispatcher = member(settings_for(ensemble.address)).leads()
        jobs = {submitted(records) for _ in range(3)}
        for job_id in jobs:
            dispatcher.coordination.add_job(job_id)
        leader = ensemble.leader()
        ensemble.servers[leader if role == "leader" else (leader + 1) % 3].kill()
        ensemble.leader()
        dispatcher.leads()
        until(lambda: dispatcher.coordination.problem == "")
        assert set(dispatcher.coordination.pointers()) == jobs
        assert {found.job_id for found in all_found(dispatcher.coordination, records) if found.view} == jobs
        dispatcher.coordination.add_job(new_job_id())

    def test_all_killed_and_restarted(self, ensemble: ZooKeeperEnsemble, member: Make) -> None:
        settings = settings_for(ensemble.address)
        one = member(settings, "one:1").leads()
        two = member(settings, "two:2")
        until(two.coordination.leader_address)
        job_id = new_job_id()
        one.coordination.add_job(job_id)
        ensemble.kill()
        until(lambda: any(isinstance(each, StepDown) for each in one.instructions), "the step down")
        assert not two.coordination.leading
        ensemble.start()
        until(lambda: one.coordination.leading or two.coordination.leading, "a leader")
        leader = one if one.coordination.leading else two
        until(lambda: leader.coordination.problem == "")
        assert leader.coordination.pointers() == {job_id: ""}

    def test_a_paused_server_is_left_for_another_one(self, ensemble: ZooKeeperEnsemble, member: Make) -> None:
        settings = settings_for(ensemble.address)
        dispatchers = [member(settings, f"host{number}:1") for number in range(3)]
        until(lambda: any(each.coordination.leading for each in dispatchers))
        paused = ensemble.servers[(ensemble.leader() + 1) % 3]
        paused.pause()
        try:
            until(lambda: all(answers(each) for each in dispatchers), "connections to the other servers")
            assert [each.coordination.leading for each in dispatchers].count(True) <= 1
            until(lambda: any(each.coordination.leading for each in dispatchers), "a leader")
        finally:
            paused.resume()


def answers(dispatcher: Member) -> bool:
    try:
        dispatcher.coordination.pointers()
    except CoordinationUnavailable:
        return False
    return True
