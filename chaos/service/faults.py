"""Injects the faults of `plan.KINDS` into a running service, and undoes those that are temporary."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from chaos.ends.served import Missed
from chaos.processes import Process, below
from chaos.service.cluster import HEARTBEAT_S, SESSION_S, Cluster
from chaos.service.jobs import Victim
from penstock.cluster.processes import kill_tree
from penstock.cluster.records import Claim

_FIND_S = 5.0
_WORKER = "pyspark.worker"


class Hit(NamedTuple):
    """What a fault did."""

    text: str
    job: Victim | None = None
    """The job whose processes it hit."""


def inject(kind: str, cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    """Inject a fault and return what it did. `jobs` are those that run. Raises Missed if it finds no target."""
    return _INJECTIONS[kind](cluster, jobs, dice)


# -- Dispatchers ---------------------------------------------------------------------------------------------------


def _kill_leader(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    leader = cluster.leader()
    if leader is None:
        raise Missed("no Dispatcher led")
    leader.kill()
    pause = _sleep(dice, 0.0, 6.0)
    leader.start()
    return Hit(f"killed {leader.directory.name}, restarted after {pause:.1f} s")


def _pause_leader(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    leader = cluster.leader()
    if leader is None:
        raise Missed("no Dispatcher led")
    with cluster.paused(leader):
        pause = _sleep(dice, SESSION_S + 1, SESSION_S + 8)
    return Hit(f"paused {leader.directory.name} for {pause:.1f} s")


def _kill_all(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    for node in cluster.dispatchers:
        node.kill()
    pause = _sleep(dice, 0.0, 6.0)
    for node in cluster.dispatchers:
        node.start(wait=False)
    for node in cluster.dispatchers:
        node.wait()
    return Hit(f"killed all Dispatchers, restarted after {pause:.1f} s")


def _kill_standby(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    standby = cluster.standby()
    if standby is None:
        raise Missed("no Dispatcher stood by")
    standby.kill()
    pause = _sleep(dice, 0.0, 3.0)
    standby.start()
    return Hit(f"killed {standby.directory.name}, restarted after {pause:.1f} s")


def _kill_host(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    leader = cluster.leader()
    if leader is None:
        raise Missed("no Dispatcher led")
    job, claim = _running(cluster, jobs, dice)
    leader.kill()
    kill_tree(claim)
    pause = _sleep(dice, 0.0, 6.0)
    leader.start()
    return Hit(f"killed {leader.directory.name} and job {job.id[:6]}, restarted after {pause:.1f} s", job)


# -- jobs ----------------------------------------------------------------------------------------------------------


def _kill_job_manager(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    job, claim = _running(cluster, jobs, dice)
    if not _python(claim).send(signal.SIGKILL):
        raise Missed(f"the JobManager of job {job.id[:6]} had just ended")
    return Hit(f"killed process {claim.pid} of job {job.id[:6]}", job)


def _pause_job_manager(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    job, claim = _running(cluster, jobs, dice)
    longest = dice.choice([HEARTBEAT_S - 4, HEARTBEAT_S + 10])
    target = _python(claim)
    if not target.send(signal.SIGSTOP):
        raise Missed(f"the JobManager of job {job.id[:6]} had just ended")
    try:
        pause = _sleep(dice, 1.0, longest)
    finally:
        target.send(signal.SIGCONT)
    return Hit(f"paused process {claim.pid} of job {job.id[:6]} for {pause:.1f} s", job)


def _kill_executor(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    return _kill_below(cluster, jobs, dice, lambda each: "java" in each.arguments().split(" ")[0], "JVM")


def _kill_worker(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    return _kill_below(cluster, jobs, dice, lambda each: each.arguments().endswith(_WORKER), "worker")


def _kill_below(
    cluster: Cluster, jobs: list[Victim], dice: random.Random, wanted: Callable[[Process], bool], name: str
) -> Hit:
    job, claim = _running(cluster, jobs, dice)
    deadline = time.monotonic() + _FIND_S
    while time.monotonic() < deadline:
        # The oldest process is the daemon that forks the workers.
        found = [each for each in below(claim.pid) if wanted(each)]
        if found and found[-1].send(signal.SIGKILL):
            return Hit(f"killed {name} {found[-1].pid} of job {job.id[:6]}", job)
        time.sleep(0.02)
    raise Missed(f"job {job.id[:6]} had no {name}")


def _running(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> tuple[Victim, Claim]:
    """Choose a job with a living JobManager."""
    found = []
    for job in jobs:
        with suppress(OSError):
            last = cluster.view(job).last
            if last is not None and last.claim is not None and last.ended is None and _python(last.claim).alive():
                found.append((job, last.claim))
    if not found:
        raise Missed("no JobManager was running")
    return dice.choice(found)


def _python(claim: Claim) -> Process:
    return Process(claim.pid, claim.started)


# -- ZooKeeper and storage -----------------------------------------------------------------------------------------


def _kill_one_server(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    number = dice.randrange(len(cluster.zookeeper))
    cluster.zookeeper[number].kill()
    pause = _sleep(dice, 0.5, 6.0)
    cluster.start_zookeeper()
    return Hit(f"killed server {number + 1}, restarted after {pause:.1f} s")


def _kill_all_servers(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    for server in cluster.zookeeper:
        server.kill()
    pause = _sleep(dice, 0.5, SESSION_S + 4)
    cluster.start_zookeeper()
    return Hit(f"killed all servers, restarted after {pause:.1f} s")


def _pause_servers(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    with cluster.paused(*cluster.zookeeper):
        pause = _sleep(dice, SESSION_S + 1, SESSION_S + 6)
    return Hit(f"paused all servers for {pause:.1f} s")


def _make_read_only(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    cluster.mount.make_read_only()
    try:
        pause = _sleep(dice, 2.0, 12.0)
    finally:
        cluster.mount.make_writable()
    return Hit(f"read-only for {pause:.1f} s")


def _fill(cluster: Cluster, jobs: list[Victim], dice: random.Random) -> Hit:
    cluster.mount.fill()
    try:
        pause = _sleep(dice, 2.0, 12.0)
    finally:
        cluster.mount.free()
    return Hit(f"full for {pause:.1f} s")


def _sleep(dice: random.Random, shortest: float, longest: float) -> float:
    seconds = dice.uniform(shortest, longest)
    time.sleep(seconds)
    return seconds


_INJECTIONS: dict[str, Callable[[Cluster, list[Victim], random.Random], Hit]] = {
    "dispatcher-kill": _kill_leader,
    "dispatcher-pause": _pause_leader,
    "dispatchers-kill": _kill_all,
    "standby-kill": _kill_standby,
    "host-kill": _kill_host,
    "jobmanager-kill": _kill_job_manager,
    "jobmanager-pause": _pause_job_manager,
    "executor-kill": _kill_executor,
    "worker-kill": _kill_worker,
    "zookeeper-one": _kill_one_server,
    "zookeeper-all": _kill_all_servers,
    "zookeeper-pause": _pause_servers,
    "records-read-only": _make_read_only,
    "records-full": _fill,
}
