"""What commands of other processes (`penstock list`, `savepoint`, `stop`, `cancel`, `rescale`) do to a job."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.common.configuration import Configuration
from penstock.common.job_client import JobClient
from penstock.common.options.running import CONTROL_ENABLED
from penstock.control.client import running_jobs
from penstock.control.messages import Answer, Cancel, Describe, Description, Done, MakeSavepoint, Request, Rescale, Stop
from penstock.control.place import control_directory
from penstock.control.server import ControlPoint
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.spark.job import Job

_logger = logging.getLogger("penstock")
_warned: set[str] = set()
"""Directories in which this process could not make a control point, and said so."""


def open_to_commands(job: Job, client: JobClient, configuration: Configuration) -> Callable[[], None]:
    """Let commands reach the job until what this gives is called. Where they cannot, the job runs all the same."""
    if not configuration.get(CONTROL_ENABLED):
        return lambda: None
    directory = control_directory(configuration.to_dict())
    try:
        return ControlPoint(directory, job.id, Commands(job, client)).close
    except (OSError, RuntimeError, PenstockError) as error:
        if directory not in _warned:
            _warned.add(directory)
            _logger.warning("Commands such as `penstock stop` cannot reach job '%s': %s", job.spec.name, error)
        return lambda: None


def checkpoints_of(job: Job) -> str:
    """Return where a job keeps its checkpoints, for people."""
    root = job.spec.checkpoint_root
    return root.where if root is not None and job.spec.checkpointing else ""


def warn_of_other_drivers(name: str, checkpoints: str, configuration: Configuration) -> None:
    """Warn if a job of this host goes on with the same checkpoints, and answers."""
    if not configuration.get(CONTROL_ENABLED):
        return
    try:
        running = running_jobs(control_directory(configuration.to_dict()))
    except (OSError, RuntimeError, PenstockError):
        # No command reaches a job here; `open_to_commands` says so.
        return
    for job in running:
        if job.description is not None and job.description.checkpoints == checkpoints:
            _logger.warning(
                "Another driver of job '%s' is running: process %d, job %s. Both use the checkpoints in %s: the first "
                "to complete a checkpoint goes on, and the other fails. Stop one of them: penstock stop %s",
                name,
                job.pid,
                job.id,
                checkpoints,
                job.id,
            )


class Commands:
    """Answers requests, in any thread and several at a time."""

    def __init__(self, job: Job, client: JobClient) -> None:
        self._job = job
        self._client = client

    def __call__(self, request: Request) -> Answer:
        """Carry out a request and return the answer."""
        client = self._client
        match request:
            case Describe():
                return self._description()
            case MakeSavepoint(directory=directory):
                return Done(savepoint=client.trigger_savepoint(directory).result())
            case Stop(directory=directory, drain=drain):
                return Done(savepoint=client.stop_with_savepoint(drain, directory).result())
            case Cancel(savepoint=True, directory=directory):
                return Done(savepoint=client.cancel_with_savepoint(directory).result())
            case Cancel():
                client.cancel().result()
                return Done()
            case Rescale(parallelism=parallelism):
                client.rescale(parallelism)
                return Done()

    def _description(self) -> Description:
        """Waits for nothing: an epoch may be under way, for however long."""
        job, driver = self._job, self._job.driver
        return Description(
            id=job.id,
            name=job.spec.name,
            status=job.status().name,
            pid=os.getpid(),
            started=int(job.started_at * 1000),
            epochs=driver.next_number - 1,
            restarts=job.restarts,
            parallelism={
                chain.operators[0].uid: chain.parallelism
                for chain in driver.graph.chains
                if chain.level > 0 and chain.operators
            },
            checkpoints=checkpoints_of(job),
        )
