"""Accepts jobs: an accepted one is durable, and every later leader looks after it."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

import penstock
from penstock.cluster.coordination import Coordination
from penstock.cluster.gateway import Conflict, RunRequest
from penstock.cluster.job_table import JobTable
from penstock.cluster.programs import Programs
from penstock.cluster.records import JobView, Records, Submission, new_job_id
from penstock.cluster.supervisor import Supervisor
from penstock.common.options.service import MAX_JOBS
from penstock.common.wall_clock import now_ms
from penstock.errors import PenstockError
from penstock.state.storage import AlreadyPublished


class Submissions:
    """Call `accept` in the event loop of `jobs`, once all jobs are found."""

    def __init__(
        self,
        *,
        settings: Mapping[str, str],
        coordination: Coordination,
        records: Records,
        programs: Programs,
        jobs: JobTable,
        supervisor: Supervisor,
        in_loop: Callable[..., None],
    ) -> None:
        self._most = MAX_JOBS.read(settings)
        self._coordination, self._records, self._programs = coordination, records, programs
        self._jobs, self._supervisor, self._in_loop = jobs, supervisor, in_loop
        self._pending: set[str] = set()
        """Jobs that are being submitted, which count as running."""

    async def accept(self, request: RunRequest) -> str:
        """Submit a job and return its id. Raises Conflict, NotLeading, CoordinationUnavailable, UnknownProgram.

        If this raises after the job was recorded, a leader finds the job within a minute. A client that chose the id
        repeats its request and gets this job. Another client submits a second job, so this one is cancelled.
        """
        job_id = request.job_id or new_job_id()
        # A repeated request adds no job.
        is_new = self._jobs.view(job_id) is None
        if is_new and len((self._supervisor.running() | self._pending) - {job_id}) >= self._most:
            raise Conflict(
                f"{self._most} jobs run already, the limit of {MAX_JOBS.key}.",
                fix=f"Cancel a job, or raise {MAX_JOBS.key}.",
            )
        self._pending.add(job_id)
        try:
            program, file = await asyncio.to_thread(self._programs.find, request.program)
            submission = Submission(
                id=job_id,
                # Until the program gives its job a name.
                name=self._jobs.name_of_last(program, request.entry, request.arguments)
                or request.entry
                or Path(file).stem,
                program=program,
                file=file,
                entry=request.entry,
                arguments=request.arguments,
                configuration=request.configuration,
                savepoint=request.savepoint,
                claim_mode=request.claim_mode,
                allow_non_restored_state=request.allow_non_restored_state,
                submitted_ms=now_ms(),
                python=platform.python_version(),
                penstock=penstock.__version__,
            )
            await asyncio.to_thread(self._submit, submission, repeatable=bool(request.job_id))
        finally:
            self._pending.discard(job_id)
        return job_id

    def _submit(self, submission: Submission, *, repeatable: bool) -> None:
        try:
            self._records.submit(submission)
        except AlreadyPublished:
            # A client repeats a request whose answer was lost, or that failed after this record.
            known = self._records.view(submission.id).submission
            if known != msgspec.structs.replace(submission, submitted_ms=known.submitted_ms, name=known.name):
                raise Conflict(
                    f"Job {submission.id} was submitted before, with another program, arguments or configuration.",
                    fix="Choose another job id, or let the service choose one.",
                ) from None
        try:
            view = self._look_after(submission.id)
        except BaseException:
            if not repeatable:
                with suppress(PenstockError, OSError):
                    self._records.request_cancel(submission.id)
            raise
        self._in_loop(self._jobs.changed, view)
        self._supervisor.add(submission.id, view)

    def _look_after(self, job_id: str) -> JobView:
        self._coordination.add_job(job_id)
        return self._records.view(job_id)
