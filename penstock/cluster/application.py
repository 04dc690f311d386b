"""An application: the jobs of the program that runs in this process, behind the interface of a cluster."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from penstock.cluster.disposal import trigger_disposal
from penstock.cluster.events import EventLog
from penstock.cluster.gateway import ClusterState, Conflict, Event, LogFile, RunRequest, StoredProgram, Timeout
from penstock.cluster.records import UnknownJob
from penstock.common.job_client import JobClient
from penstock.common.options.service import HISTORY_SIZE, REST_STORE_DURATION, REST_TIMEOUT
from penstock.driver.commands import Commands, DescribableJob
from penstock.driver.control_messages import Answer, Cancel, Operable, Poll, Request, Trigger
from penstock.driver.job_snapshot import JobSnapshot, Operation
from penstock.driver.operations import BeingStopped, Operations

_REUSE_S = 0.5
"""How long a snapshot is reused: taking one costs milliseconds, and many clients can poll."""


@dataclass
class _Job:
    commands: Commands
    snapshot: JobSnapshot
    until: float
    """When the snapshot is too old. After the end of the job it never is."""

    @property
    def has_ended(self) -> bool:
        return self.until == float("inf")


class ApplicationGateway:
    """Implements `Gateway` for the jobs of this process. `attach` runs in the program, the rest in an event loop."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._timeout_s = REST_TIMEOUT.read(settings) / 1000
        self._jobs: dict[str, _Job] = {}
        self._most = HISTORY_SIZE.read(settings)
        self._kept_s = REST_STORE_DURATION.read(settings) / 1000
        self._operations = Operations(self._kept_s)
        self._lock = threading.Lock()
        """Held while events and snapshots change: jobs end in threads of the program."""
        self._events = EventLog()
        self._awaited: set[str] = set()
        """Operations whose result no client has seen, and cancelled jobs, whose clients look for the end."""

    def attach(self, job: DescribableJob, client: JobClient) -> None:
        """Show a job that is about to start, and forget jobs that ended long before it."""
        ended = [job_id for job_id, each in self._jobs.items() if each.has_ended]
        for job_id in ended[: max(0, len(ended) - self._most)]:
            del self._jobs[job_id]
        commands = Commands(job, client, self._kept_s)
        self._jobs[job.id] = _Job(commands, commands.snapshot(), 0.0)

    def detach(self, job_id: str) -> None:
        """Keep the last snapshot of a job that has ended."""
        job = self._jobs[job_id]
        self._show(job, job.commands.snapshot(), float("inf"))

    @property
    def is_awaited(self) -> bool:
        """Whether clients still look for the result of an operation, or for the end of a job that they cancelled."""
        return bool(self._awaited)

    @property
    def settings(self) -> Mapping[str, str]:
        return self._settings

    @property
    def agent(self) -> None:
        return None

    def leader(self) -> str | None:
        return None

    def state(self) -> ClusterState:
        return ClusterState(leading=True, ready=True, application=True)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def jobs(self) -> Sequence[JobSnapshot]:
        return [self._current(job) for job in list(self._jobs.values())]

    def job(self, job_id: str) -> JobSnapshot:
        return self._current(self._of(job_id))

    def _of(self, job_id: str) -> _Job:
        job = self._jobs.get(job_id)
        if job is None:
            raise UnknownJob(f"The application has no job {job_id}.", fix="`penstock list` shows the jobs.")
        return job

    def _current(self, job: _Job) -> JobSnapshot:
        now = time.monotonic()
        if now >= job.until:
            self._show(job, job.commands.snapshot(), now + _REUSE_S)
        return job.snapshot

    def _show(self, job: _Job, snapshot: JobSnapshot, until: float) -> None:
        with self._lock:
            if until <= job.until:
                # The job has ended in the meantime.
                return
            if snapshot.state != job.snapshot.state or job.until == 0.0:
                self._events.add("job-state", snapshot.id, {"state": snapshot.state, "name": snapshot.name})
            job.snapshot, job.until = snapshot, until

    async def ask(self, job_id: str, request: Request) -> Answer:
        job = self._of(job_id)
        try:
            return await asyncio.wait_for(asyncio.to_thread(job.commands, request), self._timeout_s)
        except TimeoutError:
            raise Timeout(
                f"Job {job_id} did not answer within {self._timeout_s:g} s.",
                fix=f"Try again, or raise {REST_TIMEOUT.key}.",
            ) from None

    async def cancel(self, job_id: str) -> None:
        self._check_running(job_id)
        # Several clients can look for the end, so the first that sees it changes nothing.
        self._awaited.add(job_id)
        # A cancellation completes with the job, which can take longer than a request.
        await self.ask(job_id, Trigger(id=secrets.token_hex(16), request=Cancel()))

    async def trigger(self, job_id: str, request: Operable, trigger_id: str = "") -> str:
        self._check_running(job_id)
        trigger_id = trigger_id or secrets.token_hex(16)
        # Before the request, which can end the program.
        self._awaited.add(trigger_id)
        try:
            await self.ask(job_id, Trigger(id=trigger_id, request=request))
        except BeingStopped:
            self._awaited.discard(trigger_id)
            raise
        return trigger_id

    def _check_running(self, job_id: str) -> None:
        job = self.job(job_id)
        if job.ended_ms >= 0:
            raise Conflict(f"Job {job_id} has ended: it is {job.state}.", fix="Only a running job can do this.")

    async def operation(self, job_id: str, trigger_id: str) -> Operation:
        if not job_id:
            return self._operations.poll(trigger_id)
        answer = await self.ask(job_id, Poll(id=trigger_id))
        assert isinstance(answer, Operation)
        if answer.done:
            self._awaited.discard(trigger_id)
        return answer

    async def dispose_savepoint(self, path: str, trigger_id: str = "") -> str:
        return trigger_disposal(self._operations, path, self._settings, trigger_id)

    # -- programs: an application has one, which runs already ----------------------------------------------------------

    async def programs(self) -> Sequence[StoredProgram]:
        return []

    async def upload(self, name: str, file: Path) -> StoredProgram:
        _refuse()

    async def remove_program(self, program_id: str) -> None:
        _refuse()

    async def run(self, request: RunRequest) -> str:
        _refuse()

    async def plan(self, request: RunRequest) -> str:
        _refuse()

    async def dry_run(self, request: RunRequest) -> str:
        _refuse()

    # -- the service ---------------------------------------------------------------------------------------------------

    async def logs(self, job_id: str) -> Sequence[LogFile]:
        """Return no files: the log of an application is the output of its program."""
        return []

    async def events(self, after: int = -1) -> AsyncIterator[Event]:
        while True:
            self.jobs()
            with self._lock:
                found = self._events.since(after)
            for event in found:
                after = event.number
                yield event
            await asyncio.sleep(_REUSE_S)

    async def drain(self) -> None:
        _refuse()

    async def shut_down(self) -> None:
        raise Conflict(
            "The service is part of a program, which ends with its job.",
            fix="Cancel the job, or stop it with a savepoint.",
        )


def _refuse() -> NoReturn:
    raise Conflict(
        "This service belongs to one running program and accepts no others.",
        fix="Start a cluster with `penstock cluster start`, and submit programs to it.",
    )
