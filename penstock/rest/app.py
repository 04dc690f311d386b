"""The REST interface as an ASGI application: finds the route of a request, calls its handler and sends the answer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from penstock.cluster.gateway import Gateway
from penstock.errors import PenstockError
from penstock.query.errors import QueryError
from penstock.rest import (
    agent_endpoints,
    command_endpoints,
    job_actions,
    log_files,
    own_endpoints,
    programs,
    resource_requirements,
    savepoints,
    service_facts,
    state_endpoints,
)
from penstock.rest.access import AccessControl, AccessRules
from penstock.rest.agent_endpoints import AGENT_ENDPOINTS
from penstock.rest.audit import AuditLog
from penstock.rest.endpoints import ENDPOINTS, Endpoint
from penstock.rest.errors import TooLarge, error_body, status_of
from penstock.rest.openapi import document
from penstock.rest.own_endpoints import OWN_ENDPOINTS, TEXT_ENDPOINTS
from penstock.rest.routing import Handler, NoRoute, Route, Routes, WrongMethod
from penstock.rest.service import Service, service_of
from penstock.rest.standby import Standby
from penstock.rest.view_cache import ViewCache, encode
from penstock.rest.views import VIEWS

_log = logging.getLogger(__name__)

ERROR_HEADER = "x-penstock-error"
"""Holds the code of an error of queryable state."""
_HEADERS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
_RAW_HEADERS = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]

_HANDLERS: Mapping[tuple[str, str], Handler] = {
    ("DELETE", "/cluster"): job_actions.shut_down,
    ("GET", "/config"): service_facts.dashboard,
    ("GET", "/jars"): programs.list_programs,
    ("POST", "/jars/upload"): programs.upload,
    ("DELETE", "/jars/:jarid"): programs.remove,
    ("GET", "/jars/:jarid/plan"): programs.plan,
    ("POST", "/jars/:jarid/plan"): programs.plan,
    ("POST", "/jars/:jarid/run"): programs.run,
    ("GET", "/jobmanager/config"): service_facts.configuration,
    ("GET", "/jobmanager/environment"): service_facts.environment,
    ("GET", "/jobmanager/log"): log_files.service_log,
    ("GET", "/jobmanager/logs"): log_files.service_logs,
    ("GET", "/jobmanager/logs/:name"): log_files.service_log_by_name,
    ("GET", "/jobmanager/stdout"): log_files.service_stdout,
    ("GET", "/jobmanager/thread-dump"): service_facts.threads,
    ("POST", "/jobs"): job_actions.refuse_job_graph,
    ("PATCH", "/jobs/:jobid"): job_actions.cancel,
    ("GET", "/jobs/:jobid/yarn-cancel"): job_actions.cancel,
    ("GET", "/jobs/:jobid/jobmanager/environment"): service_facts.job_environment,
    ("GET", "/jobs/:jobid/jobmanager/log-url"): log_files.job_log_url,
    ("GET", "/jobs/:jobid/taskmanagers/:taskmanagerid/log-url"): log_files.executor_log_url,
    ("POST", "/jobs/:jobid/checkpoints"): job_actions.checkpoint,
    ("GET", "/jobs/:jobid/checkpoints/:triggerid"): job_actions.operation,
    ("PATCH", "/jobs/:jobid/clientHeartbeat"): job_actions.heartbeat,
    ("PATCH", "/jobs/:jobid/rescaling"): job_actions.rescale,
    ("GET", "/jobs/:jobid/rescaling/:triggerid"): job_actions.operation,
    ("PUT", "/jobs/:jobid/resource-requirements"): resource_requirements.require_resources,
    ("POST", "/jobs/:jobid/savepoints"): job_actions.savepoint,
    ("GET", "/jobs/:jobid/savepoints/:triggerid"): job_actions.operation,
    ("POST", "/jobs/:jobid/stop"): job_actions.stop,
    ("POST", "/savepoint-disposal"): job_actions.dispose_savepoint,
    ("GET", "/savepoint-disposal/:triggerid"): job_actions.disposal,
    ("GET", "/taskmanagers/:taskmanagerid/log"): log_files.executor_log,
    ("GET", "/taskmanagers/:taskmanagerid/logs"): log_files.executor_logs,
    ("GET", "/taskmanagers/:taskmanagerid/logs/:name"): log_files.executor_log_by_name,
    ("GET", "/taskmanagers/:taskmanagerid/stdout"): log_files.executor_stdout,
    ("GET", "/health"): own_endpoints.health,
    ("GET", "/ready"): own_endpoints.ready,
    ("GET", "/metrics"): own_endpoints.metrics,
    ("GET", "/jobs/:jobid/metrics/prometheus"): own_endpoints.job_metrics,
    ("POST", "/penstock/v1/savepoints/inspect"): savepoints.inspect,
    ("POST", "/penstock/v1/savepoints/diff"): savepoints.diff,
    ("POST", "/penstock/v1/jars/:jarid/dry-run"): programs.dry_run,
    ("GET", "/penstock/v1/jobs/:jobid/logs"): log_files.job_logs,
    ("GET", "/penstock/v1/jobs/:jobid/logs/:name"): log_files.job_log_by_name,
    ("GET", "/penstock/v1/events"): own_endpoints.events,
    ("GET", "/penstock/v1/jobs/:jobid/states"): state_endpoints.states,
    ("GET", "/penstock/v1/jobs/:jobid/states/:state"): state_endpoints.schema,
    ("GET", "/penstock/v1/jobs/:jobid/states/:state/rows"): state_endpoints.rows,
    ("GET", "/penstock/v1/jobs/:jobid/states/:state/value"): state_endpoints.value,
    ("GET", "/penstock/v1/jobs/:jobid/states/:state/entries"): state_endpoints.entries,
    ("GET", "/penstock/v1/cluster"): command_endpoints.cluster,
    ("POST", "/penstock/v1/drain"): command_endpoints.drain,
    ("GET", "/penstock/v1/jobs"): command_endpoints.jobs,
    ("POST", "/penstock/v1/jobs/:jobid/rescaling"): command_endpoints.rescale,
    ("GET", "/penstock/v1/agent/processes"): agent_endpoints.processes,
    ("GET", "/penstock/v1/agent/jobs/:jobid/attempts/:attempt/control"): agent_endpoints.read,
    ("POST", "/penstock/v1/agent/jobs/:jobid/attempts/:attempt/control"): agent_endpoints.act,
    ("POST", "/penstock/v1/agent/jobs/:jobid/attempts/:attempt/kill"): agent_endpoints.kill,
    ("GET", "/penstock/v1/agent/jobs/:jobid/logs"): agent_endpoints.logs,
    ("GET", "/penstock/v1/agent/jobs/:jobid/logs/:name"): agent_endpoints.log,
}


_LOCAL = frozenset(
    {
        *("/health", "/ready", "/cluster", "/penstock/v1/cluster", "/penstock/v1/drain", "/penstock/v1/openapi.json"),
        *(endpoint.path for endpoint in AGENT_ENDPOINTS),
    }
)
"""Paths that a standby answers itself. They concern one Dispatcher, not the jobs of the cluster."""


def application(
    gateway: Gateway, settings: Mapping[str, str], *, token: str, uploads: Path, audit: AuditLog
) -> Application:
    """Return the REST interface of a cluster or an application.

    Args:
        gateway: The cluster behind it.
        settings: The settings of the service.
        token: The token that requests need; empty if they need none. See `token_file.service_token`.
        uploads: A private directory for incomplete uploads.
        audit: The log of actions.

    Raises:
        BadSetting: A setting is invalid.
    """
    return Application(service_of(gateway, settings, uploads, token), AccessRules(settings, token), audit)


class Application:
    """An ASGI application. `stop_streams` ends followed logs and events, which a graceful stop would wait for."""

    def __init__(self, service: Service, rules: AccessRules, audit: AuditLog) -> None:
        self.service = service
        self.rules = rules
        self.audit = audit
        self._routes = _routes()
        self._views = ViewCache(service.gateway, VIEWS)
        self._standby = Standby(service.trusted, service.timeout_s)
        self._guarded = AccessControl(self._answer, rules, audit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guarded(scope, receive, send)

    def stop_streams(self) -> None:
        """End all streams within a second."""
        self.service.stopping = True

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _refuse_protocol(scope, receive, send)
            return
        method = scope["method"]
        try:
            route, parameters = self._routes.find(method, scope["path"])
            scope["path_params"] = parameters
            if _is_action(route):
                send = self._audited(f"{method} {route.endpoint.path}", scope, send)
            leader = None if route.endpoint.path in _LOCAL else self.service.gateway.leader()
            if leader is not None:
                await self._standby.forward(leader, scope, receive, send)
                return
            if route.view:
                body = self._views.body(route.endpoint.path, parameters, scope["query_string"])
                await _send(send, route.endpoint.status, body)
                return
            request = Request(scope, receive)
            answer = await route.handler(self.service, request)
            response = _response(answer, route.endpoint)
        except Exception as error:
            response = self._failure(error)
        await response(scope, receive, send)

    def _audited(self, action: str, scope: Scope, send: Send) -> Send:
        """Return `send` with a line in the audit log before the answer, whether it is ours or that of the leader."""

        async def audited(message: Message) -> None:
            if message["type"] == "http.response.start":
                job = scope["path_params"].get("jobid") or scope.get("state", {}).get("job", "")
                self.audit.write(scope.get("client"), action, job, message["status"])
            await send(message)

        return audited

    def _failure(self, error: Exception) -> Response:
        headers = dict(_HEADERS)
        if isinstance(error, PenstockError):
            status, text = status_of(error), str(error)
            if status >= 500:
                _log.warning("A request failed: %s", self.service.masking.text(text))
        elif isinstance(error, NoRoute):
            status, text = HTTPStatus.NOT_FOUND, "This path does not exist. See /penstock/v1/openapi.json."
        elif isinstance(error, WrongMethod):
            allowed = ", ".join(error.allowed)
            status, text = HTTPStatus.METHOD_NOT_ALLOWED, f"This path does not have this method, only {allowed}."
            headers["allow"] = allowed
        else:
            _log.error("A request failed.", exc_info=error)
            status, text = HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error. The log of the service has the details."
        if isinstance(error, QueryError):
            # Several of these errors share a status.
            headers[ERROR_HEADER] = error.code
        if isinstance(error, TooLarge):
            # The rest of the body is not read.
            headers["connection"] = "close"
        return Response(error_body(self.service.masking, text), status, headers, media_type="application/json")


def _routes() -> Routes:
    """Combine the tables of endpoints with their handlers. Every endpoint has one."""
    routes = Routes()
    for endpoint in (*ENDPOINTS, *OWN_ENDPOINTS, *TEXT_ENDPOINTS, *AGENT_ENDPOINTS):
        handler = _HANDLERS.get((endpoint.method, endpoint.path))
        if handler is not None:
            routes.add(Route(endpoint, handler))
        elif endpoint.path == "/penstock/v1/openapi.json":
            routes.add(Route(endpoint, _openapi))
        else:
            routes.add(Route(endpoint, _not_a_view, view=True))
    return routes


async def _openapi(service: Service, request: Request) -> Any:
    return document((*ENDPOINTS, *OWN_ENDPOINTS), TEXT_ENDPOINTS)


async def _not_a_view(service: Service, request: Request) -> Any:
    raise AssertionError("views are answered without a handler")


def _is_action(route: Route) -> bool:
    return route.endpoint.method != "GET" or route.endpoint.path.endswith("/yarn-cancel")


def _response(answer: Any, endpoint: Endpoint) -> Response:
    if isinstance(answer, Response):
        return answer
    body = b"{}" if answer is None else encode(answer)
    return Response(body, endpoint.status, _HEADERS, media_type="application/json")


async def _send(send: Send, status: int, body: bytes) -> None:
    """Send JSON with few allocations: this is the answer of all polls."""
    length = str(len(body)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length), *_RAW_HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _refuse_protocol(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        while True:
            event = (await receive())["type"]
            await send({"type": f"{event}.complete"})
            if event == "lifespan.shutdown":
                return
    await receive()
    await send({"type": "websocket.close", "code": 1008, "reason": "This service has no websockets."})
