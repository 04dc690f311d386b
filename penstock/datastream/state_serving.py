"""The state server that starts with a job whose states can be read from outside."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.checkpoint.lineages import SharedStorage
from penstock.common.configuration import Configuration
from penstock.common.options.query import QUERYABLE_STATE

_logger = logging.getLogger("penstock")


def serve_state(job_id: str, name: str, root: SharedStorage | None, configuration: Configuration) -> Callable[[], None]:
    """Start a state server for a job if queryable state is enabled. The result is called at the end of the job.

    `root`: the directory of the job's checkpoints; None if they do not leave the driver.
    """
    if not configuration.get(QUERYABLE_STATE):
        return lambda: None
    if root is None:
        _logger.warning(
            "The state of job '%s' is not served: state servers read checkpoints. Set state.checkpoints.dir and "
            "execution.checkpointing.interval.",
            name,
        )
        return lambda: None
    # Only such jobs need it, and Arrow Flight takes time to load.
    from penstock.query.launching import Launch, LaunchedServer, settings_of_server

    settings = settings_of_server(configuration.to_dict())
    return LaunchedServer(Launch(job_id=job_id, job_name=name, root=root.where, settings=settings)).end
