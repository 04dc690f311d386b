"""A connection to ZooKeeper: settings, credentials, the nodes of a cluster and their protection.

    <root>/<cluster id>/latch/<candidate>-<turn>-<number>   ephemeral; the first one leads; holds host:port
    <root>/<cluster id>/jobs/<job id>                       holds the job id, the job's folder in the storage
    <root>/<cluster id>/jobmanagers/<job id>-<attempt>      ephemeral, of the JobManager itself; holds its host
    <root>/<cluster id>/agents/<session>                    ephemeral, of a Dispatcher; holds its host and its address

Only one user, known by the digest of a password, has access to the nodes below the cluster id. If others could edit a
pointer, they could run code as this user. They can create clusters next to it below the root.

The addresses of Dispatchers are here, their token is not: see credentials.py.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.checkpoint.lineages import SharedStorage
from penstock.cluster.credentials import zookeeper_credentials
from penstock.common.options.service import HA_CLUSTER_ID, HA_QUORUM, HA_ROOT, HA_SESSION_TIMEOUT
from penstock.common.setting_types import BadSetting
from penstock.errors import PenstockError

_CLUSTER_ID = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
_ROOT = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._-]+)+")
SMALLEST_TIMEOUT_S = 4.0
"""The smallest timeout that a server with default settings permits (two ticks of 2 s).

It is assumed as long as the negotiated timeout is not known.
"""
_RECONNECT = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 2.0}
"""kazoo's default backs off up to an hour."""
_ABANDONED = 2
"""Time without a connection, in session timeouts, after which a session is given up."""
_CALL_S = 10.0
"""Maximum wait for an answer."""
_CLOSE_S = 5.0

# kazoo logs requests at DEBUG, and that includes the password. During an outage it warns about every attempt.
_kazoo_log = logging.getLogger("penstock.cluster.kazoo")
_kazoo_log.setLevel(logging.ERROR)


class UnprotectedNodes(PenstockError):
    """Nodes of the cluster in ZooKeeper belong to another user, or other users can change them.

    Operator action: find out who created the nodes. Use the credentials they were created with, another
    `high-availability.cluster-id`, or remove them while no Dispatcher runs.
    """

    retryable = False


def kazoo() -> Any:
    """Import and return kazoo, which is an optional dependency."""
    try:
        import kazoo.client
        import kazoo.exceptions
        import kazoo.security
    except ImportError:
        raise PenstockError(
            "High availability with ZooKeeper needs the package kazoo, which is not installed.",
            fix="pip install 'penstock[zookeeper]'",
            retryable=False,
        ) from None
    return kazoo


@dataclass(frozen=True, kw_only=True)
class ZooKeeperSettings:
    """The ensemble, and the place of the cluster in it."""

    quorum: str
    root: str
    cluster_id: str
    timeout_s: float
    """The session timeout to ask for. The server can grant another one."""
    credentials: str = field(repr=False)

    @classmethod
    def read(cls, settings: Mapping[str, str], storage: SharedStorage) -> ZooKeeperSettings:
        """Return the configured settings. Create the credentials in the storage if needed."""
        quorum = HA_QUORUM.read(settings).replace(" ", "")
        if not quorum:
            raise BadSetting(
                f"{HA_QUORUM.key} is not set, and high-availability.type is zookeeper.",
                fix="Set it to the servers, such as 'zk1:2181,zk2:2181,zk3:2181'.",
            )
        root, cluster_id = HA_ROOT.read(settings), HA_CLUSTER_ID.read(settings)
        if not _ROOT.fullmatch(root):
            raise BadSetting(f"{HA_ROOT.key} is '{root}'.", fix="Set it to an absolute path, such as /penstock.")
        if not _CLUSTER_ID.fullmatch(cluster_id):
            raise BadSetting(
                f"{HA_CLUSTER_ID.key} is '{cluster_id}'.",
                fix="Use letters, digits, dots, hyphens and underscores, at most 100 of them.",
            )
        return cls(
            quorum=quorum,
            root=root,
            cluster_id=cluster_id,
            timeout_s=HA_SESSION_TIMEOUT.read(settings) / 1000,
            credentials=zookeeper_credentials(settings, storage),
        )

    @property
    def base(self) -> str:
        return f"{self.root}/{self.cluster_id}"

    @property
    def latch(self) -> str:
        return f"{self.base}/latch"

    @property
    def jobs(self) -> str:
        return f"{self.base}/jobs"

    @property
    def job_managers(self) -> str:
        return f"{self.base}/jobmanagers"

    @property
    def agents(self) -> str:
        return f"{self.base}/agents"


