"""The endpoint for Prometheus of a job or a Dispatcher, on a dedicated port: `metrics.reporter.prom.port`."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from penstock.common.addresses import is_loopback
from penstock.common.options.metrics import PrometheusReporter, prometheus_reporters
from penstock.driver.job_snapshot import JobSnapshot
from penstock.driver.prometheus import MEDIA_TYPE, exposition

_REUSE_S = 0.5
"""How long an answer is reused: several Prometheus servers can scrape the same job."""
_CLIENT_S = 5.0
"""Time for a client to send its request, and to read the answer."""
_CLIENTS = 8
"""Requests that are answered at the same time. Further ones wait in the backlog of the socket."""

_logger = logging.getLogger("penstock")

Jobs = Callable[[], Sequence[JobSnapshot]]


def serve_metrics(settings: Mapping[str, str], jobs: Jobs, of: str) -> Callable[[], None]:
    """Start the endpoints that the settings ask for, and return what stops them.

    An endpoint without a free port is left out with a warning, as in Flink: the job matters more than its metrics.

    Args:
        settings: The settings of the job or the service.
        jobs: Returns the jobs to export, in any thread.
        of: Whose metrics these are, for the log.

    Raises:
        BadSetting: A setting of a reporter is invalid.
    """
    endpoints = [found for each in prometheus_reporters(settings) if (found := _endpoint(each, jobs, of)) is not None]

    def stop() -> None:
        for endpoint in endpoints:
            endpoint.stop()

    return stop


def _endpoint(reporter: PrometheusReporter, jobs: Jobs, of: str) -> MetricsEndpoint | None:
    problem: OSError | None = None
    for port in reporter.ports:
        try:
            endpoint = MetricsEndpoint(reporter.host, port, jobs, reporter.filter_values)
        except OSError as error:
            problem = error
            continue
        _logger.info("Metrics of %s for Prometheus: %s", of, endpoint.address)
        return endpoint
    _logger.warning(
        "The metrics of %s are not exported: the endpoint for Prometheus cannot listen on %s, %s (%s). Give %s a range "
        "with a free port, such as 9250-9300.",
        of,
        reporter.host,
        f"port {reporter.ports[0]}" if len(reporter.ports) == 1 else f"{len(reporter.ports)} ports",
        problem.strerror if problem else "no port",
        reporter.port_key,
    )
    return None


class MetricsEndpoint:
    """Answers GET requests with the metrics of jobs, from its own threads, until `stop`."""

    def __init__(self, host: str, port: int, jobs: Jobs, filter_values: bool) -> None:
        """Listen and answer. Raises OSError if the address cannot be bound."""
        self._jobs, self._filter = jobs, filter_values
        self._host_name = socket.gethostname()
        self._lock = threading.Lock()
        self._written = b""
        self._until = 0.0
        handler = type("Handler", (_Handler,), {"endpoint": self})
        self._server = _server_class(host)((host.strip("[]"), port), handler)
        self.loopback_only = is_loopback(str(self._server.server_address[0]))
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="penstock-metrics", daemon=True
        ).start()

    @property
    def address(self) -> str:
        """The address to scrape."""
        host, port = self._server.server_address[:2]
        host = str(host)
        return f"http://{f'[{host}]' if ':' in host else host}:{int(port)}/metrics"

    def text(self) -> bytes:
        """Return the metrics, at most half a second old."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._written = exposition(self._jobs(), self._host_name, filter_values=self._filter).encode(
                    errors="replace"
                )
                self._until = time.monotonic() + _REUSE_S
            return self._written

    def stop(self) -> None:
        """Close the port. Can be called repeatedly."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, *arguments: Any) -> None:
        self._places = threading.BoundedSemaphore(_CLIENTS)
        super().__init__(*arguments)

    def server_bind(self) -> None:
        # The one of HTTPServer looks up the name of the host, which can take seconds.
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._places.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that went away. The endpoint logs nothing that a client can cause.
        pass


class _ServerOfIPv6(_Server):
    address_family = socket.AF_INET6


def _server_class(host: str) -> type[_Server]:
    return _ServerOfIPv6 if ":" in host else _Server


class _Handler(BaseHTTPRequestHandler):
    """One connection, which is closed after its answer."""

    endpoint: MetricsEndpoint
    timeout = _CLIENT_S
    server_version, sys_version = "Penstock", ""

    def do_GET(self) -> None:
        """Answer with the metrics whatever the path is, as Flink's reporter does."""
        if self.endpoint.loopback_only and not _names_loopback(self.headers.get("Host", "")):
            # A page of another site that makes its name point here.
            self.send_error(403, "Foreign host name")
            return
        try:
            body = self.endpoint.text()
        except Exception as error:
            _logger.warning("Cannot export the metrics: %s", error)
            self.send_error(503, "The job cannot be read")
            return
        self.send_response(200)
        self.send_header("Content-Type", MEDIA_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: Prometheus asks every few seconds."""


def _names_loopback(host: str) -> bool:
    """Return whether the header `Host` names this host, or is missing as in HTTP/1.0."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return not name or is_loopback(name.strip("[]"))
