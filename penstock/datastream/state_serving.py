"""The state server that starts with a job whose states can be read from outside."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.checkpoint.lineages import SharedStorage
from penstock.common.configuration import Configuration
from penstock.common.options.query import LINGER, QUERYABLE_STATE
from penstock.errors import PenstockError
from penstock.state.storage import Storage

if TYPE_CHECKING:
    from penstock.query.server import StateServer

_logger = logging.getLogger("penstock")


class ServedMemory:
    """Serves the state of a job whose checkpoints are in the memory of its driver, from threads of that process."""

    def __init__(
        self, job_id: str, name: str, memory: Callable[[], tuple[str, Storage]], configuration: Configuration
    ) -> None:
        """`memory` returns the lineage and its storage, once the job has started."""
        self._job_id, self._name = job_id, name
        self._memory = memory
        self._settings = configuration.to_dict()
        self._server: StateServer | None = None

    def start(self, resumed: object = None) -> None:
        """Serve the job, unless a server has been started before: a restart in the process keeps the memory."""
        from penstock.query.server import StateServer

        if self._server is not None:
            return
        server = None
        try:
            server = StateServer(self._settings)
            server.follow_here(self._job_id, self._name, *self._memory())
            server.start()
            self._server = server
        except PenstockError as error:
            _logger.warning("The state of job '%s' is not served: %s", self._name, error)
            if server is not None:
                server.close()

    def end(self) -> None:
        """End the server after some time. The end of the process does not wait for it."""
        if self._server is not None:
            timer = threading.Timer(LINGER.read(self._settings) / 1000, self._server.close)
            timer.daemon = True
            timer.start()


def serve_memory(
    job_id: str, name: str, memory: Callable[[], tuple[str, Storage]], configuration: Configuration
) -> ServedMemory | None:
    """Return a server for a job whose checkpoints are in the driver's memory, if queryable state is enabled."""
    return ServedMemory(job_id, name, memory, configuration) if configuration.get(QUERYABLE_STATE) else None


def serve_state(job_id: str, name: str, root: SharedStorage | None, configuration: Configuration) -> Callable[[], None]:
    """Start a state server for a job if queryable state is enabled. The result is called at the end of the job.

    `root`: the directory of the job's checkpoints; None if it has none.
    """
    if not configuration.get(QUERYABLE_STATE):
        return lambda: None
    if root is None:
        _logger.warning(
            "The state of job '%s' is not served: state servers read checkpoints. Set "
            "execution.checkpointing.interval.",
            name,
        )
        return lambda: None
    # Only such jobs need it, and Arrow Flight takes time to load.
    from penstock.query.launching import Launch, LaunchedServer, settings_of_server

    settings = settings_of_server(configuration.to_dict())
    return LaunchedServer(Launch(job_id=job_id, job_name=name, root=root.where, settings=settings)).end
