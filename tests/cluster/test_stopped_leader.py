"""A leader is stopped for longer than its session, and continues when another one has taken over."""

import os
import signal
from pathlib import Path

import pytest

from chaos.service.cluster import Cluster, local, until
from chaos.service.dispatchers import can_name_hosts
from chaos.service.jobs import FINISH, Victim
from penstock.cluster.processes import kill_tree, remains
from penstock.cluster.records import Claim
from penstock.driver.assignment import Verdict
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


@pytest.mark.skipif(not can_name_hosts(), reason="needs root and unshare, for host names")
@pytest.mark.timeout(1200)
def test_a_leader_and_jobmanagers_that_were_stopped_together_do_no_harm_when_they_continue(tmp_path: Path) -> None:
    """Their host does not answer, so their processes are not killed before the next attempts run elsewhere.

    One JobManager is about to publish a checkpoint, and the other one has just done so, and not committed the epoch.
    """
    markers = {point: tmp_path / point for point in ("published", "collected")}
    plans = {"published": 20, "collected": 25}
    cluster = Cluster(
        tmp_path / "cluster",
        dispatchers=2,
        zookeeper=1,
        mounted=False,
        # The leader must not kill the first one while it waits for the second.
        settings={"heartbeat.timeout": "5 min"},
        environment={
            "PENSTOCK_CRASH": ";".join(f"stopped-driver:{point}:{plans[point]}:{markers[point]}" for point in plans)
        },
        hosts=True,
    )
    with cluster:
        jobs = [Victim(tmp_path / "a"), Victim(tmp_path / "b")]
        leader = cluster.await_leader(PATIENCE_S)
        for job in jobs:
            cluster.submit(job, PATIENCE_S)
        for marker in markers.values():
            until(marker.exists, PATIENCE_S, f"a JobManager stops at {marker.name}")
        firsts = [claim for job in jobs for claim in claims_of(cluster, job)]
        before = [job.checkpoint() for job in jobs]
        assert sorted(before) == [plans["published"], plans["collected"] - 1]
        with cluster.paused(leader):
            successor = cluster.await_leader(PATIENCE_S)
            assert successor is not leader
            for job, last in zip(jobs, before, strict=True):
                until(lambda job=job, last=last: job.checkpoint() > last, PATIENCE_S, "a checkpoint of attempt 2")
        for first in firsts:
            assert first is not None
            assert first.host == leader.directory.name
            assert remains(local(first))
            os.kill(first.pid, signal.SIGCONT)
        for job, first in zip(jobs, firsts, strict=True):
            assert first is not None
            until(lambda first=first: not remains(local(first)), PATIENCE_S, "the stopped JobManager exits")
            log = (leader.directory / "jobs" / job.id / "1" / "jobmanager.log").read_text()
            assert "This attempt was declared lost" in log or "Superseded" in log or "Fenced" in log, log
        until(lambda: cluster.standby() is leader, PATIENCE_S, "the stopped Dispatcher is a standby")
        assert cluster.leader() is successor
        for job in jobs:
            job.wanted = FINISH
            job.end_input()
        for job, first in zip(jobs, firsts, strict=True):
            until(lambda job=job: not job.check(cluster.view(job)), PATIENCE_S, "the output equals the oracle")
            view = cluster.view(job)
            assert [each.ended.verdict for each in view.attempts if each.ended] == [Verdict.LOST, Verdict.FINISHED]
            second = view.attempts[1].claim
            assert second is not None
            assert (view.attempts[0].claim, second.host) == (first, successor.directory.name)
            assert view.verdict is not None
            assert view.verdict.by == second.token
        for node in cluster.dispatchers:
            assert "killing process" not in node.log.read_text()
