"""The node by which a JobManager reports that it is alive."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from dispatchers import ROOT, Member, settings_for, until

from chaos.servers.zookeeper import ZooKeeperServer
from penstock.cluster.presence import Presence
from penstock.cluster.records import UnknownJob, new_job_id
from penstock.cluster.zookeeper_client import ZooKeeperSettings

pytestmark = pytest.mark.slow
Make = Callable[..., Member]

PROGRAM = """
import sys, time
from penstock.cluster.presence import Presence
from penstock.cluster.zookeeper_client import ZooKeeperSettings

quorum, root, cluster_id, timeout_s, credentials, job_id = sys.stdin.readline().split()
settings = ZooKeeperSettings(
    quorum=quorum, root=root, cluster_id=cluster_id, timeout_s=float(timeout_s), credentials=credentials
)
Presence(settings, job_id, 3, "here").start()
sys.stdin.read()
"""


def test_a_job_manager_appears_and_disappears(settings: ZooKeeperSettings, member: Make) -> None:
    leader = member(settings).leads()
    job_id = new_job_id()
    presence = Presence(settings, job_id, 2, "here")
    presence.start()
    until(lambda: leader.coordination.living_job_managers() == {(job_id, 2)}, "the JobManager")
    presence.close()
    assert leader.coordination.living_job_managers() == set()


def test_a_killed_job_manager_disappears(settings: ZooKeeperSettings, member: Make) -> None:
    leader = member(settings).leads()
    job_id = new_job_id()
    fields = (settings.quorum, settings.root, settings.cluster_id, settings.timeout_s, settings.credentials, job_id)
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        process.stdin.write(" ".join(map(str, fields)) + "\n")
        process.stdin.flush()
        until(lambda: leader.coordination.living_job_managers() == {(job_id, 3)}, "the JobManager")
        process.kill()
    until(lambda: leader.coordination.living_job_managers() == set(), "the end of its session")


def test_a_job_manager_survives_the_leader(settings: ZooKeeperSettings, member: Make) -> None:
    former = member(settings).leads()
    job_id = new_job_id()
    presence = Presence(settings, job_id, 1, "here")
    presence.start()
    until(former.coordination.living_job_managers)
    former.coordination.close()
    assert member(settings).leads().coordination.living_job_managers() == {(job_id, 1)}
    presence.close()


def test_a_job_manager_whose_session_was_lost_appears_again(tmp_path: Path, member: Make) -> None:
    with ZooKeeperServer(tmp_path) as server:
        settings = settings_for(server.address)
        job_id = new_job_id()
        leader = member(settings).leads()
        presence = Presence(settings, job_id, 1, "here")
        presence.start()
        until(leader.coordination.living_job_managers)
        lost = presence._connection.session
        # The client forgets its session. The node of that session stays until the server notices.
        presence._connection.client._reset_session()
        presence._connection.client._connection._socket.shutdown(socket.SHUT_RDWR)
        until(lambda: presence._connection.session not in (None, lost), "another session")
        until(lambda: owner(leader, settings, job_id) == presence._connection.session, "the node of the new session")
        presence.close()


def owner(leader: Member, settings: ZooKeeperSettings, job_id: str) -> int | None:
    stat = leader.coordination._connection.client.exists(f"{settings.job_managers}/{job_id}-000001")
    return None if stat is None else int(stat.ephemeralOwner)


def test_a_job_manager_needs_no_zookeeper_to_start_and_stop(tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path)
    presence = Presence(settings_for(server.address), new_job_id(), 1, "here")
    presence.start()
    presence.close()


def test_an_id_that_is_a_path_is_refused() -> None:
    with pytest.raises(UnknownJob):
        Presence(settings_for("127.0.0.1:1"), "../" + "a" * 29, 1, "here")
