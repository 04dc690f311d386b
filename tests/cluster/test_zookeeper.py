"""Coordination through one real ZooKeeper server: election, pointers, protection, and bugs that others had."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dispatchers import Member, settings_for, until
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from service import Service

from chaos.servers.zookeeper import ZooKeeperServer
from penstock.cluster.coordination import CoordinationUnavailable
from penstock.cluster.gateway import NotLeading
from penstock.cluster.leadership import BecomeLeader, StepDown
from penstock.cluster.records import UnknownJob, new_job_id
from penstock.cluster.zookeeper_client import Connection, ZooKeeperSettings

pytestmark = pytest.mark.slow
Make = Callable[..., Member]


@pytest.fixture
def anonymous(zookeeper: ZooKeeperServer) -> Iterator[Any]:
    """A client without credentials."""
    client = KazooClient(zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def admin(settings: ZooKeeperSettings) -> Iterator[Any]:
    """Another client with the credentials of the cluster."""
    connection = Connection(settings, lambda state: None)
    connection.client.start()
    connection.prepare()
    yield connection.client
    connection.close()


class TestElection:
    def test_the_first_leads_and_the_second_takes_over_when_it_leaves(
        self, settings: ZooKeeperSettings, member: Make
    ) -> None:
        first = member(settings, "one:1").leads()
        second = member(settings, "two:2")
        until(lambda: second.coordination.leader_address() == "one:1", "the leader's address")
        assert not second.coordination.leading
        first.coordination.close()
        second.leads()
        until(lambda: second.coordination.leader_address() == "two:2", "the new leader's address")
        [begun, ended] = first.instructions
        [taken] = second.instructions
        assert isinstance(begun, BecomeLeader)
        assert isinstance(taken, BecomeLeader)
        assert begun.epoch < taken.epoch
        assert ended == StepDown("The Dispatcher stops.")
        assert not first.coordination.leading

    def test_clusters_with_different_ids_have_different_leaders(
        self, settings: ZooKeeperSettings, zookeeper: ZooKeeperServer, member: Make
    ) -> None:
        member(settings).leads()
        member(settings_for(zookeeper.address, credentials="another:password")).leads()

    def test_a_leader_whose_node_is_removed_steps_down_and_competes_again(
        self, settings: ZooKeeperSettings, member: Make, admin: Any
    ) -> None:
        leader = member(settings).leads()
        [node] = admin.get_children(settings.latch)
        admin.delete(f"{settings.latch}/{node}")
        until(lambda: len(leader.instructions) == 3, "a second election")
        before, stepped, after = leader.instructions
        assert isinstance(stepped, StepDown)
        assert isinstance(before, BecomeLeader)
        assert isinstance(after, BecomeLeader)
        assert before.epoch < after.epoch

    def test_the_timeout_that_the_server_grants_is_used(self, settings: ZooKeeperSettings, member: Make) -> None:
        """kazoo does not report it; if this fails after an upgrade of kazoo, see Connection._observe_timeout."""
        leader = member(replace(settings, timeout_s=60.0)).leads()
        assert leader.coordination._connection.timeout_s == 5.0

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_a_client_that_gave_up_is_started_again(self, settings: ZooKeeperSettings, member: Make) -> None:
        leader = member(settings).leads()
        handler = leader.coordination._connection.client._connection
        connect = handler._connect

        def fail(*arguments: object) -> None:
            handler._connect = connect
            raise RuntimeError("unexpected")

        handler._connect = fail
        handler._socket.shutdown(socket.SHUT_RDWR)
        until(lambda: any(isinstance(each, StepDown) for each in leader.instructions), "the loss of the session")
        leader.leads()

    def test_a_leader_in_office_keeps_a_single_watch(self, settings: ZooKeeperSettings, member: Make) -> None:
        leader = member(settings).leads()
        for _ in range(3):
            leader.coordination._leader = None
            until(leader.coordination.leader_address, "another look at the latch")
        assert len(leader.coordination._connection.client._child_watchers[settings.latch]) == 1

    def test_a_foreign_node_in_the_latch_is_ignored(
        self, settings: ZooKeeperSettings, member: Make, admin: Any
    ) -> None:
        admin.create(f"{settings.latch}/a-note-of-an-operator", b"x")
        leader = member(settings).leads()
        assert leader.coordination.leader_address() == "here:8081"


class TestPointers:
    def test_a_new_leader_reads_the_pointers_of_the_former_one(self, settings: ZooKeeperSettings, member: Make) -> None:
        former = member(settings).leads()
        kept, removed = new_job_id(), new_job_id()
        former.coordination.add_job(kept)
        former.coordination.add_job(removed)
        former.coordination.add_job(kept)
        assert former.coordination.remove_job(removed)
        former.coordination.close()
        assert member(settings).leads().coordination.pointers() == {kept: ""}

    def test_removing_a_job_that_has_no_pointer_succeeds(self, settings: ZooKeeperSettings, member: Make) -> None:
        assert member(settings).leads().coordination.remove_job(new_job_id())

    def test_missing_nodes_are_not_taken_for_a_cluster_without_jobs(
        self, settings: ZooKeeperSettings, member: Make, admin: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        leader = member(settings).leads()
        monkeypatch.setattr(leader.coordination._connection, "prepare", lambda: None)
        admin.delete(settings.jobs)
        with pytest.raises(CoordinationUnavailable, match="is missing"):
            leader.coordination.pointers()

    def test_a_standby_changes_no_pointers(self, settings: ZooKeeperSettings, member: Make) -> None:
        leader = member(settings).leads()
        standby = member(settings)
        until(standby.coordination.leader_address)
        job_id = new_job_id()
        leader.coordination.add_job(job_id)
        with pytest.raises(NotLeading):
            standby.coordination.add_job(new_job_id())
        with pytest.raises(NotLeading):
            standby.coordination.remove_job(job_id)
        assert standby.coordination.pointers() == {job_id: ""}

    def test_a_former_leader_that_does_not_know_it_yet_changes_no_pointers(
        self, settings: ZooKeeperSettings, member: Make, admin: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        former = member(settings).leads()
        job_id = new_job_id()
        former.coordination.add_job(job_id)
        monkeypatch.setattr(former.coordination, "_feed", lambda make: None)
        [node] = admin.get_children(settings.latch)
        admin.delete(f"{settings.latch}/{node}")
        assert former.coordination.leading
        with pytest.raises(NotLeading):
            former.coordination.add_job(new_job_id())
        with pytest.raises(NotLeading):
            former.coordination.remove_job(job_id)
        assert admin.get_children(settings.jobs) == [job_id]

    @pytest.mark.parametrize("path", ["../../etc", "/etc/passwd", "jobs/x", "", "a" * 31, "A" * 32, "a" * 32 + "/.."])
    def test_a_job_id_that_is_a_path_is_refused(self, path: str, settings: ZooKeeperSettings, member: Make) -> None:
        leader = member(settings).leads()
        with pytest.raises(UnknownJob):
            leader.coordination.add_job(path)
        with pytest.raises(UnknownJob):
            leader.coordination.remove_job(path)

    @pytest.mark.parametrize("content", [b"../../../home/other", b"/tmp/evil", b"jobs/" + b"a" * 32, b"", b"b" * 32])
    def test_a_pointer_to_another_place_is_refused(
        self, content: bytes, settings: ZooKeeperSettings, member: Make, admin: Any
    ) -> None:
        leader = member(settings).leads()
        leader.coordination.add_job("a" * 32)
        admin.set(f"{settings.jobs}/{'a' * 32}", content)
        assert "was changed" in leader.coordination.pointers()["a" * 32]

    def test_a_node_whose_name_is_not_a_job_id_is_refused(
        self, settings: ZooKeeperSettings, member: Make, admin: Any
    ) -> None:
        leader = member(settings).leads()
        admin.create(f"{settings.jobs}/..evil", b"..evil")
        assert "not a job id" in leader.coordination.pointers()["..evil"]


class TestProtection:
    def test_a_client_without_credentials_neither_reads_nor_writes(
        self, settings: ZooKeeperSettings, member: Make, anonymous: Any
    ) -> None:
        leader = member(settings).leads()
        job_id = new_job_id()
        leader.coordination.add_job(job_id)
        pointer = f"{settings.jobs}/{job_id}"
        attempts: list[Callable[[], object]] = [
            lambda: anonymous.get(pointer),
            lambda: anonymous.set(pointer, b"../evil"),
            lambda: anonymous.delete(pointer),
            lambda: anonymous.create(f"{pointer}/lock"),
            lambda: anonymous.create(f"{settings.jobs}/{new_job_id()}"),
            lambda: anonymous.get_children(settings.jobs),
            lambda: anonymous.create(f"{settings.latch}/0000000000000000-1-", ephemeral=True, sequence=True),
            lambda: anonymous.create(f"{settings.job_managers}/{job_id}-000001"),
            lambda: anonymous.set_acls(pointer, [leader.coordination._connection._private[0]]),
            lambda: anonymous.get(f"{settings.latch}/{admin_view(leader, settings)}"),
        ]
        for attempt in attempts:
            with pytest.raises(NoAuthError):
                attempt()
        assert leader.coordination.pointers() == {job_id: ""}

    def test_nodes_that_others_prepared_are_not_used(
        self, settings: ZooKeeperSettings, member: Make, anonymous: Any
    ) -> None:
        anonymous.ensure_path(settings.jobs)
        outsider = member(settings)
        until(lambda: "can be changed by others" in outsider.coordination.problem, "the refusal")
        assert not outsider.coordination.leading

    def test_other_credentials_are_refused_with_a_message(self, settings: ZooKeeperSettings, member: Make) -> None:
        member(settings).leads()
        outsider = member(replace(settings, credentials="penstock:another"))
        until(lambda: "belongs to another user" in outsider.coordination.problem, "the refusal")
        assert "credentials-file" in outsider.coordination.problem

    def test_the_password_is_in_no_node_and_no_log(
        self, settings: ZooKeeperSettings, member: Make, admin: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        leader = member(settings).leads()
        leader.coordination.add_job(new_job_id())
        until(lambda: admin.get_children(settings.agents))
        password = settings.credentials.partition(":")[2]
        nodes = [settings.base]
        for path in nodes:
            nodes += [f"{path}/{name}" for name in admin.get_children(path)]
            content, _ = admin.get(path)
            acls, _ = admin.get_acls(path)
            assert password not in f"{path} {content!r} {acls}"
        assert len(nodes) == 8
        assert caplog.text
        assert password not in caplog.text + repr(settings)

    def test_the_secrets_of_a_job_are_in_no_node(
        self, settings: ZooKeeperSettings, admin: Any, zookeeper: ZooKeeperServer, tmp_path: Path
    ) -> None:
        credentials = tmp_path / "credentials"
        credentials.touch(0o600)
        credentials.write_text(settings.credentials)
        with Service(
            tmp_path / "cluster",
            high_availability__type="zookeeper",
            high_availability__storageDir=str(tmp_path / "storage"),
            high_availability__cluster_id=settings.cluster_id,
            high_availability__zookeeper__quorum=zookeeper.address,
            high_availability__zookeeper__path__root=settings.root,
            high_availability__zookeeper__client__credentials_file=str(credentials),
            spark__hadoop__fs__s3a__secret__key=PLANTED,
        ) as service:
            arguments = ["--password", PLANTED, str(tmp_path / "go")]
            job = service.submit(WAITING, *arguments, db__password=PLANTED, parallelism__default="1")
            until(lambda: admin.get_children(settings.job_managers), "the JobManager's node")
            assert any(job in node for node in self.check_nodes(admin, settings.base))
            (tmp_path / "go").touch()
            service.wait_until(job, "FAILED")
            self.check_nodes(admin, settings.base)

    @staticmethod
    def check_nodes(admin: Any, base: str) -> list[str]:
        nodes = [base]
        for path in nodes:
            nodes += [f"{path}/{name}" for name in admin.get_children(path)]
            content, _ = admin.get(path)
            assert PLANTED not in f"{path} {content!r}"
        return nodes


PLANTED = "correct-horse-battery-staple"
WAITING = """
import os, sys, time
while not os.path.exists(sys.argv[3]):
    time.sleep(0.05)
