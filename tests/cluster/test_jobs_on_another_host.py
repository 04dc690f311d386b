"""Two real Dispatchers with different host names: the leader on one host reaches JobManagers on the other one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.servers.zookeeper import ZooKeeperServer
from chaos.service.cluster import local, until
from chaos.service.dispatchers import DispatcherProcess, can_name_hosts
from penstock.cluster.processes import kill_tree, remains
from penstock.cluster.records import Claim, Records
from penstock.driver.assignment import Verdict
from penstock.errors import PenstockError
from penstock.rest.client import RestClient
from penstock.rest.command_types import JobLine, RescaleRequest
from penstock.rest.contract import (
    AsynchronousOperationResult,
    JarRunResponseBody,
    LogListInfo,
    TriggerResponse,
)
from penstock.rest.own_endpoints import Health
from penstock.state.local_storage import LocalStorage

START_S = 240.0
PROGRAM = """
import sys
from penstock.connectors.generated import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
source = DataGeneratorSource(lambda n: (n % 3, 1), records_per_epoch=6)
ticks = env.from_source(source, source_name="ticks").uid("ticks")
ticks.key_by(lambda tick: tick[0]).sum(1).uid("count").print()
env.execute(sys.argv[1])
"""


pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.skipif(not can_name_hosts(), reason="needs root and unshare, for host names"),
]


class Hosts:
    """Two hosts with a Dispatcher each, a storage that both reach, and ZooKeeper."""

    def __init__(self, folder: Path, zookeeper: ZooKeeperServer) -> None:
        self.folder = folder
        self.records = Records(LocalStorage(folder / "records" / "hosts"))
        # Names that no resolver knows: Spark must not look for its own.
        environment = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
        self.a, self.b = (
            DispatcherProcess(
                {
                    "high-availability.type": "zookeeper",
                    "high-availability.zookeeper.quorum": zookeeper.address,
                    "high-availability.zookeeper.client.session-timeout": "4 s",
                    "high-availability.storageDir": str(folder / "records"),
                    "high-availability.cluster-id": "hosts",
                    "state.checkpoints.dir": str(folder / "checkpoints"),
                    "state.savepoints.dir": str(folder / "savepoints"),
                    "cluster.dir": str(folder / host),
                    "rest.port": "0",
                    "heartbeat.timeout": "10 s",
                    "spark.master": "local[1]",
                    "spark.ui.enabled": "false",
                    "jobmanager.memory.heap.size": "512 mb",
                    "execution.checkpointing.interval": "300 ms",
                },
                environment,
                host,
            )
            for host in ("host-a", "host-b")
        )

    def close(self) -> None:
        for node in (self.a, self.b):
            if node.running:
                node.kill()
        for job_id in self.records.job_ids():
            for attempt in self.records.view(job_id).attempts:
                if attempt.claim is not None:
                    kill_tree(local(attempt.claim))

    def submit(self, name: str) -> str:
        file = self.folder / "job.py"
        file.write_text(PROGRAM)
        client = self.a.client()
        body = {"programArgsList": [name]}
        return str(client.post(f"/jars/{client.upload(file)}/run", JarRunResponseBody, body).jobid)

    def claim(self, job_id: str, attempt: int) -> Claim | None:
        attempts = self.records.view(job_id).attempts
        return attempts[attempt - 1].claim if len(attempts) >= attempt else None


def line(client: RestClient, job_id: str) -> JobLine:
    return next(each for each in client.get("/penstock/v1/jobs", list[JobLine]) if each.id == job_id)


def runs(node: DispatcherProcess, job_id: str, after: int = 0) -> bool:
    shown = line(node.client(), job_id)
    return shown.status == "RUNNING" and shown.epochs > after


def leads(node: DispatcherProcess) -> bool:
    try:
        health = node.client(5.0).get("/ready", Health)
    except (PenstockError, OSError):
        return False
    return health.leading and health.ready


def completed(client: RestClient, path: str) -> Any:
    """Wait for the end of an operation, and return its result."""

    def poll() -> AsynchronousOperationResult | None:
        found = client.get(path, AsynchronousOperationResult)
        return found if found.status.id == "COMPLETED" else None

    return msgspec.to_builtins(until(poll, START_S, path).operation)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with ZooKeeperServer(tmp_path / "zookeeper") as zookeeper:
        hosts = Hosts(tmp_path, zookeeper)
        try:
            yield hosts
        finally:
            hosts.close()


@pytest.mark.timeout(900)
def test_the_leader_sees_saves_rescales_and_kills_jobs_on_another_host(hosts: Hosts) -> None:
    hosts.a.start()
    until(lambda: leads(hosts.a), START_S, "host-a leads")
    killed, hung = hosts.submit("killed"), hosts.submit("hung")
    for job in (killed, hung):
        until(lambda job=job: runs(hosts.a, job), START_S, "the job runs on host-a")
    claims = {job: hosts.claim(job, 1) for job in (killed, hung)}
    assert {claim.host for claim in claims.values() if claim} == {"host-a"}
    hosts.b.start()
    hosts.a.kill()
    until(lambda: leads(hosts.b), START_S, "host-b leads")
    hosts.a.start()
    assert not leads(hosts.a)

    client = hosts.b.client()
    for job in (killed, hung):
        until(lambda job=job: runs(hosts.b, job), START_S, "host-b shows the job")
        before = line(client, job).epochs
        until(lambda job=job, before=before: runs(hosts.b, job, before), START_S, "its epochs advance")
        assert line(client, job).attempt == 1
        assert hosts.claim(job, 1) == claims[job]

    trigger = client.post(f"/jobs/{killed}/savepoints", TriggerResponse, {}).request_id
    saved = completed(client, f"/jobs/{killed}/savepoints/{trigger}")
    assert str(hosts.folder / "savepoints") in saved["location"]
    rescale = RescaleRequest(parallelism={"count": 2})
    trigger = client.post(f"/penstock/v1/jobs/{killed}/rescaling", TriggerResponse, rescale).request_id
    assert "failure-cause" not in completed(client, f"/jobs/{killed}/rescaling/{trigger}")
    until(lambda: line(client, killed).parallelism["count"] == 2, START_S, "two tasks count")

    logs = {each.name: each.size for each in client.get(f"/penstock/v1/jobs/{killed}/logs", LogListInfo).logs}
    assert set(logs) == {"1-jobmanager.log", "1-jobmanager.out"}
    text = b"".join(client.text(f"/penstock/v1/jobs/{killed}/logs/1-jobmanager.out"))
    assert text.count(b"\n") > 3
    assert text == (hosts.folder / "host-a" / "jobs" / killed / "1" / "jobmanager.out").read_bytes()[: len(text)]
    assert b"".join(client.text(f"/penstock/v1/jobs/{killed}/logs/1-jobmanager.out", 10)).count(b"\n") < 10

    check_death(hosts, killed, claims[killed])
    # A drained Dispatcher stays the agent of its host, and forwards requests.
    hosts.a.client().post("/penstock/v1/drain", dict[str, Any])
    assert line(hosts.a.client(), hung).attempt == 1
    check_silence(hosts, hung, claims[hung])


def check_death(hosts: Hosts, job: str, claim: Claim | None) -> None:
    """A dead process is found through the agent, and not because its host is unknown; the job continues on host-b."""
    assert claim is not None
    os.kill(claim.pid, signal.SIGKILL)
    until(lambda: hosts.claim(job, 2), START_S, "the next attempt")
    first, second = hosts.records.view(job).attempts[:2]
    assert first.ended is not None
    assert (first.ended.verdict, first.ended.reason) == (Verdict.LOST, f"Process {claim.pid} on host-a died.")
    assert second.claim is not None
    assert second.claim.host == "host-b"
    assert not remains(local(claim))
    until(lambda: runs(hosts.b, job), START_S, "the job runs on host-b")
    logs = hosts.b.client().get(f"/penstock/v1/jobs/{job}/logs", LogListInfo).logs
    assert {"1-jobmanager.log", "2-jobmanager.log"} < {each.name for each in logs}


def check_silence(hosts: Hosts, job: str, claim: Claim | None) -> None:
    """A stopped process is declared lost, and killed through the agent before its successor starts."""
    assert claim is not None
    os.kill(claim.pid, signal.SIGSTOP)
    until(lambda: hosts.claim(job, 2), START_S, "the next attempt")
    first, second = hosts.records.view(job).attempts[:2]
    assert first.ended is not None
    assert first.ended.reason == f"Process {claim.pid} has not answered for 10000 ms."
    assert second.claim is not None
    assert second.claim.host == "host-b"
    assert not remains(local(claim))
    audit = [json.loads(each) for each in (hosts.a.directory / "audit.log").read_text().splitlines()]
    kills = [each for each in audit if each["action"].endswith("/attempts/:attempt/kill") and each["job"] == job]
    assert kills
    assert kills[-1]["outcome"] == 200
