"""The control point through which other processes send commands to a job, and the discovery of other drivers."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.common.configuration import Configuration
from penstock.common.job_client import JobClient
from penstock.common.options.running import CONTROL_ENABLED
from penstock.common.options.service import REST_STORE_DURATION
from penstock.control.client import running_jobs
from penstock.control.place import control_directory
from penstock.control.server import ControlPoint
from penstock.driver.commands import Commands, DescribableJob
from penstock.errors import PenstockError

_logger = logging.getLogger("penstock")
_warned: set[str] = set()
"""Directories for which this process has already warned that it cannot create a control point."""


def open_to_commands(job: DescribableJob, client: JobClient, configuration: Configuration) -> Callable[[], None]:
    """Accept commands for the job until the returned function is called.

    If the control point cannot be created, log a warning once and run the job without it.
    """
    if not configuration.get(CONTROL_ENABLED):
        return lambda: None
    directory = control_directory(configuration.to_dict())
    commands = Commands(job, client, configuration.get(REST_STORE_DURATION) / 1000)
    try:
        return ControlPoint(directory, job.id, commands).close
    except (OSError, RuntimeError, PenstockError) as error:
        if directory not in _warned:
            _warned.add(directory)
            _logger.warning("Commands such as `penstock stop` cannot reach job '%s': %s", job.name, error)
        return lambda: None


def warn_of_other_drivers(name: str, checkpoints: str, configuration: Configuration) -> None:
    """Warn if a responding job on this host uses the same checkpoints."""
    if not configuration.get(CONTROL_ENABLED):
        return
    try:
        running = running_jobs(control_directory(configuration.to_dict()))
    except (OSError, RuntimeError, PenstockError):
        # Commands cannot reach any job here; `open_to_commands` logs the reason.
        return
    for job in running:
        if job.description is not None and job.description.checkpoints == checkpoints:
            _logger.warning(
                "Another driver of job '%s' is running: process %d, job %s. Both use the checkpoints in %s: the first "
                "to complete a checkpoint continues, and the other fails. Stop one of them: penstock stop %s",
                name,
                job.pid,
                job.id,
                checkpoints,
                job.id,
            )
