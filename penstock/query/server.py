"""The program of queryable state: a state server for some jobs, and the proxy of its host unless there is one.

A server registers with the proxy every second. If the proxy dies, one of the servers takes its port.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterator, Mapping

import pyarrow as pa

from penstock.checkpoint.lineages import SharedStorage
from penstock.common.options.query import (
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TIMEOUT,
    MAX_RESULT,
    POLL_INTERVAL,
    PROXY_PORTS,
    PROXY_THREADS,
    QUERY_TLS_CA,
    RETAINED_FOR_QUERIES,
    SCAN_TIMEOUT,
    SERVER_PORTS,
    SERVER_THREADS,
)
from penstock.query.announcements import Announcements, this_host
from penstock.query.connection import Connection, location
from penstock.query.errors import QueryError
from penstock.query.flight_server import CannotServeState, QueryListener, query_token
from penstock.query.followed_job import Directory, FollowedJob, InDriver, Origin
from penstock.query.local_replicas import LocalReplicas
from penstock.query.membership import Membership
from penstock.query.protocol import Announcement, AnyRequest, Changes, Description, Register, Scan
from penstock.query.proxy import Proxy
from penstock.query.service import QueryService
from penstock.state.storage import Storage

_log = logging.getLogger(__name__)

_REGISTER_S = 1.0
_CALL_S = 2.0


class StateServer:
    """Serves the queryable state of jobs until it is closed, for tests. Jobs on Spark start a server by themselves.

    Call `follow` for each job, then `start`.

    Args:
        settings: Those that start with ``queryable-state.``. Others are ignored.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Listen. Raises CannotServeState, UnusableToken, BadSetting."""
        self._settings = settings
        self._token = query_token(settings)
        self._authorities = QUERY_TLS_CA.read(settings)
        self._id = secrets.token_hex(8)
        self._host = this_host()
        self._jobs: dict[str, FollowedJob] = {}
        self._replicas = LocalReplicas(settings)
        self.service = QueryService(
            self._jobs,
            SERVER_THREADS.read(settings) or SERVER_THREADS.default,
            MAX_RESULT.read(settings),
            SCAN_TIMEOUT.read(settings),
        )
        self._listener = QueryListener(self.service, settings, SERVER_PORTS.read(settings), self._token)
        self.proxy: Proxy | None = None
        self._proxy_listener: QueryListener | None = None
        self._remote: Connection | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-query-register", daemon=True)

    @property
    def address(self) -> str:
        """The URI of the state server."""
        return self._listener.address

    @property
    def proxy_address(self) -> str:
        """The URI of the proxy, if this process has it; otherwise empty."""
        return "" if self._proxy_listener is None else self._proxy_listener.address

    def follow(self, job_id: str, job_name: str, root: SharedStorage) -> FollowedJob:
        """Serve the state of a job, or a part of it if there are more servers. `root`: where its lineages are."""
        settings = self._settings
        interval_s, timeout_s = (each.read(settings) / 1000 for each in (HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT))
        announcements = Announcements(root, self._id, timeout_s)
        reach = this_host() if self._listener.local else ""
        membership = Membership(announcements, self._id, self.address, reach, interval_s)
        return self._follow(job_id, job_name, Directory(root), membership, (interval_s, timeout_s))

    def follow_here(self, job_id: str, job_name: str, lineage: str, storage: Storage) -> FollowedJob:
        """Serve the state of a job whose checkpoints are in the memory of this process."""
        return self._follow(job_id, job_name, InDriver(lineage, storage))

    def _follow(
        self,
        job_id: str,
        job_name: str,
        origin: Origin,
        membership: Membership | None = None,
        heartbeat_s: tuple[float, float] = (1.0, 3.0),
    ) -> FollowedJob:
        retained, poll_ms = RETAINED_FOR_QUERIES.read(self._settings), POLL_INTERVAL.read(self._settings)
        job = FollowedJob(
            job_id, job_name, origin, retained, poll_ms / 1000, membership, heartbeat_s, replicas=self._replicas
        )
        self._jobs[job_id] = job
        job.start()
        return job

    def start(self) -> None:
        """Register with the proxy of the host from now on, or become it."""
        self.register()
        self._thread.start()

    def register(self) -> None:
        """Describe the jobs to the proxy of the host, or become it."""
        descriptions = self._descriptions()
        others = self._others()
        if self.proxy is not None:
            self.proxy.register(self.address, descriptions, others, _Here(self.service))
            return
        for port in PROXY_PORTS.read(self._settings):
            if self._registered_at(port, Register(address=self.address, jobs=descriptions, others=others)):
                return
        self._become_proxy(descriptions, others)

    def _registered_at(self, port: int, register: Register) -> bool:
        address = location(self._listener.advertised, port, self._listener.tls)
        if self._remote is None or self._remote.address != address:
            self._remote = Connection(address, self._token, self._authorities)
        try:
            self._remote.call(register, _CALL_S)
            return True
        except QueryError:
            # No proxy, or one of another user.
            return False

    def _become_proxy(self, descriptions: list[Description], others: list[Announcement]) -> None:
        settings = self._settings
        proxy = Proxy(self._connected, PROXY_THREADS.read(settings) or PROXY_THREADS.default, MAX_RESULT.read(settings))
        try:
            self._proxy_listener = QueryListener(proxy, settings, PROXY_PORTS.read(settings), self._token)
        except CannotServeState as error:
            # Another server can have become the proxy in this moment.
            proxy.close()
            _log.debug("%s", error)
            return
        self.proxy = proxy
        proxy.register(self.address, descriptions, others, _Here(self.service))
        _log.info("The proxy for queryable state listens on %s.", self.proxy_address)

    def _connected(self, address: str) -> Connection:
        return Connection(address, self._token, self._authorities)

    def _descriptions(self) -> list[Description]:
        return [job.description() for job in list(self._jobs.values())]

    def _others(self) -> list[Announcement]:
        """Return the other servers of the jobs that can be reached from here."""
        members = [job.membership for job in list(self._jobs.values())]
        known = [each for member in members if member is not None for each in member.others]
        return [each for each in known if each.reach in ("", self._host)]

    def leave(self) -> None:
        """Ask the other servers of the jobs to take the blocks of this one. It answers until it is closed."""
        for job in list(self._jobs.values()):
            job.leave()

    def hand_over(self, seconds: float) -> None:
        """Wait until other servers, if there are any, have the blocks of this one."""
        self.leave()
        until = time.monotonic() + seconds
        while any(job.is_needed() for job in list(self._jobs.values())) and time.monotonic() < until:
            if self._stopping.wait(0.02):
                return

    def _run(self) -> None:
        while not self._stopping.wait(_REGISTER_S):
            try:
                self.register()
            except Exception:
                _log.exception("Cannot register with the proxy for queryable state; trying again.")

    def close(self) -> None:
        """Stop serving."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for listener in (self._proxy_listener, self._listener):
            if listener is not None:
                listener.close()
        if self.proxy is not None:
            self.proxy.close()
        for job in list(self._jobs.values()):
            job.close()
        self._replicas.close()

    def await_checkpoint(self, job: FollowedJob, number: int, seconds: float = 30.0) -> None:
        """Wait until a job has a readable checkpoint of this number or a later one. Raises QueryError."""
        until = time.monotonic() + seconds
        while True:
            try:
                job.reading()[0].at(at_least=number, deadline=until)
                return
            except QueryError:
                if self._stopping.wait(0.01) or time.monotonic() > until:
                    raise


class _Here:
    """The state server in this process, for its proxy."""

    def __init__(self, service: QueryService) -> None:
        self._service = service

    def call(self, request: AnyRequest, seconds: float) -> bytes:
        return self._service.answer(request)

    def stream(self, request: AnyRequest, seconds: float) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        assert isinstance(request, (Scan, Changes))
        return self._service.stream(request)
