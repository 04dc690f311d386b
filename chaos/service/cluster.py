"""A whole service: Dispatchers, ZooKeeper servers, the storage of the records, and a client that finds the leader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from chaos.faults import Violation
from chaos.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from chaos.service.dispatchers import DispatcherProcess
from chaos.service.jobs import Victim
from chaos.service.records_mount import RecordsMount
from penstock.cluster.processes import kill_tree
from penstock.cluster.records import JobView, Records
from penstock.errors import PenstockError
from penstock.rest.client import RefusedByService, RestClient, ServiceUnreachable
from penstock.rest.contract import JarRunResponseBody, MultipleJobsDetails
from penstock.rest.own_endpoints import Health
from penstock.state.local_storage import LocalStorage

_T = TypeVar("_T")

SESSION_S = 4.0
"""The session timeout of the Dispatchers in ZooKeeper."""
HEARTBEAT_S = 10.0
_REQUEST_S = 8.0
_POLL_S = 0.2
_PROGRAM = Path(__file__).with_name("victim.py")
_CLUSTER = "chaos"


class NotAnswered(Exception):
    """The service did not acknowledge a request in time."""


class Cluster:
    """A context manager. Leaving it ends all processes, also those of jobs."""

    def __init__(self, folder: Path, *, dispatchers: int, zookeeper: int, mounted: bool) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self.mount = RecordsMount(folder / "records", mounted=mounted)
        self._stack.callback(self.mount.close)
        self.records = Records(LocalStorage(self.mount.path / _CLUSTER))
        self._ensemble = ZooKeeperEnsemble(folder / "zookeeper") if zookeeper == 3 else None
        self.zookeeper = self._ensemble.servers if self._ensemble is not None else []
        if zookeeper == 1:
            self.zookeeper = [ZooKeeperServer(folder / "zookeeper")]
        names = [f"dispatcher-{number + 1}" for number in range(dispatchers)]
        self.dispatchers = [DispatcherProcess(self._settings(name)) for name in names]

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
                    kill_tree(attempt.claim)

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

    def ask(self, request: Callable[[RestClient], _T], patience_s: float) -> _T:
        """Send a request to the leader until it is acknowledged. Raises NotAnswered."""
        deadline = time.monotonic() + patience_s
        last = "no Dispatcher leads"
        while True:
            leader = self.leader()
            if leader is not None:
                try:
                    return request(leader.client(_REQUEST_S))
                except (RefusedByService, ServiceUnreachable, OSError, PenstockError) as error:
                    last = str(error)
            if time.monotonic() > deadline:
                raise NotAnswered(last)
            time.sleep(_POLL_S)

    def states(self, patience_s: float) -> dict[str, str]:
        """Return the states of all jobs, as the leader shows them."""
        overview = self.ask(lambda client: client.get("/jobs/overview", MultipleJobsDetails), patience_s)
        return {str(job.jid): str(job.state) for job in overview.jobs}

    def submit(self, job: Victim, patience_s: float) -> None:
        """Submit a job. The id makes it safe to repeat the request."""

        def request(client: RestClient) -> None:
            program = client.upload(_PROGRAM)
            body = {"programArgsList": job.arguments(), "flinkConfiguration": job.settings(), "jobId": job.id}
            client.post(f"/jars/{program}/run", JarRunResponseBody, body)

        self.ask(request, patience_s)
        job.acknowledged = True

    def cancel(self, job: Victim, patience_s: float) -> None:
        self.ask(lambda client: client.patch(f"/jobs/{job.id}", dict[str, Any], mode="cancel"), patience_s)
        job.cancelled_at = time.monotonic()

    def view(self, job: Victim) -> JobView:
        return self.records.view(job.id)

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
