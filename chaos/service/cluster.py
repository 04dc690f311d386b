"""A whole service: Dispatchers, ZooKeeper servers, the storage of the records, and a client that finds the leader."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from chaos.faults import Violation
from chaos.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from chaos.service.dispatchers import DispatcherProcess
from chaos.service.jobs import Victim
from chaos.service.records_mount import RecordsMount
from penstock.cluster.processes import kill_tree, remains
from penstock.cluster.records import Claim, JobView, Records
from penstock.driver.assignment import Verdict
from penstock.errors import PenstockError
from penstock.rest.client import NotNow, RefusedByService, RestClient
from penstock.rest.contract import JarRunResponseBody, MultipleJobsDetails
from penstock.rest.own_endpoints import Health
from penstock.state.local_storage import LocalStorage

_T = TypeVar("_T")

SESSION_S = 4.0
"""The session timeout of the Dispatchers in ZooKeeper."""
HEARTBEAT_S = 10.0
_REQUEST_S = 8.0
_RETRIED = (409, 503)
"""Statuses of answers that a client takes as a reason to repeat a request that was right."""
_ANYONE = 0.5
"""Share of the requests that go to any living Dispatcher. The others go to the leader."""
_POLL_S = 0.2
_PROGRAM = Path(__file__).with_name("victim.py")
_CLUSTER = "chaos"


class NotAnswered(Exception):
    """The service did not acknowledge a request in time."""


class Cluster:
    """A context manager. Leaving it ends all processes, also those of jobs."""

    def __init__(
        self,
        folder: Path,
        *,
        dispatchers: int,
        zookeeper: int,
        mounted: bool,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        hosts: bool = False,
    ) -> None:
        """With `hosts`, each Dispatcher and its jobs have a host name; see `DispatcherProcess`."""
        self.folder = folder
        self._changes = dict(settings or {})
        self._dice = random.Random()
        self._stack = ExitStack()
        self.mount = RecordsMount(folder / "records", mounted=mounted)
        self._stack.callback(self.mount.close)
        self.records = Records(LocalStorage(self.mount.path / _CLUSTER))
        self._ensemble = ZooKeeperEnsemble(folder / "zookeeper") if zookeeper == 3 else None
        self.zookeeper = self._ensemble.servers if self._ensemble is not None else []
        if zookeeper == 1:
            self.zookeeper = [ZooKeeperServer(folder / "zookeeper")]
        names = [f"dispatcher-{number + 1}" for number in range(dispatchers)]
        # Names that no resolver knows: Spark must not look for its own.
        own = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"} if hosts else {}
        self.dispatchers = [
            DispatcherProcess(self._settings(name), {**own, **(environment or {})}, name if hosts else "")
            for name in names
        ]

    def _settings(self, name: str) -> dict[str, str]:
        coordination = {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": ",".join(server.address for server in self.zookeeper),
            "high-availability.zookeeper.client.session-timeout": f"{SESSION_S:g} s",
        }
        return {
            **(coordination if self.zookeeper else {}),
            "cluster.dir": str(self.folder / name),
            "high-availability.storageDir": str(self.mount.path),
            "high-availability.cluster-id": _CLUSTER,
            "rest.port": "0",
            "heartbeat.timeout": f"{HEARTBEAT_S:g} s",
            "cluster.max-concurrent-starts": "1",
            "jobmanager.memory.heap.size": "512 mb",
            "spark.master": "local[1]",
            "spark.ui.enabled": "false",
            **self._changes,
        }

    def __enter__(self) -> Cluster:
        self.start_zookeeper()
        for node in self.dispatchers:
            node.start(wait=False)
        for node in self.dispatchers:
            node.wait()
        return self

    def __exit__(self, *error: object) -> None:
        for node in self.dispatchers:
            if node.running:
                node.kill()
        self._kill_jobs()
        for server in self.zookeeper:
            server.stop()
        self._stack.close()

    def _kill_jobs(self) -> None:
        for job_id in self.records.job_ids():
            for attempt in self.records.view(job_id).attempts:
                if attempt.claim is not None:
                    kill_tree(local(attempt.claim))

    def start_zookeeper(self) -> None:
        """Start the ZooKeeper servers that do not run, and wait until all of them serve."""
        for server in self.zookeeper:
            if not server.running:
                server.start(wait=False)
        for server in self.zookeeper:
            server.wait()

    # -- requests --------------------------------------------------------------------------------------------------

    def leader(self) -> DispatcherProcess | None:
        """Return the Dispatcher that leads and is ready, if any."""
        for node in self.dispatchers:
            health = _health(node)
            if health is not None and health.leading and health.ready:
                return node
        return None

    def await_leader(self, patience_s: float) -> DispatcherProcess:
        return until(self.leader, patience_s, "a Dispatcher leads")

    def standby(self) -> DispatcherProcess | None:
        """Return a Dispatcher that answers and does not lead."""
        found = [node for node in self.dispatchers if (health := _health(node)) is not None and not health.leading]
        return found[0] if found else None

    def _someone(self) -> DispatcherProcess | None:
        """Return a Dispatcher to send a request to: any that lives, or the leader."""
        if self._dice.random() < _ANYONE:
            return self._dice.choice([node for node in self.dispatchers if node.running] or [None])
        return self.leader()

    def ask(self, request: Callable[[RestClient], _T], patience_s: float) -> _T:
        """Send a request until it is acknowledged. Raises NotAnswered, and Violation for an answer that is wrong."""
        deadline = time.monotonic() + patience_s
        last = "no Dispatcher leads"
        while True:
            node = self._someone()
            if node is not None:
                failed_before = self.mount.fails
                try:
                    return request(node.client(_REQUEST_S))
                except RefusedByService as error:
                    last = str(error)
                    excused = error.status == 500 and (failed_before or self.mount.fails)
                    if error.status not in _RETRIED and not excused:
                        raise Violation(f"{node.directory.name} answered with status {error.status}: {error}") from None
                except (OSError, PenstockError) as error:
                    last = str(error)
            if time.monotonic() > deadline:
                raise NotAnswered(last)
            time.sleep(_POLL_S)

    def states(self, node: DispatcherProcess) -> dict[str, str]:
        """Return the states of all jobs, as this Dispatcher shows them. Raises PenstockError, OSError."""
        overview = node.client(_REQUEST_S).get("/jobs/overview", MultipleJobsDetails)
        return {str(job.jid): str(job.state) for job in overview.jobs}

    def problem(self) -> str:
        """Return why the service is not well: each Dispatcher must live, and exactly one must lead."""
        for node in self.dispatchers:
            if not node.running:
                raise Violation(
                    f"{node.directory.name} exited by itself: {node.log.read_text(errors='replace')[-2000:]}"
                )
        health = [_health(node) for node in self.dispatchers]
        if None in health:
            return f"{self.dispatchers[health.index(None)].directory.name} does not answer"
        leading = sum(each is not None and each.leading for each in health)
        return "" if leading == 1 else f"{leading} Dispatchers lead"

    def submit(self, job: Victim, patience_s: float) -> None:
        """Submit a job. The id makes it safe to repeat the request."""

        def request(client: RestClient) -> None:
            program = client.upload(_PROGRAM)
            body = {"programArgsList": job.arguments(), "flinkConfiguration": job.settings(), "jobId": job.id}
            client.post(f"/jars/{program}/run", JarRunResponseBody, body)

        self.ask(request, patience_s)
        job.acknowledged = True

    def cancel(self, job: Victim, patience_s: float) -> None:
        """Cancel a job. The answer to an earlier request can be lost: the service then says that it is cancelled."""

        def request(client: RestClient) -> None:
            try:
                client.patch(f"/jobs/{job.id}", dict[str, Any], mode="cancel")
            except NotNow as error:
                if "it is CANCELED" not in str(error):
                    raise

        self.ask(request, patience_s)
        job.cancelled_at = time.monotonic()

    def view(self, job: Victim) -> JobView:
        return self.records.view(job.id)

    def attempt(self, job: Victim) -> int:
        """Return the number of the newest attempt."""
        last = self.view(job).last
        return 0 if last is None else last.number

    def runs(self, job: Victim) -> list[int]:
        """Return the attempts of a job that still run it. One that only commits its last checkpoint does not."""
        return [
            each.number
            for each in self.view(job).attempts
            if each.claim is not None
            and (each.ended is None or each.ended.verdict is Verdict.LOST)
            and not (each.planned is not None and each.planned.finalize)
            and remains(each.claim)
        ]

    @contextmanager
    def paused(self, *nodes: DispatcherProcess | ZooKeeperServer) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end."""
        for node in nodes:
            node.pause()
        try:
            yield
        finally:
            for node in nodes:
                node.resume()


def local(claim: Claim) -> Claim:
    """Return the claim of a process under the name of this host, on which all of them run."""
    return msgspec.structs.replace(claim, host=socket.gethostname())


def _health(node: DispatcherProcess) -> Health | None:
    try:
        return node.client(2.0).get("/ready", Health)
    except (PenstockError, OSError):
        return None


def until(condition: Callable[[], _T | None], patience_s: float, what: str) -> _T:
    """Wait until the condition returns something true, and return it. Raises Violation."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise Violation(f"{what}: not within {patience_s:.0f} s")
        time.sleep(_POLL_S)
    return found
