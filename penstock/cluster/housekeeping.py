"""The jobs that a Dispatcher looks after: those that it adopts as a new leader, finds later, and forgets."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Mapping

from penstock.cluster.coordination import Coordination
from penstock.cluster.directory import ClusterDirectory
from penstock.cluster.job_table import JobTable
from penstock.cluster.programs import Programs
from penstock.cluster.records import Records, UnknownJob, is_job_id
from penstock.cluster.recovery import FoundJob, found_jobs
from penstock.cluster.retention import expired
from penstock.cluster.supervisor import Supervisor
from penstock.common.options.service import HISTORY_AGE, HISTORY_SIZE
from penstock.common.wall_clock import now_ms
from penstock.state.storage import StorageError

_SWEEP_S = 60.0
"""How often ended jobs beyond the limits of the history are removed, and jobs are looked for."""
_HOST_SWEEP_S = 3600.0
"""How often files of removed jobs are looked for on this host. They are removed if they are found twice."""

_logger = logging.getLogger("penstock")


class Housekeeping:
    """Methods run in the thread of the supervisor."""

    def __init__(
        self,
        *,
        settings: Mapping[str, str],
        directory: ClusterDirectory,
        coordination: Coordination,
        records: Records,
        programs: Programs,
        jobs: JobTable,
        supervisor: Supervisor,
        in_loop: Callable[..., None],
    ) -> None:
        """`in_loop` calls a function in the event loop of `jobs`."""
        self._settings, self._directory = settings, directory
        self._coordination, self._records, self._programs = coordination, records, programs
        self._jobs, self._supervisor, self._in_loop = jobs, supervisor, in_loop
        self._next_sweep = self._next_host_sweep = 0.0
        self._problems: dict[str, str] = {}
        """The logged reasons why jobs could not be read."""
        self._unrecorded: set[str] = set()
        """Jobs with files on this host and without a record, at the last sweep of the host."""

    def adopt(self) -> None:
        """Look after all jobs from now on, as a new leader."""
        before = {view.submission.id for view in self._jobs.views()}.union(self._jobs.broken())
        self._supervisor.forget_all()
        # Another leader could have removed jobs, whose ids clients use again.
        self._records.forget_all()
        found_ids: set[str] = set()
        for batch in found_jobs(self._coordination, self._records):
            for found in batch:
                self._take(found)
            found_ids.update(found.job_id for found in batch)
            self._supervisor.tick()
        for job_id in before - found_ids:
            self._in_loop(self._jobs.forget, job_id)
        self._next_sweep = time.monotonic() + _SWEEP_S

    def _take(self, found: FoundJob) -> None:
        if found.view is not None:
            self._problems.pop(found.job_id, None)
            self._in_loop(self._jobs.changed, found.view)
        else:
            if self._problems.get(found.job_id) != found.problem:
                now = " now" if found.retryable else ""
                _logger.error("Job %s cannot be recovered%s: %s", found.job_id, now, found.problem)
            self._problems[found.job_id] = found.problem
            self._in_loop(self._jobs.cannot_read, found.job_id, found.problem, found.retryable)
        if found.view is not None or found.retryable:
            # Also a job that has ended: its process might hang, or have left checkpoints behind.
            self._supervisor.add(found.job_id, found.view)

    def sweep(self) -> None:
        """Remove ended jobs beyond the limits of the history, and look for jobs that are not supervised."""
        if time.monotonic() < self._next_sweep:
            return
        self._next_sweep = time.monotonic() + _SWEEP_S
        most, age = HISTORY_SIZE.read(self._settings), HISTORY_AGE.read(self._settings)
        for job_id in expired(self._jobs.views(), now_ms(), most, age):
            if not self._supervisor.supervises(job_id) and self._coordination.remove_job(job_id):
                self._forget(job_id)
        self._records.finish_removals()
        self._find()
        # A job that cannot be read does not tell which program it needs.
        if not self._jobs.broken():
            self._programs.sweep({view.submission.program for view in self._jobs.views()})

    def _forget(self, job_id: str) -> None:
        try:
            self._records.remove(job_id)
        except UnknownJob:
            pass  # another leader has removed it
        except (StorageError, OSError) as error:
            _logger.warning("The records of job %s are not removed yet: %s", job_id, error)
            return
        shutil.rmtree(self._directory.jobs / job_id, ignore_errors=True)
        self._in_loop(self._jobs.forget, job_id)

    def _find(self) -> None:
        """Find jobs whose submission failed after they were recorded, and those that can be read again."""
        known = {view.submission.id for view in self._jobs.views()}.difference(self._jobs.broken())
        for batch in found_jobs(self._coordination, self._records, known):
            for found in batch:
                self._take(found)

    def sweep_host(self) -> None:
        """Remove the files of jobs that another Dispatcher has forgotten. Every Dispatcher does this on its host."""
        if time.monotonic() < self._next_host_sweep:
            return
        self._next_host_sweep = time.monotonic() + _HOST_SWEEP_S
        recorded = self._records.job_ids()
        found = {path.name for path in self._directory.jobs.iterdir() if is_job_id(path.name)}
        unrecorded = found.difference(recorded)
        # A storage that is not mounted has no records either.
        for job_id in unrecorded & self._unrecorded if recorded else ():
            shutil.rmtree(self._directory.jobs / job_id, ignore_errors=True)
        self._unrecorded = unrecorded
