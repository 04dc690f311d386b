"""Queryable state: read the committed state of running jobs from outside.

See docs/query/queryable-state.md.

::

    QueryableStateClient    client.py, async_client.py    pinned.py; values.py decodes what it gets
    connect_duckdb          sql.py                        SQL, in the process of the client
    StateServer             server.py                     the program: a state server, and the proxy of its host
    Proxy                   proxy.py                      finds the server of a key; connection.py reaches it
    Membership              membership.py                 which blocks a server has; division.py, announcements.py
    LaunchedServer          launching.py                  the program as a separate process
    QueryListener           flight_server.py              Arrow Flight: tokens, TLS, errors; protocol.py: the messages
    QueryService            service.py, limits.py         answers requests without a network
    connect_to_proxy        locating.py                   the proxy of a job, from settings
    Reads                   reads.py, stored.py           one checkpoint: keys, maps, scans, changes
    FollowedJob, Follower   followed_job.py, follower.py  a job and its lineage; replica.py: key groups
    LocalReplicas           local_replicas.py             where replicas are: in memory or on local disk
    QueryableState          registry.py                   the names, from the manifest

Names are imported lazily: Arrow Flight takes time to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.query.async_client import AsyncQueryableStateClient
    from penstock.query.client import QueryableStateClient
    from penstock.query.client_types import Change, CheckpointChanges, MapPage, Read
    from penstock.query.pinned import PinnedReads
    from penstock.query.server import StateServer
    from penstock.query.sql import StateDatabase, connect_duckdb

__all__ = [
    "AsyncQueryableStateClient",
    "Change",
    "CheckpointChanges",
    "MapPage",
    "PinnedReads",
    "QueryableStateClient",
    "Read",
    "StateDatabase",
    "StateServer",
    "connect_duckdb",
]

_MODULES = {
    "AsyncQueryableStateClient": "async_client",
    "Change": "client_types",
    "CheckpointChanges": "client_types",
    "MapPage": "client_types",
    "PinnedReads": "pinned",
    "QueryableStateClient": "client",
    "Read": "client_types",
    "StateDatabase": "sql",
    "StateServer": "server",
    "connect_duckdb": "sql",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
