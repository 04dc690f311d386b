"""The process of a Dispatcher with its REST interface.

    python -m penstock.rest.dispatcher_service

runs it in the background. Its settings arrive as JSON on standard input: command lines are visible to other users.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import uvloop

from penstock.cluster.directory import ClusterDirectory
from penstock.cluster.dispatcher import Dispatcher
from penstock.cluster.log_files import FORMAT, log_to_stderr, rotate_in_background
from penstock.cluster.service_lock import ServiceLock
from penstock.common.addresses import WILDCARDS, is_loopback
from penstock.common.console import SECRETS
from penstock.common.error_format import short_form
from penstock.common.options.service import HA_QUORUM, HA_TYPE, LOG_FILES, LOG_SIZE, REST_ADDRESS, REST_TLS_CA
from penstock.common.private_file import replace_private
from penstock.control.metrics_endpoint import serve_metrics
from penstock.driver.job_snapshot import JobSnapshot
from penstock.errors import PenstockError
from penstock.rest.agents import HttpAgents
from penstock.rest.assembly import AddPage, rest_server
from penstock.rest.server import raise_descriptor_limit
from penstock.rest.token_file import cluster_token

_SNAPSHOTS_S = 5.0
"""How long the endpoint for Prometheus waits for the event loop."""

_logger = logging.getLogger("penstock")


def run_dispatcher(
    settings: Mapping[str, str],
    *,
    keep_log: bool = True,
    started: Callable[[str], None] = lambda address: None,
    page: AddPage | None = None,
) -> None:
    """Run a Dispatcher and its REST interface until SIGTERM, SIGINT or `DELETE /cluster`. Jobs keep running.

    Args:
        settings: The settings of the service.
        keep_log: Whether to write `dispatcher.log`. A process in the background has it as its standard error.
        started: Called with the address of the service once it answers.
        page: Adds the web page, which is a higher layer.

    Raises:
        AlreadyRunning: Another service runs in the same directory.
        PenstockError: The service cannot start, for example because the port is in use.
    """
    directory = ClusterDirectory.configured(settings)
    directory.create()
    lock = ServiceLock(directory.lock)
    try:
        # A killed service leaves its address behind.
        directory.address.unlink(missing_ok=True)
        _keep_log(directory.log, settings, keep_log)
        raise_descriptor_limit()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(directory, settings, started, page))
    finally:
        lock.close()


async def _serve(
    directory: ClusterDirectory, settings: Mapping[str, str], started: Callable[[str], None], page: AddPage | None
) -> None:
    # The token file then has the token that all Dispatchers of the cluster share.
    token = await asyncio.to_thread(cluster_token, settings, directory.storage(settings))
    dispatcher = Dispatcher(settings, HttpAgents(token, REST_TLS_CA.read(settings)))
    # Other Dispatchers and the address file need the port, which the system can choose.
    server = rest_server(dispatcher, settings, directory.root, page)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, dispatcher.closing.set)
    host = _advertised(settings, server.host)
    url = f"{'https' if server.tls else 'http'}://{host}:{server.port}"
    _warn_if_out_of_reach(settings, host, url)

    async def jobs() -> Sequence[JobSnapshot]:
        return dispatcher.jobs()

    stop_metrics = serve_metrics(
        settings, lambda: asyncio.run_coroutine_threadsafe(jobs(), loop).result(_SNAPSHOTS_S), "all jobs"
    )
    await dispatcher.start(url)
    # All modules are loaded. Without this, a full collection looks at their objects each time, which takes 60 ms.
    gc.collect()
    gc.freeze()
    serving = asyncio.create_task(server.serve())
    try:
        replace_private(directory.address, f"{url}\n".encode())
        _logger.info("Dispatcher %s answers at %s, process %d.", dispatcher.name, url, os.getpid())
        started(url)
        closing = asyncio.create_task(dispatcher.closing.wait())
        await asyncio.wait({serving, closing}, return_when=asyncio.FIRST_COMPLETED)
        _logger.info("Dispatcher %s stops. Jobs keep running.", dispatcher.name)
    finally:
        directory.address.unlink(missing_ok=True)
        await asyncio.to_thread(stop_metrics)
        server.stop()
        await serving
        await dispatcher.close()


def _keep_log(path: Path, settings: Mapping[str, str], write: bool) -> None:
    SECRETS.learn(settings)
    log_to_stderr()
    if write:
        to_file = logging.FileHandler(path, encoding="utf-8")
        to_file.setFormatter(logging.Formatter(FORMAT))
        _logger.addHandler(to_file)
    for handler in _logger.handlers:
        handler.addFilter(SECRETS)
    rotate_in_background([path], LOG_SIZE.read(settings), LOG_FILES.read(settings))


def _advertised(settings: Mapping[str, str], bound: str) -> str:
    """Return the host under which other hosts reach this service."""
    if bound in WILDCARDS:
        bound = REST_ADDRESS.read(settings) or socket.getfqdn()
    return f"[{bound}]" if ":" in bound and not bound.startswith("[") else bound


def _warn_if_out_of_reach(settings: Mapping[str, str], host: str, url: str) -> None:
    servers = [server.rpartition(":")[0] for server in HA_QUORUM.read(settings).replace(" ", "").split(",")]
    if HA_TYPE.read(settings) != "none" and is_loopback(host) and not all(map(is_loopback, servers)):
        _logger.warning(
            "Dispatchers on other hosts cannot reach this one at %s, so they cannot forward requests to it or manage "
            "its jobs. Set rest.bind-address, and rest.ssl.certificate and rest.ssl.private-key for TLS.",
            url,
        )


def main(page: AddPage | None = None) -> None:
    """Run a Dispatcher with the settings on standard input."""
    settings = msgspec.json.decode(sys.stdin.buffer.read(), type=dict[str, str])
    try:
        run_dispatcher(settings, keep_log=False, page=page)
    except PenstockError as error:
        print(short_form(error.with_traceback(None)), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
