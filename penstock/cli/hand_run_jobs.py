"""Jobs that run by hand on this host: commands reach them through their control sockets."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.cli.listed_job import ListedJob, NoLog
from penstock.control.client import Running, ask, running_jobs
from penstock.driver.control_messages import Done, Request


class HandRunJobs:
    """The jobs of one control directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def jobs(self) -> list[ListedJob]:
        """Return the running jobs, oldest first."""
        return [self._listed(job) for job in running_jobs(self._directory)]

    def _listed(self, job: Running) -> ListedJob:
        def perform(request: Request) -> Done:
            return ask(self._directory, job, request)

        known = job.description
        if known is None:
            return ListedJob(
                id=job.id,
                status=f"process {job.pid} does not respond",
                details={"id": job.id, "pid": job.pid, "status": None},
                perform=perform,
                log=_no_log,
            )
        details: dict[str, Any] = msgspec.to_builtins(known)
        details.pop("type")
        return ListedJob(
            id=job.id,
            name=known.name,
            status=known.status,
            started_ms=known.started,
            epochs=known.epochs,
            parallelism=known.parallelism,
            restarts=known.restarts,
            checkpoints=known.checkpoints,
            details=details,
            perform=perform,
            log=_no_log,
        )


def _no_log(stdout: bool, attempt: int | None, awaits: bool) -> Any:
    raise NoLog(
        "The job was started by hand, so its log is the output of its program.",
        fix="Look where you started the program. Jobs that run with `penstock run -d` have log files.",
    )