raise ValueError(f"cannot log in with {sys.argv[2]}")
"""


def admin_view(leader: Member, settings: ZooKeeperSettings) -> str:
    """Return the name of the leader's node in the latch."""
    [name] = leader.coordination._connection.client.get_children(settings.latch)
    return str(name)


class TestBugsOfOthers:
    def test_a_former_leaders_lock_does_not_keep_the_node_of_a_finished_job(
        self, settings: ZooKeeperSettings, member: Make, admin: Any
    ) -> None:
        leader = member(settings).leads()
        job_id = new_job_id()
        leader.coordination.add_job(job_id)
        # Another session, which lives on.
        admin.create(f"{settings.jobs}/{job_id}/lock-of-a-former-leader", ephemeral=True)
        assert leader.coordination.remove_job(job_id)
        assert admin.get_children(settings.jobs) == []

    def test_a_standby_does_not_react_to_a_new_job(self, settings: ZooKeeperSettings, member: Make) -> None:
        leader = member(settings).leads()
        standby = member(settings)
        until(standby.coordination.leader_address)
        for _ in range(5):
            leader.coordination.add_job(new_job_id())
        # Two more looks at the latch, so that a reaction would have had its chance.
        for _ in range(2):
            standby.coordination._leader = None
            until(standby.coordination.leader_address)
        assert standby.instructions == []
        assert not standby.coordination.leading

    def test_a_removal_that_fails_is_reported_and_tried_again(
        self,
        settings: ZooKeeperSettings,
        member: Make,
        admin: Any,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        leader = member(settings).leads()
        job_id = new_job_id()
        leader.coordination.add_job(job_id)
        real = leader.coordination._mapped

        def fail(*arguments: object) -> object:
            raise CoordinationUnavailable("The network is down.")

        monkeypatch.setattr(leader.coordination, "_mapped", fail)
        assert not leader.coordination.remove_job(job_id)
        assert "not removed yet" in caplog.text
        assert "The network is down." in caplog.text
        assert admin.get_children(settings.jobs) == [job_id]
        monkeypatch.setattr(leader.coordination, "_mapped", real)
        until(lambda: admin.get_children(settings.jobs) == [], "the second attempt")