def clock() -> float:
    """Return the seconds since the boot, including those during which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Connection:
    """A client of ZooKeeper. It reconnects until it is closed, with a new session if the old one expired."""

    def __init__(self, settings: ZooKeeperSettings, on_state: Callable[[str], None]) -> None:
        """Create a client. `on_state` gets CONNECTED, SUSPENDED or LOST, in the client's thread: it must not block."""
        security = kazoo().security
        user, _, password = settings.credentials.partition(":")
        self.settings = settings
        self._private = [security.make_digest_acl(user, password, all=True)]
        others = security.ACL(security.Permissions.READ | security.Permissions.CREATE, security.ANYONE_ID_UNSAFE)
        self._shared = [*self._private, others]
        self._on_state = on_state
        self._opening = threading.Lock()
        self._closed = False
        self._cut_at: float | None = None
        self._negotiated_s: float | None = None
        self.client = self._new_client()

    def _new_client(self) -> Any:
        client = kazoo().client.KazooClient(
            hosts=self.settings.quorum,
            timeout=self.settings.timeout_s,
            auth_data=[("digest", self.settings.credentials)],
            default_acl=self._private,
            connection_retry=_RECONNECT,
            logger=_kazoo_log,
        )

        def changed(state: str) -> None:
            if client is self.client:
                self._on_state(str(state))

        client.add_listener(changed)
        self._observe_timeout(client)
        return client

    def _observe_timeout(self, client: Any) -> None:
        """Learn the timeout that the server granted. kazoo computes its read timeout from it, and then forgets it."""
        connect = getattr(client._connection, "_connect", None)
        if connect is None:
            return

        def observed(*arguments: Any) -> Any:
            if client is self.client:
                self._negotiated_s = None
            timeouts = connect(*arguments)
            if client is self.client:
                self._negotiated_s = timeouts[0] / 1000 * 3 / 2
            return timeouts

        client._connection._connect = observed

    @property
    def timeout_s(self) -> float:
        """The timeout of the session."""
        if self._negotiated_s is None:
            return min(self.settings.timeout_s, SMALLEST_TIMEOUT_S)
        return self._negotiated_s

    @property
    def connected(self) -> bool:
        return bool(self.client.connected)

    @property
    def session(self) -> int | None:
        """The id of the session; None if the client is not connected."""
        known = self.client.client_id
        # kazoo's thread can forget the session meanwhile.
        return None if known is None or known[0] is None else int(known[0])

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of kazoo's client by name, and wait for the answer.

        Raises kazoo's exceptions, among them its timeout: a request that is made while a session ends can get lost.
        """
        client = self._connected_client()
        return getattr(client, f"{name}_async")(*arguments, **named).get(timeout=_CALL_S)

    def commit(self, fill: Callable[[Any], None]) -> list[Any]:
        """Make a transaction. Return the results of its operations, which can be exceptions."""
        transaction = self._connected_client().transaction()
        fill(transaction)
        return list(transaction.commit_async().get(timeout=_CALL_S))

    def _connected_client(self) -> Any:
        # kazoo would keep the request, and send it when it is connected again.
        if not self.connected:
            raise kazoo().exceptions.ConnectionLoss("not connected")
        return self.client

    def open(self) -> None:
        """Connect in the background."""
        self.client.start_async()

    def heal(self) -> None:
        """Connect again if kazoo has given up, or insists on a session that no server accepts. Call it regularly.

        kazoo gives up after an unexpected error. A server that has lost its data refuses clients that have seen them.
        """
        with self._opening:
            if self._closed or self.connected:
                self._cut_at = None
            elif self._cut_at is None:
                self._cut_at = clock()
            elif self.client.client_state in ("CLOSED", "AUTH_FAILED") or clock() - self._cut_at > _ABANDONED * max(
                self.settings.timeout_s, SMALLEST_TIMEOUT_S
            ):
                self._cut_at = None
                abandoned, self.client = self.client, self._new_client()
                self._on_state("LOST")
                self.client.start_async()
                threading.Thread(target=_end, args=(abandoned,), name="penstock-zookeeper-end", daemon=True).start()

    def close(self) -> None:
        """End the session, which removes its ephemeral nodes at once, unless no server answers."""
        with self._opening:
            self._closed = True
        # kazoo waits for its thread, which can wait for a server that does not answer.
        closing = threading.Thread(target=_end, args=(self.client,), name="penstock-zookeeper-end", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)

    def prepare(self) -> None:
        """Create the nodes of the cluster. Raise UnprotectedNodes if they exist and are not protected."""
        errors = kazoo().exceptions
        path = self.settings.root
        try:
            self.call("ensure_path", path, acl=self._shared)
            known = self.settings
            for path in (known.base, known.latch, known.jobs, known.job_managers, known.agents):
                try:
                    self.call("create", path, acl=self._private)
                except errors.NodeExistsError:
                    if self.call("get_acls", path)[0] != self._private:
                        raise _unprotected(path, "can be changed by others") from None
        except errors.NoAuthError:
            raise _unprotected(path, "belongs to another user") from None


def _end(client: Any) -> None:
    client.stop()
    client.close()


def _unprotected(path: str, why: str) -> UnprotectedNodes:
    return UnprotectedNodes(
        f"The node {path} in ZooKeeper {why}.",
        fix="Use the credentials that it was created with (high-availability.zookeeper.client.credentials-file), or "
        "another high-availability.cluster-id or high-availability.zookeeper.path.root.",
    )
