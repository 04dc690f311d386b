"""Finds jobs for commands: those that run by hand on this host, and those of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from penstock.cli.cluster_jobs import ClusterJobs
from penstock.cli.hand_run_jobs import HandRunJobs
from penstock.cli.listed_job import ListedJob, ambiguous, match
from penstock.cli.service_address import command_settings, service_if_any
from penstock.cluster.directory import ClusterDirectory
from penstock.control.client import JobNotFound
from penstock.control.place import control_directory
from penstock.errors import PenstockError

_UNNAMED = ("CREATED", "INITIALIZING")


class FoundJobs:
    """The jobs that a command can see: with an address those of that service, otherwise also those run by hand."""

    def __init__(self, setting: list[str] | None, address: str | None) -> None:
        settings = command_settings(setting)
        self._by_hand = None if address else HandRunJobs(control_directory(settings))
        self._client = service_if_any(settings, address)
        self._left_behind = self._client is None and ClusterDirectory.configured(settings).address.exists()
        self._only_service = address is not None

    def all(self) -> list[ListedJob]:
        """Return all jobs, those that run by hand first. If only the service fails, print that and go on."""
        by_hand = self._of_hand()
        try:
            return [*by_hand, *self._of_service()]
        except PenstockError as error:
            if self._only_service:
                raise
            typer.echo(f"Jobs of the service are missing: {error}", err=True)
            return by_hand

    def one(self, given: str, *, ended: bool = False) -> ListedJob:
        """Return the only job with this id, id prefix or name. Raises JobNotFound.

        A job that ended counts if `ended` is set and no running job matches. A name then means the newest one.
        """
        by_hand = self._of_hand()
        found = match(by_hand, given)
        try:
            of_service = self._of_service()
        except PenstockError:
            if len(found) == 1:
                return found[0]
            raise
        running = [job for job in of_service if not job.ended]
        found = found + match(running, given)
        if not found:
            over = match([job for job in of_service if job.ended], given)
            if ended:
                found = over[-1:] if all(job.name == given for job in over) else over
                _point_out_newer(given, found, running)
            elif over:
                shown = ", ".join(f"{job} is {job.status}" for job in over)
                raise JobNotFound(f"The job has ended: {shown}.", fix="Pass a running job from `penstock list`.")
        if len(found) == 1:
            return found[0]
        if found:
            raise ambiguous(given, found)
        raise self._not_found(given, [*by_hand, *running])

    def _of_hand(self) -> list[ListedJob]:
        return [] if self._by_hand is None else self._by_hand.jobs()

    def _of_service(self) -> list[ListedJob]:
        if self._left_behind:
            typer.echo(
                "The service of this host was killed. Its jobs might still run: `penstock cluster start` takes them "
                "over.",
                err=True,
            )
        if self._client is None:
            return []
        return ClusterJobs(self._client).jobs()

    def _not_found(self, given: str, jobs: Sequence[ListedJob]) -> JobNotFound:
        runs = f"Running jobs: {', '.join(map(str, jobs))}." if jobs else "No job is running."
        if self._client is None:
            where = "runs on this host"
        elif self._only_service:
            where = f"runs at {self._client.host}:{self._client.port}"
        else:
            where = f"runs on this host or at {self._client.host}:{self._client.port}"
        return JobNotFound(
            f"No job with the id or name '{given}' {where}. {runs}",
            fix="Pass an ID or name from `penstock list`. It lists jobs that you run on this host with the same "
            "penstock.control.dir, and those of the service.",
        )


def _point_out_newer(given: str, found: Sequence[ListedJob], running: Sequence[ListedJob]) -> None:
    """Print which jobs could get this name: a program names its job only when it executes it."""
    if len(found) != 1 or found[0].name != given:
        return
    later = [job for job in running if job.status in _UNNAMED and (job.started_ms or 0) > (found[0].started_ms or 0)]
    for job in later:
        typer.echo(
            f"'{given}' is {found[0].id}, which is {found[0].status}. {job} was submitted later and has no final name "
            f"yet: pass its ID to see it.",
            err=True,
        )
