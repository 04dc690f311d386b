"""The ephemeral node by which a JobManager reports that it is alive. The JobManager's own process makes it.

It is a hint. A JobManager without a node can live, cut off from ZooKeeper, and it continues without one: the records
and the process decide.
"""

from __future__ import annotations

import logging
import threading

from penstock.cluster.records import checked_id
from penstock.cluster.zookeeper_client import Connection, ZooKeeperSettings, kazoo

_log = logging.getLogger(__name__)

_RETRY_S = 2.0
_JOIN_S = 10.0


class Presence:
    """The node of one attempt. It exists as long as its process is in touch with ZooKeeper, until `close`."""

    def __init__(self, settings: ZooKeeperSettings, job_id: str, attempt: int, host: str) -> None:
        self._connection = Connection(settings, lambda state: self._changed.set())
        self._path = f"{settings.job_managers}/{checked_id(job_id)}-{attempt:06}"
        self._host = host.encode()
        self._changed = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="penstock-presence", daemon=True)

    def start(self) -> None:
        """Make the node in the background, and again whenever the session was lost."""
        self._connection.open()
        self._thread.start()

    def close(self) -> None:
        """Remove the node."""
        self._closing.set()
        self._changed.set()
        self._connection.close()
        self._thread.join(_JOIN_S)

    def _keep(self) -> None:
        done: int | None = None
        said = ""
        while True:
            self._changed.wait(_RETRY_S)
            self._changed.clear()
            if self._closing.is_set():
                return
            try:
                self._connection.heal()
                session = self._connection.session
                if session is not None and session != done:
                    self._make(session)
                    done = session
            except Exception as error:
                if repr(error) != said and not self._closing.is_set():
                    said = repr(error)
                    _log.warning("The JobManager is not visible in ZooKeeper: %s. It continues, and retries.", said)

    def _make(self, session: int) -> None:
        errors = kazoo().exceptions
        try:
            self._connection.call("create", self._path, self._host, ephemeral=True)
            return
        except errors.NodeExistsError:
            stat = self._connection.call("exists", self._path)
        except errors.NoNodeError:
            self._connection.prepare()
            stat = None
        if stat is not None and stat.ephemeralOwner == session:
            return
        # The node of this process's lost session. It would disappear later, and take the mark of life with it.
        if stat is not None:
            self._connection.call("delete", self._path)
        self._connection.call("create", self._path, self._host, ephemeral=True)
