"""What a Dispatcher passes on to the JobManagers that it starts: orders, and settings that jobs do not set."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster.directory import ClusterDirectory
from penstock.cluster.order import Order
from penstock.common.options.checkpoints import CHECKPOINT_INTERVAL, CHECKPOINTS_DIRECTORY, SAVEPOINTS_DIRECTORY
from penstock.common.options.service import (
    DRIVER_MEMORY,
    DRIVER_MEMORY_OF_SPARK,
    HA_STORAGE,
    LOG_FILES,
    LOG_SIZE,
    SERVICE_PREFIXES,
    memory_of_spark,
)

_DEFAULT_INTERVAL = "10 s"
"""Checkpoint interval of jobs that set none: a job of a cluster must be able to resume."""


def order_for(
    settings: Mapping[str, str], directory: ClusterDirectory, job_id: str, attempt: int, finalize: bool
) -> Order:
    """Return the order to run an attempt on this host."""
    return Order(
        job_id=job_id,
        attempt=attempt,
        finalize=finalize,
        records=HA_STORAGE.read(settings) or str(directory.root / "records"),
        settings=dict(settings),
        control=str(directory.control),
        folder=str(directory.attempt(job_id, attempt)),
        defaults=job_defaults(settings, directory),
        log_bytes=LOG_SIZE.read(settings),
        log_files=LOG_FILES.read(settings),
    )


def job_defaults(settings: Mapping[str, str], directory: ClusterDirectory) -> dict[str, str]:
    """Return the settings of jobs that neither their programs nor their users set."""
    own = {key: value for key, value in settings.items() if not key.startswith(SERVICE_PREFIXES)}
    return {
        CHECKPOINTS_DIRECTORY.key: directory.shared(settings, "checkpoints"),
        SAVEPOINTS_DIRECTORY.key: directory.shared(settings, "savepoints"),
        CHECKPOINT_INTERVAL.key: _DEFAULT_INTERVAL,
        DRIVER_MEMORY_OF_SPARK: memory_of_spark(DRIVER_MEMORY.read(settings)),
    } | own
