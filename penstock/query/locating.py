"""Finds the proxy that serves a job, from the settings of the job or of a command on its host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.common.addresses import WILDCARDS
from penstock.common.options.query import (
    ADVERTISED_ADDRESS,
    PROXY_PORTS,
    QUERY_ADDRESS,
    QUERY_TLS_CA,
    QUERY_TLS_CERTIFICATE,
    QUERY_TOKEN_FILE,
)
from penstock.query.client import QueryableStateClient
from penstock.query.errors import NotAllowed, QueryError, Unreachable

_MOST_PORTS = 16
"""Ports to try. Proxies take the first free one."""


def connect_to_proxy(settings: Mapping[str, str], timeout: float = 5.0) -> QueryableStateClient:
    """Return a client of the proxy that servers with these settings use. Raises Unreachable, NotAllowed.

    Args:
        settings: The `queryable-state` settings.
        timeout: How many seconds a read of the client can take.
    """
    host = (ADVERTISED_ADDRESS.read(settings) or QUERY_ADDRESS.read(settings)).strip("[]")
    ports = [*PROXY_PORTS.read(settings)][:_MOST_PORTS]
    token_file = QUERY_TOKEN_FILE.read(settings)
    failure: QueryError | None = None
    for port in ports:
        client = QueryableStateClient(
            "localhost" if host in WILDCARDS else host,
            port,
            token_file=str(Path(token_file).expanduser()) if token_file else None,
            tls=bool(QUERY_TLS_CERTIFICATE.read(settings)),
            authorities=QUERY_TLS_CA.read(settings),
            timeout=timeout,
        )
        try:
            client.jobs()
            return client
        except QueryError as error:
            client.close()
            # A proxy that refuses the token says more than a port without one.
            if failure is None or isinstance(error, NotAllowed):
                failure = error
    if failure is None:
        failure = Unreachable(f"{PROXY_PORTS.key} names no port.", fix="Set it to the port of the proxy.")
    raise failure
