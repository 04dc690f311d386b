"""The service behind the page, as the pages see it."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from penstock.cluster.gateway import NotLeading, RunRequest, StoredProgram
from penstock.common.options.service import WEB_CANCEL, WEB_STATE, WEB_SUBMIT
from penstock.common.wall_clock import now_ms
from penstock.driver.control_messages import Operable
from penstock.driver.job_snapshot import JobSnapshot, Operation
from penstock.rest.audit import AuditLog
from penstock.rest.bodies import location
from penstock.rest.errors import BadRequest, Forbidden
from penstock.rest.job_actions import ended
from penstock.rest.job_settings import settings_of_job
from penstock.rest.program_arguments import split_arguments
from penstock.rest.service import Service
from penstock.rest.views.shared import ENDED
from penstock.web.markup import Markup
from penstock.web.observation import Watches
from penstock.web.overview import overview

_POLL_S = 0.5
_READERS = 2


@dataclass
class Board:
    """Answers the pages of one service, from the same gateway as the REST interface."""

    service: Service
    audit: AuditLog
    watches: Watches = field(default_factory=Watches)
    readers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_READERS))
    """Bounds the reads of state: each takes a thread, and up to a key group of memory."""
    disposed: set[str] = field(default_factory=set)
    """Savepoints that were deleted here; jobs still list them."""
    _overview: Markup = field(default=Markup(""), init=False)
    _overview_until: float = field(default=0.0, init=False)

    @property
    def shows_state(self) -> bool:
        """Whether the page can read the state of jobs."""
        return WEB_STATE.read(self.service.gateway.settings)

    @property
    def refresh_s(self) -> float:
        """How often a page refreshes itself."""
        return max(1.0, self.service.refresh_ms / 1000)

    def elsewhere(self) -> str:
        """Return which Dispatcher has the jobs, if it is not this one; empty if it is."""
        try:
            return self.service.gateway.leader() or ""
        except NotLeading:
            return "not known"

    def jobs(self) -> list[JobSnapshot]:
        """Return the current snapshots of all jobs."""
        jobs = [self._shown(job) for job in self.service.gateway.jobs()]
        self.watches.observe(jobs)
        return jobs

    def overview(self) -> Markup:
        """Return the contents of the overview. Viewers share them: rendering 500 jobs takes tens of milliseconds."""
        now = time.monotonic()
        if now >= self._overview_until:
            self._overview = overview(self.jobs(), self.watches, now_ms())
            self._overview_until = now + 0.9 * self.refresh_s
        return self._overview

    def job(self, job_id: str) -> JobSnapshot:
        """Return the current snapshot of a job. Raises UnknownJob."""
        job = self._shown(self.service.gateway.job(job_id))
        self.watches.keep(job)
        return job

    def _shown(self, job: JobSnapshot) -> JobSnapshot:
        """Return a job without its keys if the page shows no state."""
        return job if self.shows_state else without_keys(job)

    async def watch(self) -> None:
        """Observe the jobs while no page is open: problems and charts need the past."""
        while True:
            if not self.elsewhere():
                self.jobs()
            await asyncio.sleep(5 * self.refresh_s)

    async def perform(self, job_id: str, asked: Operable) -> Operation:
        """Start an operation and wait for its end. Raises UnknownJob, Conflict."""
        job = self.service.gateway.job(job_id)
        if job.state in ENDED:
            raise ended(job)
        trigger_id = await self.service.gateway.trigger(job_id, asked, secrets.token_hex(16))
        self._record(type(asked).__name__, job_id)
        while True:
            found = await self.service.gateway.operation(job_id, trigger_id)
            if found.done:
                return found
            await asyncio.sleep(_POLL_S)

    async def dispose(self, path: str) -> Operation:
        """Delete a savepoint, and wait until it is gone."""
        trigger_id = await self.service.gateway.dispose_savepoint(location("savepoint path", path))
        self._record("Dispose", "")
        while not (found := await self.service.gateway.operation("", trigger_id)).done:
            await asyncio.sleep(_POLL_S)
        if not found.failure_kind:
            self.disposed.add(path)
        return found

    async def cancel(self, job_id: str) -> None:
        """Cancel a job. Raises Forbidden, UnknownJob, Conflict."""
        if not self.service.cancel:
            raise Forbidden(f"This service cancels no jobs, because {WEB_CANCEL.key} is false.")
        await self.service.gateway.cancel(self.service.gateway.job(job_id).id)
        self._record("Cancel", job_id)

    @property
    def accepts_programs(self) -> bool:
        """Whether the page has a form to submit a program."""
        return self.service.submit and not self.service.gateway.state().application

    async def upload(self, name: str, file: Path) -> StoredProgram:
        """Store a program. Raises Forbidden, BadProgram."""
        self._check_submit()
        stored = await self.service.gateway.upload(name, file)
        self._record("Upload", "")
        return stored

    async def programs(self) -> list[StoredProgram]:
        """Return the programs that were uploaded, newest first."""
        return sorted(await self.service.gateway.programs(), key=lambda each: -each.uploaded_ms)

    async def submit(
        self,
        program: str,
        arguments: str,
        settings: str,
        savepoint: str,
        *,
        claim_mode: str = "",
        skip_missing: bool = False,
        dry_run: bool = False,
    ) -> str:
        """Run a stored program and return the id of its job; with `dry_run` only compare it with the savepoint.

        Raises Forbidden, BadRequest, UnknownProgram, BadProgram, Conflict.
        """
        self._check_submit()
        savepoint = savepoint.strip()
        if dry_run and not savepoint:
            raise BadRequest("A dry run compares the program with a savepoint.", fix="Enter the path of one.")
        request = RunRequest(
            program=program,
            arguments=split_arguments(arguments),
            configuration=settings_of_job(parsed_settings(settings)),
            savepoint=location("savepoint path", savepoint) if savepoint else "",
            claim_mode=claim_mode if savepoint else "",
            allow_non_restored_state=skip_missing,
        )
        if dry_run:
            return await self.service.gateway.dry_run(request)
        job = await self.service.gateway.run(request)
        self._record("Run", job)
        return job

    def _check_submit(self) -> None:
        if not self.service.submit:
            raise Forbidden(f"This service accepts no programs, because {WEB_SUBMIT.key} is false.")

    def _record(self, action: str, job_id: str) -> None:
        self.audit.write(None, f"page: {action.lower()}", job_id, 202)


def without_keys(job: JobSnapshot) -> JobSnapshot:
    """Return a job whose heaviest keys are known by their key group only."""
    vertices = []
    for vertex in job.vertices:
        if any(each.heaviest for each in vertex.subtasks):
            subtasks = [
                replace(each, heaviest=[replace(key, key="") for key in each.heaviest]) for each in vertex.subtasks
            ]
            vertex = replace(vertex, subtasks=subtasks)
        vertices.append(vertex)
    return replace(job, vertices=vertices)


def parsed_settings(text: str) -> dict[str, str]:
    """Return settings that are written one per line, as `key: value`. Raises BadRequest."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, colon, value = line.partition(":")
        if not colon or not key.strip():
            raise BadRequest(f"The setting '{line}' is not of the form 'key: value'.")
        found[key.strip()] = value.strip()
    return found
