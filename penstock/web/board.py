"""The service behind the page, as the pages see it."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field

from penstock.cluster.gateway import NotLeading
from penstock.common.options.service import WEB_CANCEL, WEB_STATE
from penstock.common.wall_clock import now_ms
from penstock.driver.control_messages import Operable
from penstock.driver.job_snapshot import JobSnapshot, Operation
from penstock.rest.audit import AuditLog
from penstock.rest.errors import Forbidden
from penstock.rest.job_actions import ended
from penstock.rest.service import Service
from penstock.rest.views.shared import ENDED
from penstock.web.markup import Markup
from penstock.web.observation import Watches
from penstock.web.overview import overview

_POLL_S = 0.5


@dataclass
class Board:
    """Answers the pages of one service, from the same gateway as the REST interface."""

    service: Service
    audit: AuditLog
    watches: Watches = field(default_factory=Watches)
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
        jobs = [*self.service.gateway.jobs()]
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
        job = self.service.gateway.job(job_id)
        self.watches.keep(job)
        return job

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

    async def cancel(self, job_id: str) -> None:
        """Cancel a job. Raises Forbidden, UnknownJob, Conflict."""
        if not self.service.cancel:
            raise Forbidden(f"This service cancels no jobs, because {WEB_CANCEL.key} is false.")
        await self.service.gateway.cancel(self.service.gateway.job(job_id).id)
        self._record("Cancel", job_id)

    def _record(self, action: str, job_id: str) -> None:
        self.audit.write(None, f"page: {action.lower()}", job_id, 202)
