"""A standby takes over from a killed leader: how long a job stands still, and that a living one does not notice."""

import time
from pathlib import Path

import pytest

from chaos.service.cluster import SESSION_S, Cluster, until
from chaos.service.jobs import FINISH, Victim
from penstock.cluster.processes import kill_tree
from penstock.cluster.records import Claim

pytestmark = [pytest.mark.long, pytest.mark.spark]

START_S = 240.0
FACTOR = 2.5


def started(cluster: Cluster, job: Victim) -> float:
    """Submit a job, wait for its first checkpoint, and return how long it took."""
    before = time.monotonic()
    cluster.submit(job, START_S)
    until(lambda: job.checkpoint() > 0, START_S, "the first checkpoint")
    return time.monotonic() - before


def claim_of(cluster: Cluster, job: Victim) -> Claim:
    last = cluster.view(job).last
    assert last is not None
    assert last.claim is not None
    return last.claim


def test_a_job_that_died_with_the_leader_resumes_in_time_and_another_one_loses_no_epoch(tmp_path: Path) -> None:
    with Cluster(tmp_path, dispatchers=2, zookeeper=1, mounted=False) as cluster:
        survivor, victim = Victim(tmp_path / "survivor"), Victim(tmp_path / "victim")
        leader = cluster.await_leader(START_S)
        started(cluster, survivor)
        cold_start_s = started(cluster, victim)
        surviving, dying = claim_of(cluster, survivor), claim_of(cluster, victim)

        leader.kill()
        killed = time.monotonic()
        assert kill_tree(dying)
        before, seen = victim.checkpoint(), survivor.checkpoint()
        until(lambda: victim.checkpoint() > before, START_S, "a checkpoint of the killed job")
        took_s = time.monotonic() - killed
        print(f"Takeover: {took_s:.1f} s; session timeout {SESSION_S:g} s, cold start {cold_start_s:.1f} s.")
        assert took_s <= SESSION_S + FACTOR * cold_start_s

        assert cluster.leader() is not leader
        assert [len(cluster.view(job).attempts) for job in (survivor, victim)] == [1, 2]
        assert claim_of(cluster, survivor) == surviving
        assert survivor.checkpoint() > seen
        # The new leader reaches the JobManager that its predecessor started.
        for job in (survivor, victim):
            job.wanted = FINISH
            job.end_input()
        successor = cluster.await_leader(START_S)
        jobs = {survivor.id, victim.id}
        until(lambda: {cluster.states(successor)[job] for job in jobs} == {FINISH}, START_S, "both jobs finish")
        until(lambda: not any(survivor.check(cluster.view(survivor))), 60.0, "the survivor equals the oracle")
        assert victim.check(cluster.view(victim)) == []
        assert len(cluster.view(survivor).attempts) == 1
