"""A leader is stopped for longer than its session, and continues when another one has taken over."""

from pathlib import Path

import pytest

from chaos.service.cluster import Cluster, until
from chaos.service.jobs import FINISH, Victim
from penstock.cluster.processes import kill_tree
from penstock.cluster.records import Claim
from penstock.rest.contract import MultipleJobsDetails

pytestmark = [pytest.mark.long, pytest.mark.spark]

PATIENCE_S = 240.0


def claims_of(cluster: Cluster, job: Victim) -> list[Claim | None]:
    return [each.claim for each in cluster.view(job).attempts]


def test_a_stopped_leader_starts_nothing_and_shows_nothing_outdated_when_it_continues(tmp_path: Path) -> None:
    with Cluster(tmp_path, dispatchers=2, zookeeper=1, mounted=False) as cluster:
        job = Victim(tmp_path / "job")
        leader = cluster.await_leader(PATIENCE_S)
        cluster.submit(job, PATIENCE_S)
        until(lambda: job.checkpoint() > 0, PATIENCE_S, "the first checkpoint")
        [first] = claims_of(cluster, job)
        assert first is not None
        with cluster.paused(leader):
            successor = cluster.await_leader(PATIENCE_S)
            assert successor is not leader
            assert kill_tree(first)
            until(lambda: len(claims_of(cluster, job)) == 2 and claims_of(cluster, job)[1], PATIENCE_S, "attempt 2")
        second = claims_of(cluster, job)[1]
        assert second is not None
        until(lambda: cluster.standby() is leader, PATIENCE_S, "the stopped Dispatcher is a standby")
        before = job.checkpoint()
        until(lambda: job.checkpoint() > before, PATIENCE_S, "a checkpoint of the second attempt")
        job.wanted = FINISH
        job.end_input()

        def shown() -> str:
            """The Dispatcher that was stopped answers with the state that the leader knows."""
            overview = leader.client(8.0).get("/jobs/overview", MultipleJobsDetails)
            return next(str(each.state) for each in overview.jobs if each.jid == job.id)

        until(lambda: shown() == FINISH, PATIENCE_S, "the job finishes")
        until(lambda: not job.check(cluster.view(job)), PATIENCE_S, "the output equals the oracle")
        assert claims_of(cluster, job) == [first, second]
        ended = cluster.view(job).verdict
        assert ended is not None
        assert ended.by == second.token
        assert cluster.leader() is successor
