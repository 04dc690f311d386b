"""The REST interface of one program, in the program's process: `penstock run --web`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from penstock.cluster.application import ApplicationGateway
from penstock.cluster.directory import ClusterDirectory
from penstock.common.options.service import REST_PORT
from penstock.rest.assembly import AddPage, rest_server
from penstock.rest.server import CannotListen, RestServer

_PORTS = 20
"""How many ports are tried if the default one is taken, as by a cluster or another program."""
_LAST_ANSWERS_S = 5.0
"""How long an ended program answers clients that poll a savepoint, a stop or a cancelled job."""

_logger = logging.getLogger("penstock")


@contextmanager
def served_application(
    settings: Mapping[str, str], page: AddPage | None = None
) -> Iterator[tuple[ApplicationGateway, str]]:
    """Serve the jobs of this process. Yield where to attach them, and the address.

    Raises CannotListen, TlsRequired, UnusableToken, UnusableClusterDirectory.
    """
    directory = ClusterDirectory.configured(settings)
    directory.create()
    gateway = ApplicationGateway(settings)

    def server_with(settings: Mapping[str, str]) -> RestServer:
        return rest_server(gateway, settings, directory.root / "application", page)

    server = server_with(settings) if REST_PORT.key in settings else _on_a_free_port(server_with, settings)
    server.start()
    try:
        yield gateway, server.address
    finally:
        deadline = time.monotonic() + _LAST_ANSWERS_S
        while gateway.is_awaited and time.monotonic() < deadline:
            time.sleep(0.05)
        server.stop()


def _on_a_free_port(server_with: Callable[[Mapping[str, str]], RestServer], settings: Mapping[str, str]) -> RestServer:
    first = REST_PORT.read(settings)
    for port in range(first, first + _PORTS):
        try:
            server = server_with({**settings, REST_PORT.key: str(port)})
        except CannotListen:
            if port + 1 == first + _PORTS:
                raise
            continue
        if port != first:
            _logger.warning("Port %d is taken, so the service uses port %d.", first, port)
        return server
    raise AssertionError
